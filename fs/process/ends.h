/* Notices at once when processes that record something come to their end, so that what they
 * left is kept (exited.h). One thread waits for all of them, and for what was kept to get
 * too old; it never reads a target, which may hang: another thread does, when an agent says
 * that it records something else. */
#pragma once

#include "fs/process/exited.h"

struct ends;

/* exited must outlive it. -ENOMEM, -EMFILE. */
int ends_new(struct exited *exited, struct ends **out);
/* Frees them. A second thread that hangs is left what it uses. */
void ends_free(struct ends *ends);

/* Waits for the end of a process from now on. One that can't be waited for, since descriptors or
 * memory are scarce, is noted when somebody looks for it. */
void ends_watch(struct ends *ends, struct process *process);
/* Something that is waited for may record more than it did: each is looked at soon. Any thread. */
void ends_stir(struct ends *ends);
/* The process of that serial, if it is waited for, with a reference; else NULL. */
struct process *ends_find(struct ends *ends, uint64_t serial);
/* A process was seen to have ended, or to run another program. */
void ends_note(struct ends *ends, struct process *process);
