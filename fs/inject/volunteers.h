/* Which thread of a process to try next: its main one, then another, in turns; among
 * the others those that sleep. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct volunteers {
    pid_t pid;
    unsigned turn;
    pid_t *tids; /* the others, as they were when last asked */
    size_t n, next;
};

void volunteers_init(struct volunteers *volunteers, pid_t pid);
void volunteers_deinit(struct volunteers *volunteers);
/* A thread; 0: there is none that could be. */
pid_t volunteers_next(struct volunteers *volunteers);
