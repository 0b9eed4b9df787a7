/* What a process has of PyTorch: its modules as trees, their parameters and buffers, optimizers,
 * and tensors, found from outside by going once through the memory where its objects are
 * (heap/scan.h). Nothing stands still for it, and no code runs in the process.
 *
 * A model is a module that no other has among its own. It is called by the name of its class;
 * where there are several of one class, the next ones are Class#2, Class#3. The largest comes
 * first. What changed while it was read is read again; what never stays is left out, and said to
 * be (torn). */
#pragma once

#include "fs/remote/heap/scan.h"
#include "fs/remote/objects/tensor.h"

#define MODELS_OBJECTS_MAX 200000 /* modules, tensors and optimizers that are looked at */
#define MODELS_NAME_MAX 1024      /* bytes of a path */

struct torch_module {
    uint64_t object;
    char *class;    /* its name alone, escaped; owned */
    char *path;     /* below its model, as in named_modules(); "": it is the model; owned */
    uint32_t model; /* index of that among the modules */
    unsigned depth; /* below it */
};

enum torch_holder { HELD_BY_NONE, HELD_AS_PARAMETER, HELD_AS_BUFFER, HELD_BY_OPTIMIZER };

/* A tensor that something has under a name. */
struct torch_held {
    uint64_t object;
    enum torch_holder as;
    uint32_t of; /* index of the module, or of the optimizer */
    char *name;  /* "weight", of an optimizer "exp_avg"; owned */
};

struct torch_param_group {
    uint32_t optimizer;      /* its index */
    uint32_t number;         /* of the group in that */
    double lr, weight_decay; /* NaN: it has none */
    uint64_t parameters;     /* tensors */
};

struct torch_optimizer {
    uint64_t object;
    char *class; /* owned */
    double step; /* the highest one of its tensors; NaN: not known */
};

struct torch_models {
    /* how it is to be read, set before */
    int (*unwanted)(const void *arg); /* 0 or -errno; NULL: always wanted */
    const void *unwanted_arg;

    struct torch_module *modules; /* model after model, each as named_modules() has it */
    size_t nmodules, modules_alloc;
    struct torch_held *held;
    size_t nheld, held_alloc;
    struct torch_optimizer *optimizers;
    size_t noptimizers, optimizers_alloc;
    struct torch_param_group *groups;
    size_t ngroups, groups_alloc;
    uint64_t *tensors; /* all there are of Python's, by address */
    size_t ntensors, tensors_alloc;
    bool cut;  /* a limit was reached */
    bool torn; /* a module or an optimizer was left out, for it changed each time */

    /* the implementation's own */
    struct torch_flag *flags; /* of the parameters, by what autograd knows of them */
    size_t nflags, flags_alloc;
};

/* Finds all of them. -ENOENT: the process has no PyTorch; -EOPNOTSUPP, and why says more: a
 * free-threaded interpreter, or a version that isn't known; errors of scan_run(). The caller owns
 * what is in *models, also on failure. */
int torch_models_read(struct target *target, struct torch_models *models, struct text *why);
void torch_models_deinit(struct torch_models *models);

/* Reads a tensor as it is now: the same twice. -EINVAL: it isn't one any more, or never stays.
 * gradient, unless NULL: its own too; its impl is 0 if there is none. */
int torch_tensor_read(struct target *target, struct view *view, uint64_t object, struct tensor *out,
                      struct tensor *gradient);
/* What this process itself has of a tensor: the tensor, or, if that is a DTensor, whose elements
 * are spread over ranks (torch/distributed/tensor), its shard, as far as that can be read. */
void torch_shard_read(struct target *target, struct view *view, const struct tensor *of,
                      struct tensor *out);
/* Whether libtorch is in the process's memory: else there is nothing to look for. */
bool torch_is_loaded(const struct target *target);

/* Adds the name of a model, or of an optimizer: "Transformer", "Adam#2". */
void torch_model_name(const struct torch_models *models, uint32_t model, struct text *out);
void torch_optimizer_name(const struct torch_models *models, uint32_t optimizer, struct text *out);
/* Whether a tensor is to be trained, as far as its flags could be found; -1: that isn't known. */
int torch_requires_grad(const struct torch_models *models, const struct tensor *tensor);
