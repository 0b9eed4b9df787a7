#include "fs/remote/torch/holders.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>

#define GROUP 64  /* tensors that are read together */
#define ROUNDS 16 /* of queueing what they refer to: more than any of them takes */

/* What a tensor is to somebody: by its object, or its implementation for a gradient. */
struct known {
    uint64_t at;
    uint32_t held; /* index in models.held */
    bool gradient;
};

struct visiting {
    struct target *target;
    const struct torch_models *models;
    torch_visit *visit;
    void *arg;
    struct view *view;
    struct known *known; /* by `at` */
    size_t n, alloc;
};

static void visiting_deinit(struct visiting *v)
{
    view_free(v->view);
    free(v->known);
}

const char *torch_owner_name(enum torch_owner owner)
{
    static const char *const names[TORCH_OWNERS] = {
        NULL, "parameter", "buffer", "gradient", "optimizer", "activation",
    };

    return names[owner];
}

static int by_at(const void *a, const void *b)
{
    const struct known *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->held < y->held ? -1 : x->held > y->held;
}

/* The first that has it. */
static const struct known *find(const struct visiting *v, uint64_t at)
{
    size_t found = LOWER_BOUND(v->n, i, v->known[i].at < at);

    return found < v->n && v->known[found].at == at ? &v->known[found] : NULL;
}

static int know(struct visiting *v, uint64_t at, size_t held, bool gradient)
{
    if (ARRAY_GROW(v->known, v->alloc, v->n + 1) < 0)
        return -ENOMEM;
    v->known[v->n++] = (struct known){at, (uint32_t)held, gradient};
    return 0;
}

static int know_all(struct visiting *v)
{
    const struct torch_models *models = v->models;
    struct tensor tensor, gradient;
    int r = 0;

    for (size_t i = 0; r == 0 && i < models->nheld; i++) {
        r = know(v, models->held[i].object, i, false);
        if (r < 0 || models->held[i].as != HELD_AS_PARAMETER)
            continue;
        r = torch_tensor_read(v->target, v->view, models->held[i].object, &tensor, &gradient);
        if (r == 0 && gradient.impl)
            r = know(v, gradient.impl, i, true);
        r = r == -EINVAL ? 0 : r;
    }
    array_sort(v->known, v->n, sizeof *v->known, by_at);
    return r;
}

/* Whether a tensor that was read is still what was known of its address: memory of a gradient that
 * was freed may be another tensor's by now. */
static bool is_gradient(struct visiting *v, const struct tensor *tensor, const struct known *known)
{
    struct tensor parameter, gradient;

    return torch_tensor_read(v->target, v->view, v->models->held[known->held].object, &parameter,
                             &gradient) == 0 &&
           gradient.impl == tensor->impl && tensor_is_alike(&gradient, tensor);
}

static int visit_one(struct visiting *v, const struct tensor *tensor, const struct known *known)
{
    static const enum torch_owner owners[] = {OWNER_NONE, OWNER_PARAMETER, OWNER_BUFFER,
                                              OWNER_OPTIMIZER};
    const struct torch_held *held = known ? &v->models->held[known->held] : NULL;
    enum torch_owner owner = OWNER_NONE;

    if (known)
        owner = known->gradient ? OWNER_GRADIENT : owners[held->as];
    else if (tensor->knows_autograd && tensor->has_node)
        owner = OWNER_ACTIVATION;
    return v->visit(v->arg, tensor, owner, held);
}

/* Tensors that are read together: each step of one would cost a system call else. */
struct group {
    struct tensor tensors[GROUP];
    int error[GROUP];
};

/* -EAGAIN: one of them changes, or nobody knows. */
static int read_group(struct visiting *v, const uint64_t *objects, size_t n, struct group *group)
{
    const struct offsets *offsets = &v->target->runtime.offsets;
    bool queued = true;
    int r = 0;

    view_reset(v->view);
    view_defer(v->view, true);
    for (unsigned round = 0; r == 0 && queued && round < ROUNDS; round++) {
        for (size_t i = 0; i < n; i++)
            group->error[i] = tensor_read_object(v->view, offsets, objects[i], &group->tensors[i]);
        queued = view_is_queued(v->view);
        r = queued ? view_fill(v->view) : view_verify(v->view);
    }
    view_defer(v->view, false);
    return r == 0 && queued ? -EAGAIN : r;
}

static int read_each(struct visiting *v, const uint64_t *objects, size_t n, struct group *group)
{
    int r = read_group(v, objects, n, group);

    if (r != -EAGAIN)
        return r;
    for (size_t i = 0; i < n; i++) {
        r = torch_tensor_read(v->target, v->view, objects[i], &group->tensors[i], NULL);
        if (r < 0 && r != -EINVAL)
            return r;
        group->error[i] = r;
    }
    return 0;
}

static int visit_objects(struct visiting *v)
{
    _cleanup_free_ struct group *group = malloc(sizeof *group);
    const uint64_t *objects = v->models->tensors;
    size_t left = v->models->ntensors, n;
    int r = group ? 0 : -ENOMEM;

    for (; r == 0 && left; objects += n, left -= n) {
        n = left < GROUP ? left : GROUP;
        r = read_each(v, objects, n, group);
        for (size_t i = 0; r == 0 && i < n; i++) {
            const struct tensor *tensor = &group->tensors[i];
            if (group->error[i])
                continue;
            const struct known *known = find(v, objects[i]);
            if (!known)
                known = find(v, tensor->impl);
            if (known && known->gradient && !is_gradient(v, tensor, known))
                known = NULL;
            r = visit_one(v, tensor, known);
        }
    }
    return r;
}

/* Visits the gradients that Python has no object for. */
static int visit_gradients(struct visiting *v)
{
    struct tensor tensor, gradient;
    int r = 0;

    for (size_t i = 0; r == 0 && i < v->n; i++) {
        const struct known *known = &v->known[i];
        if (!known->gradient || (i && known[-1].at == known->at))
            continue;
        uint64_t object = v->models->held[known->held].object;
        r = torch_tensor_read(v->target, v->view, object, &tensor, &gradient);
        if (r == 0 && gradient.impl == known->at && !gradient.object)
            r = visit_one(v, &gradient, known);
        else if (r == -EINVAL)
            r = 0;
    }
    return r;
}

int torch_tensors_visit(struct target *target, const struct torch_models *models,
                        torch_visit *visit, void *arg)
{
    _cleanup_(visiting_deinit) struct visiting v = {target, models, visit, arg};

    int r = view_new(&target->memory, &v.view);
    if (r == 0)
        r = know_all(&v);
    if (r == 0)
        r = visit_objects(&v);
    return r == 0 ? visit_gradients(&v) : r;
}
