/* The text of <pid>/locks. */
#pragma once

#include "fs/remote/moment/snapshot.h"
#include "fs/remote/waits/waits.h"

/* Adds all waits, after waits_finish(); its form is described in tree/locks.c. snapshot: of the
 * same moment; threads that it lacks are left out. */
void locks_add(const struct waits *waits, const struct snapshot *snapshot, struct text *out);

/* A thread's wait as it stands behind its name: "waits for inventory.lock held by 68"; nothing if
 * it waits for nothing that is known. */
void locks_add_short(const struct waits *waits, pid_t tid, struct text *out);

/* "deadlock of 63 and 68": the first one. False: there is none. */
bool locks_add_deadlock(const struct waits *waits, struct text *out);
