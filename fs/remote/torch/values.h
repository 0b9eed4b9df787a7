/* What a tensor's elements come to: read from outside, piece by piece, while the process goes on.
 * Nothing is stopped for it: an element is as it was when its piece was read. */
#pragma once

#include "fs/remote/memory/memory.h"
#include "fs/remote/objects/tensor.h"

struct tensor_values {
    uint64_t n;        /* elements */
    uint64_t nan, inf; /* of them */
    double norm;       /* the square root of the sum of their squares, as torch.norm() has it: NaN
                          where there is one */
    double min, max;   /* of those that are numbers; NaN: there is none. Of absolute values for
                          complex ones */
};

/* Reads them all, of a tensor in the process's memory. unwanted: asked now and then; other than 0
 * ends it, and is returned. NULL: never. -EOPNOTSUPP: on another device, of a type that isn't a
 * number's, or its memory isn't known; -EFAULT: it has gone; -ESRCH, -EPERM, -ENOMEM. */
int tensor_values_read(const struct memory *memory, const struct tensor *tensor,
                       int (*unwanted)(const void *arg), const void *arg,
                       struct tensor_values *out);
