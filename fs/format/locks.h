/* The text of <pid>/locks. */
#pragma once

#include "fs/remote/moment/snapshot.h"
#include "fs/remote/waits/waits.h"

/* Adds all waits, after waits_note_threads(); its form is described in tree/locks.c. */
void locks_add(const struct waits *waits, struct text *out);

/* Says of each thread of the snapshot, in short, what it waits for (`waits` of it). */
void locks_mark(const struct waits *waits, struct snapshot *snapshot);

/* "deadlock of 63 and 68", or "63 waits for inventory.lock held by a thread that is no more": why
 * the process can't go on, without more ado. Nothing if that isn't known. */
void locks_add_stuck(const struct waits *waits, struct text *out);
