/* The frames of a snapshot: merged, resolved to names, and cut to what is shown. */
#pragma once

#include "fs/base/strings.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/moment/thread_stack.h"
#include "fs/remote/native/native.h"

struct frames {
    struct strings *strings; /* where names go; the snapshot's */
    struct native *native;
    struct text scratch;     /* freed by the owner */
    size_t total;            /* of all threads so far */
    const struct code *code; /* of the last Python frame, and its strings: recursion repeats them */
    const char *func, *file;
};

/* Fills in one thread's frames. native may be NULL: Python frames alone. -ENOMEM. */
int frames_add(struct frames *frames, const struct thread_stack *python,
               const struct native_stack *native, struct thread *out);

/* A string that a target or one of its files chose, made safe to print. NULL: out of memory. */
const char *frames_safe(struct frames *frames, const char *s);
