/* How a frame reads in every file that shows stacks. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/moment/snapshot.h"

/* One line of a backtrace, without indentation and number:
 *   forward (/w/model.py:88)
 *   forward (/w/model.py:~88)                   machine code of the JIT runs it, near that line
 *   at::native::addmm_out (libtorch_cpu.so+0x1a2b30) [native]
 *   ?? (unreadable: torn frame)
 *   ... 9424 frames cut ... */
void frame_add_line(const struct frame *frame, struct text *out);

/* One element of a folded stack: no addresses, no semicolon. False if the frame has none. */
bool frame_add_folded(const struct frame *frame, struct text *out);

/* A thread's headline, "Thread 1240 (loader-0) [idle, futex, for 34.2 s]". */
void thread_add_head(const struct thread *thread, struct text *out);
/* thread_add_head(), and the thread's frames, innermost first. */
void thread_add_backtrace(const struct thread *thread, struct text *out);
