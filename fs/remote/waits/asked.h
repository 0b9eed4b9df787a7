/* What has to be read of a process at another end of a wait, asked of who may read it, and told by
 * him: all of it numbers of fs/base/fields.h. */
#pragma once

#include "fs/base/fields.h"
#include "fs/remote/waits/peers.h"
#include "fs/remote/waits/semaphores.h"

#define QUESTION_MAX 1024 /* bytes */

/* Answers a question about a process, which is read here and may hang (proc/may_hang.h): adds to
 * out. -EPROTO: it is none; -ESRCH, -ENOMEM. */
int asked_answer(pid_t pid, const char *question, size_t size, struct text *out);

/* Have the reader ask: as peer_thread_read() and peers_read() of one, and what semaphores_read()
 * adds of one. What was set stays as it was on failure. -EPROTO: that is no answer; else what
 * reader->ask() said. */
int asked_thread(const struct waits_reader *reader, pid_t pid, struct peer_thread *thread);
int asked_peer(const struct waits_reader *reader, struct peer *peer, bool with_threads);
int asked_holds(const struct waits_reader *reader, pid_t pid, struct semaphores *semaphores);

/* Read answers. */
int asked_peer_read(struct text *answer, struct peer *out);
int asked_holds_read(struct text *answer, pid_t pid, struct semaphores *out);

void blocking_fields(struct fields *fields, struct blocking *blocking);
