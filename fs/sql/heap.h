/* How much memory the statements may take.
 *
 * All that SQLite allocates, and the rows, is counted against the heap that the allocating thread
 * works for at the time: SQLite's own limits are those of a whole process. What is over it fails
 * as if the machine had no more memory.
 *
 * What is allocated for a heap is freed while a thread works for the same one. */
#pragma once

#include "fs/sql/stop.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define HEAP_MAX (256u << 20)     /* of one statement, bytes */
#define HEAP_TOTAL_MAX (1u << 30) /* of all together ... */
#define HEAP_EACH (512u << 20)    /* ... of one user's, and ... */
#define HEAP_KEPT (256u << 20)    /* ... for root alone */
#define HEAP_PIECE (256u << 10)   /* of a share, at least, is taken at once */

struct heap {
    atomic_uint refs;
    atomic_long used;
    atomic_long taken; /* of its user's share, in pieces, until it is freed */
    uid_t uid;
    long limit;
    atomic_bool exceeded;
};

/* uid: whose share it takes. -ENOMEM. The caller owns one reference; whoever works for it has one,
 * too. */
int heap_new(long limit, uid_t uid, struct heap **out);
struct heap *heap_ref(struct heap *heap);
void heap_unref(struct heap *heap);

/* Has SQLite count, once for the whole process. -ENOMEM: it doesn't start. */
int heap_start(void);
/* Who is asked for the bytes of a user's share in the place of this process, which then counts
 * none. False: there are no more. To be called while there is one thread. */
typedef bool heap_give_share(void *arg, size_t bytes);
void heap_ask(heap_give_share *give, void *arg);
/* So many bytes of its user's share are taken for it by whoever is asked for more. */
void heap_give_taken(struct heap *heap, size_t bytes);
/* From now on this thread works for this heap (NULL: none). Returns the one before. */
struct heap *heap_enter(struct heap *heap);
/* From now on this thread's allocations fail once it is time to stop (NULL: never): SQLite looks
 * around between steps of its machine, and may be long in planning, before the first one. */
void heap_watch(const struct stop *stop);
/* Counts bytes that aren't SQLite's, of this thread's heap: false, and nothing, where they are too
 * many. What is given back was taken. */
bool heap_take(size_t bytes);
void heap_give(size_t bytes);
/* The one that this thread works for. */
struct heap *heap_current(void);
