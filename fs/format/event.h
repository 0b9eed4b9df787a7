/* What happened in a process, as one line of JSON each. The names of the fields are for good:
 *
 *   ts      [s] since 1970
 *   kind    what it is:
 *     event probing.event(), with tid, name, task, span, attrs: as in the table events hit of a
 *     breakpoint or watchpoint, with tid, id, hit, func, file, lineno, stack, captured, old_value,
 *             new_value, address, error: as in the table hits
 *     stop a thread is held: by a breakpoint, whose hit comes before it, or where
 *     id is null by a step, `pause`,
 *             or an exception that nobody caught; with tid, id, func, file, lineno, captured,
 *             stop: its number, reason, returned, exception: an object, error
 *     continue it goes on, with tid, name: why ("continue", "step", "deadline", ...),
 *     and attrs: the breakpoint's id,
 *             and for how long it was held
 *     crash an exception that nobody caught, or a fatal signal, once `on-crash` was written,
 *     with tid, crash, type ("SIGSEGV",
 *             too), message, func, file, lineno: as in the table crash
 *     blocked a loop of asyncio, once `record loop on` was written, with tid, duration (null: it
 *             lasts), task, coro, func, file, lineno, stack: as in the table loop
 *     breakpoint one of the set was set, or has another state, with id, breakpoint, state
 *             ("removed", too), lineno, note: as in the table breakpoints
 *     thread one that began, or has ended, since the look before, with tid, state ("begin", "end")
 *             and name, the kernel's
 *     child a process of CPython that this one has started, with child: its number
 *     attach, detach   of an agent
 *     exec    the process runs another program from now on; the last line
 *     exit with status, or with signal and name ("SIGKILL"); all null where that is not known;
 *     the last line lost `count` others stood here; ts is when that was noticed; pid is 0
 *     where they are of several processes
 *   pid     of the process */
#pragma once

#include "agent/wire/ring_format.h"
#include "fs/proc/ending.h"

/* A row of the table events. */
void event_text_row(pid_t pid, const struct ring_row *row, struct text *out);
/* A row of the table hits, and what it says of a thread that was stopped. */
void event_text_hit(pid_t pid, const struct ring_row *row, struct text *out);
void event_text_stop(pid_t pid, const struct ring_row *row, struct text *out);
/* A row of the table crash; false: it is only a part of one. */
bool event_text_crash(pid_t pid, const struct ring_row *row, struct text *out);
/* A row of the table loop. */
void event_text_blocked(pid_t pid, const struct ring_row *row, struct text *out);
/* A row of the table breakpoints. */
void event_text_breakpoint(pid_t pid, const struct ring_row *row, struct text *out);
/* A thread begins or ends, as it was seen now; name: "" if it isn't known. */
void event_text_thread(pid_t pid, pid_t tid, bool begins, const char *name, struct text *out);
/* A child was seen now. */
void event_text_child(pid_t pid, pid_t child, struct text *out);
/* The agent came, or has gone. */
void event_text_agent(pid_t pid, bool attached, struct text *out);
void event_text_end(pid_t pid, const struct ending *ending, struct text *out);
void event_text_lost(pid_t pid, uint64_t count, struct text *out);
