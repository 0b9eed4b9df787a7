/* A copy of chosen pieces of a target's memory, made in few system calls.
 *
 * A walk asks the view for what it needs. What has been copied is answered at once; what has not
 * is queued, so that walks over many threads advance side by side and each round costs one call
 * (view_fill). The next walk over the same target begins with view_refresh(), which copies all
 * pieces that the last walk used in a single call: a warm read of an unchanged stack is one call
 * in all. view_verify() copies everything used once more and compares: equal means that nothing
 * of it changed in between.
 *
 * Not thread-safe; the owner's lock guards it. Pointers handed out live until the next
 * view_refresh(), view_reset() or view_free(). */
#pragma once

#include "fs/remote/memory/memory.h"

#define VIEW_PIECE_MAX (1u << 20)  /* bytes of one piece */
#define VIEW_BYTES_MAX (64u << 20) /* bytes of all pieces */

struct view;

/* memory must outlive the view. -ENOMEM. */
int view_new(const struct memory *memory, struct view **out);
void view_free(struct view *view);

/* Forgets every piece. */
void view_reset(struct view *view);
/* Gives up the room that only copying takes; the pieces stay. */
void view_rest(struct view *view);
/* Bytes that it holds of copies. */
size_t view_size(const struct view *view);
/* Copies the pieces used since the last refresh again, forgets the others. 0, -ESRCH, -EPERM,
 * -ENOMEM. */
int view_refresh(struct view *view);

/* [addr, addr + len) as copied: 0 and the pointer; -EAGAIN: queued, call view_fill() and ask
 * again; -EFAULT: not readable; -E2BIG: over a limit; -ENOMEM. */
int view_get(struct view *view, uint64_t addr, uint32_t len, const uint8_t **out);
/* view_get() of what can't change as long as the rest doesn't, such as an object that is referred
 * to and immutable: view_verify() passes over it. */
int view_get_fixed(struct view *view, uint64_t addr, uint32_t len, const uint8_t **out);
/* Copies all that is queued. 0, -ESRCH, -EPERM, -ENOMEM. */
int view_fill(struct view *view);
/* How much it has been asked for since view_new(): each piece counts one, and each 64 bytes of it.
 * Only the difference of two means anything. */
uint64_t view_asked(const struct view *view);
/* view_get() that copies at once instead of queueing. NULL: not readable, or over a limit. */
const uint8_t *view_read(struct view *view, uint64_t addr, uint32_t len);
/* While it defers, view_read() queues, too, and says NULL: who reads many things with code that
 * doesn't know of queues does all of it again behind a view_fill(), until nothing is queued. */
void view_defer(struct view *view, bool defers);
/* Whether anything is queued. */
bool view_is_queued(const struct view *view);
/* A pointer-sized word at addr; false if it isn't readable. */
bool view_read64(struct view *view, uint64_t addr, uint64_t *out);

/* 0: every piece used, but fixed ones, still holds the same bytes; -EAGAIN: something
 * changed; -ESRCH, -EPERM, -ENOMEM. */
int view_verify(struct view *view);
