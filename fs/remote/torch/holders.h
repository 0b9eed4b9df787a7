/* The owner of each tensor. */
#pragma once

#include "fs/remote/torch/models.h"

enum torch_owner {
    OWNER_NONE, /* anything else: a variable, a list, what a function is working with */
    OWNER_PARAMETER,
    OWNER_BUFFER,
    OWNER_GRADIENT, /* of a parameter */
    OWNER_OPTIMIZER,
    OWNER_ACTIVATION, /* what computed it is kept, so that its gradient can be computed */
    TORCH_OWNERS,
};

/* "parameter"; NULL for OWNER_NONE. */
const char *torch_owner_name(enum torch_owner owner);

/* held: whose it is, or whose gradient; NULL: nobody's that is known. 0; else: that ends it. */
typedef int torch_visit(void *arg, const struct tensor *tensor, enum torch_owner owner,
                        const struct torch_held *held);
/* Visits each tensor of models->tensors as it is now, each once, and each gradient of a parameter,
 * which Python may not have. 0, what visit() returned first other than that, or -errno. */
int torch_tensors_visit(struct target *target, const struct torch_models *models,
                        torch_visit *visit, void *arg);
