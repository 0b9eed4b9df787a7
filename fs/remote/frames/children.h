/* What a value holds, one level at a time, and the way to it.
 *
 * A path is written as in Python, and no code runs for it:
 *
 *   .NAME    an attribute that an object holds itself, or a name of a module
 *   [N]      an item of a list or tuple; from the end, if N is negative
 *   [KEY]    what a dict has for a key, which is written as repr() shows it: a str of at most
 *            VALUE_STRING_MAX characters, a number, bytes, None, True or False
 *   {N}      whatever a value holds, by its position from 0: an item of a set, what a dict has for
 *            any other key
 */
#pragma once

#include "fs/remote/frames/locals.h"

#define CHILD_PATH_MAX 1024u /* bytes of a path, with its end */

struct child {
    uint64_t position;  /* from 0, among what the value holds */
    uint64_t reference; /* for value_add_stackref(); never 0 */
    const char *step;   /* how a path goes on to it; of a frame's names without the dot */
    const char *key;    /* where a path can't be written with it: what repr() would say of a dict's
                           key, or the name; else NULL */
};

typedef int child_visit(void *arg, const struct child *child);

struct children_of {
    struct view *view;
    const struct offsets *offsets;
    uint64_t frame, code; /* of a frame: locals_iterate() */
};

/* Visits what a value, or with an empty path the frame, holds from the from-th on, in the order of
 * repr(): items, then attributes. path: from the frame's names on. *value: what the path leads to;
 * 0: the frame. *at: how far into the path it was found, also on errors. Returns what visit
 * returned first other than 0; else 0; -EINVAL: so no path is written; -ENOENT: nothing is there;
 * -E2BIG: there is more than can be looked at; -EFAULT: something was not readable; -ENOMEM. */
int children_visit(const struct children_of *of, const char *path, uint64_t from,
                   child_visit *visit, void *arg, uint64_t *value, const char **at);
