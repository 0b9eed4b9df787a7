/* How a program finds an object, in the words of one of its frames: "lock", "inventory.lock",
 * "forks[3]", "self._lock of <shop.Shop object at 0x7f12>". */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/objects/object.h"

/* Objects whose contents are looked through; one name costs at most ... */
#define LOCK_NAME_LOOKS_MAX 128u

/* Adds the shortest name that leads to the object from the frame's local variables, or from the
 * globals that its code speaks of, over at most two steps (an attribute, an item). Takes what it
 * looks through from *looks. False: none was found, and nothing is added. */
bool lock_name_add(struct view *view, const struct offsets *offsets, const struct raw_frame *frame,
                   uint64_t object, unsigned *looks, struct text *out);
