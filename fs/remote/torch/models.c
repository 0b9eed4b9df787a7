#include "fs/remote/torch/models.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"
#include "fs/base/addresses.h"
#include "fs/base/array.h"
#include "fs/remote/heap/block.h"
#include "fs/remote/heap/pool.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/torch/values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRIES 16      /* of a thing that changes while it is read */
#define SMALLEST 48   /* bytes of PyGC_Head, PyObject and the reference of a dict, in a block */
#define DEPTH_MAX 256 /* of modules in modules */
#define NONE UINT32_MAX

enum kind { KIND_UNKNOWN, KIND_OTHER, KIND_MODULE, KIND_TENSOR, KIND_OPTIMIZER };

/* A module, before it is known what it is part of. */
struct node {
    uint64_t object;
    char *class;
    size_t children, nchildren; /* in finding.children */
    size_t held, nheld;         /* in finding.held */
    bool is_child, seen;
    size_t size; /* modules of the model that it is */
};

struct child {
    char *name;
    uint64_t object;
};

struct finding {
    struct torch_models *models;
    struct target *target;
    const struct offsets *offsets;
    struct block_types types;
    uint8_t *kinds; /* enum kind, of each of types.items */
    size_t kinds_alloc;
    struct addresses bases; /* enum kind, of each type that is one's base */
    struct view *view;

    struct node *nodes; /* by address */
    size_t nnodes, nodes_alloc;
    struct child *children;
    size_t nchildren, children_alloc;
    struct torch_held *held;
    size_t nheld, held_alloc;
    uint64_t *optimizers;
    size_t noptimizers, optimizers_alloc;
    int error; /* of what visits */
};

/* ---- what there is ---- */

static enum kind read_base(struct finding *f, uint64_t type)
{
    _cleanup_(text_deinit) struct text name = TEXT_INIT;

    if (tensor_is_base(f->types.view, f->offsets, type))
        return KIND_TENSOR;
    if (type_add_name(f->types.view, f->offsets, type, &name) < 0 || !name.data)
        return KIND_OTHER;
    return !strcmp(name.data, "torch.nn.modules.module.Module")    ? KIND_MODULE
           : !strcmp(name.data, "torch.optim.optimizer.Optimizer") ? KIND_OPTIMIZER
                                                                   : KIND_OTHER;
}

struct bases {
    struct finding *finding;
    enum kind kind; /* so far */
};

/* Bases are those of many types: each is read once. */
static int visit_base(void *arg, uint64_t type)
{
    struct bases *bases = arg;
    struct finding *f = bases->finding;
    uint32_t known = addresses_find(&f->bases, type);
    enum kind kind = known == ADDRESSES_NONE ? read_base(f, type) : (enum kind)known;

    if (known == ADDRESSES_NONE && type)
        (void)addresses_set(&f->bases, type, kind);
    if (kind == KIND_TENSOR || bases->kind == KIND_OTHER)
        bases->kind = kind;
    return 0;
}

static enum kind classify(struct finding *f, uint64_t type)
{
    struct bases bases = {f, KIND_OTHER};
    uint64_t mro, n;

    view_reset(f->types.view);
    if (!object_field(f->types.view, type, f->offsets->type_mro, &mro) || !mro ||
        tuple_size(f->types.view, f->offsets, mro, &n) < 0 || n > MRO_MAX ||
        tuple_iterate(f->types.view, f->offsets, mro, visit_base, &bases, NULL) < 0)
        return KIND_OTHER;
    return bases.kind;
}

static enum kind kind_of(struct finding *f, uint32_t type)
{
    if (ARRAY_GROW(f->kinds, f->kinds_alloc, type + 1) < 0)
        return KIND_OTHER;
    if (f->kinds[type] == KIND_UNKNOWN)
        f->kinds[type] = (uint8_t)classify(f, f->types.items[type].addr);
    return f->kinds[type];
}

/* The kind of an object that something refers to, by its type, of those that were found. */
static enum kind kind_of_object(struct finding *f, uint64_t object)
{
    uint64_t type;

    if (object & 7 || !object_type(f->view, f->offsets, object, &type))
        return KIND_OTHER;
    for (size_t i = 0; i < f->types.n && i < f->kinds_alloc; i++)
        if (f->types.items[i].addr == type)
            return f->kinds[i] == KIND_UNKNOWN ? KIND_OTHER : f->kinds[i];
    return KIND_OTHER;
}

static int take(struct finding *f, uint64_t object, enum kind kind)
{
    struct torch_models *models = f->models;

    if (f->nnodes + models->ntensors + f->noptimizers >= MODELS_OBJECTS_MAX) {
        models->cut = true;
        return 1;
    }
    switch (kind) {
    case KIND_MODULE:
        if (ARRAY_GROW(f->nodes, f->nodes_alloc, f->nnodes + 1) < 0)
            return -ENOMEM;
        f->nodes[f->nnodes++] = (struct node){.object = object};
        break;
    case KIND_TENSOR:
        if (ARRAY_GROW(models->tensors, models->tensors_alloc, models->ntensors + 1) < 0)
            return -ENOMEM;
        models->tensors[models->ntensors++] = object;
        break;
    case KIND_OPTIMIZER:
        if (ARRAY_GROW(f->optimizers, f->optimizers_alloc, f->noptimizers + 1) < 0)
            return -ENOMEM;
        f->optimizers[f->noptimizers++] = object;
        break;
    default: break;
    }
    return 0;
}

static int take_pool(struct finding *f, const struct pool *pool, uint64_t addr)
{
    int r = 0;

    for (uint32_t at = pool_next(pool, POOL_HEADER); r == 0 && at < pool->end;
         at = pool_next(pool, at + pool->block)) {
        struct block_object object;
        if (block_object(&f->types, pool->data + at, pool->block, &object))
            r = take(f, addr + at + object.offset, kind_of(f, object.type));
    }
    return r;
}

static int take_pools(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    struct finding *f = arg;
    uint32_t step = pool_size(f->offsets->version);
    uint64_t at = (addr + step - 1) & ~(uint64_t)(step - 1);
    struct pool pool;
    int r = 0;

    for (; r == 0 && at + step <= addr + size; at += step)
        if (pool_parse(data + (at - addr), step, at, &pool))
            r = take_pool(f, &pool, at);
    return r;
}

/* Whether modules, tensors or optimizers may be in a pool: the collector knows them, and they have
 * a dict, or are larger. */
static bool may_have_them(const uint8_t *header, uint32_t size, uint64_t addr)
{
    return pool_begins(header, size, addr) && pool_block(header) >= SMALLEST;
}

static int find_objects(struct finding *f)
{
    struct scan scan = {
        .target = f->target,
        .unwanted = f->models->unwanted,
        .unwanted_arg = f->models->unwanted_arg,
        .begins = may_have_them,
        .step = pool_size(f->offsets->version),
    };

    int r = scan_run(&scan, take_pools, f);
    f->models->cut |= scan.cut;
    scan_deinit(&scan);
    return r < 0 ? r : 0;
}

/* ---- reading them ---- */

static char *name_of(struct finding *f, uint64_t key)
{
    struct text name = TEXT_INIT;

    if (str_decode(f->view, f->offsets, key, MODELS_NAME_MAX, &name) < 0 || name.error) {
        text_deinit(&name);
        return NULL;
    }
    return name.data ? name.data : strdup("");
}

static int add_child(void *arg, uint64_t key, uint64_t value)
{
    struct finding *f = arg;

    if (kind_of_object(f, value) != KIND_MODULE)
        return 0;
    char *name = name_of(f, key);
    if (!name)
        return 0;
    if (ARRAY_GROW(f->children, f->children_alloc, f->nchildren + 1) < 0) {
        free(name);
        return f->error = -ENOMEM;
    }
    f->children[f->nchildren++] = (struct child){name, value};
    return 0;
}

static int add_held(struct finding *f, uint64_t key, uint64_t value, enum torch_holder as,
                    uint32_t of)
{
    if (kind_of_object(f, value) != KIND_TENSOR)
        return 0;
    char *name = name_of(f, key);
    if (!name)
        return 0;
    if (ARRAY_GROW(f->held, f->held_alloc, f->nheld + 1) < 0) {
        free(name);
        return f->error = -ENOMEM;
    }
    f->held[f->nheld++] = (struct torch_held){value, as, of, name};
    return 0;
}

static int add_parameter(void *arg, uint64_t key, uint64_t value)
{
    return add_held(arg, key, value, HELD_AS_PARAMETER, 0);
}

static int add_buffer(void *arg, uint64_t key, uint64_t value)
{
    return add_held(arg, key, value, HELD_AS_BUFFER, 0);
}

static char *class_of(struct finding *f, uint64_t object)
{
    struct text name = TEXT_INIT;

    if (value_type_name(f->view, f->offsets, object, &name) < 0 || !name.data) {
        text_deinit(&name);
        return NULL;
    }
    const char *dot = strrchr(name.data, '.');
    char *class = strdup(dot ? dot + 1 : name.data);
    text_deinit(&name);
    return class;
}

static int read_dict(struct finding *f, uint64_t object, const char *name, entry_visit *visit)
{
    uint64_t dict;
    int r = instance_attribute(f->view, f->offsets, object, name, &dict);

    if (r == 0)
        r = dict_iterate(f->view, f->offsets, dict, visit, f, NULL);
    return f->error ? f->error : r;
}

static void drop_from(struct finding *f, size_t nchildren, size_t nheld)
{
    while (f->nchildren > nchildren)
        free(f->children[--f->nchildren].name);
    while (f->nheld > nheld)
        free(f->held[--f->nheld].name);
}

/* What a module has. 1: it is none, but memory that looks like one; or it can't be read. */
static int read_node(struct finding *f, struct node *node)
{
    size_t nchildren = f->nchildren, nheld = f->nheld;
    int r = -EAGAIN;

    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        view_reset(f->view);
        drop_from(f, nchildren, nheld);
        free(node->class);
        node->class = class_of(f, node->object);
        r = read_dict(f, node->object, "_modules", add_child);
        if (r == 0)
            r = read_dict(f, node->object, "_parameters", add_parameter);
        if (r == 0)
            r = read_dict(f, node->object, "_buffers", add_buffer);
        if (r == 0)
            r = view_verify(f->view);
    }
    if (r < 0) {
        drop_from(f, nchildren, nheld);
        free(steal_pointer(node->class));
        f->models->torn |= r == -EAGAIN;
        return r == -ENOMEM || r == -ESRCH || r == -EPERM ? r : 1;
    }
    node->children = nchildren;
    node->nchildren = f->nchildren - nchildren;
    node->held = nheld;
    node->nheld = f->nheld - nheld;
    return 0;
}

static int by_object(const void *a, const void *b)
{
    const struct node *x = a, *y = b;

    return x->object < y->object ? -1 : x->object > y->object;
}

static struct node *find_node(const struct finding *f, uint64_t object)
{
    const struct node key = {.object = object};

    return f->nnodes ? bsearch(&key, f->nodes, f->nnodes, sizeof key, by_object) : NULL;
}

static int read_nodes(struct finding *f)
{
    size_t n = 0;
    int r = 0;

    array_sort(f->nodes, f->nnodes, sizeof *f->nodes, by_object);
    for (size_t i = 0; r >= 0 && i < f->nnodes; i++) {
        r = f->models->unwanted ? f->models->unwanted(f->models->unwanted_arg) : 0;
        if (r == 0)
            r = read_node(f, &f->nodes[i]);
        if (r == 0)
            f->nodes[n++] = f->nodes[i];
    }
    f->nnodes = n;
    for (size_t i = 0; i < f->nchildren; i++) {
        struct node *node = find_node(f, f->children[i].object);
        if (node)
            node->is_child = true;
    }
    return r < 0 ? r : 0;
}

/* ---- trees ---- */

struct tour {
    struct finding *finding;
    char path[MODELS_NAME_MAX];
    uint32_t model;
    size_t visited;
    bool emit;
};

static int emit(struct tour *tour, struct node *node, size_t length, unsigned depth)
{
    struct finding *f = tour->finding;
    struct torch_models *models = f->models;

    if (ARRAY_GROW(models->modules, models->modules_alloc, models->nmodules + 1) < 0 ||
        ARRAY_GROW(models->held, models->held_alloc, models->nheld + node->nheld) < 0)
        return -ENOMEM;
    uint32_t index = (uint32_t)models->nmodules;
    struct torch_module *module = &models->modules[models->nmodules++];
    *module = (struct torch_module){
        .object = node->object,
        .class = strdup(node->class ? node->class : "?"),
        .path = strndup(tour->path, length),
        .model = depth ? tour->model : index,
        .depth = depth,
    };
    tour->model = module->model;
    for (size_t i = 0; i < node->nheld; i++) {
        struct torch_held held = f->held[node->held + i];
        held.of = index;
        held.name = strdup(held.name);
        models->held[models->nheld++] = held;
        if (!held.name)
            return -ENOMEM;
    }
    return module->class && module->path ? 0 : -ENOMEM;
}

/* Goes through a model in the order of named_modules(), each module once. */
static int walk_tree(struct tour *tour, struct node *root)
{
    struct finding *f = tour->finding;
    struct {
        struct node *node;
        size_t next, length; /* its next child; bytes of its path */
    } stack[DEPTH_MAX];
    unsigned depth = 1;

    stack[0].node = root;
    stack[0].next = stack[0].length = 0;
    root->seen = true;
    int r = tour->emit ? emit(tour, root, 0, 0) : 0;
    tour->visited = 1;
    while (r == 0 && depth) {
        __auto_type top = &stack[depth - 1];
        if (top->next == top->node->nchildren) {
            depth--;
            continue;
        }
        const struct child *child = &f->children[top->node->children + top->next++];
        struct node *node = find_node(f, child->object);
        int size = snprintf(tour->path + top->length, sizeof tour->path - top->length, "%s%s",
                            top->length ? "." : "", child->name);
        size_t length = top->length + (size_t)size;
        if (!node || node->seen || depth == DEPTH_MAX || length >= sizeof tour->path)
            continue;
        node->seen = true;
        tour->visited++;
        r = tour->emit ? emit(tour, node, length, depth) : 0;
        stack[depth].node = node;
        stack[depth].next = 0;
        stack[depth++].length = length;
    }
    return r;
}

static void forget_seen(struct finding *f)
{
    for (size_t i = 0; i < f->nnodes; i++)
        f->nodes[i].seen = false;
}

static int by_size(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;

    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return by_object(x, y);
}

static int make_trees(struct finding *f)
{
    _cleanup_free_ struct tour *tour = calloc(1, sizeof *tour);
    _cleanup_free_ struct node **roots = calloc(f->nnodes + 1, sizeof *roots);
    size_t n = 0;
    int r = 0;

    if (!tour || !roots)
        return -ENOMEM;
    tour->finding = f;
    for (size_t i = 0; i < f->nnodes; i++)
        if (!f->nodes[i].is_child) {
            roots[n++] = &f->nodes[i];
            forget_seen(f);
            walk_tree(tour, &f->nodes[i]);
            f->nodes[i].size = tour->visited;
        }
    array_sort(roots, n, sizeof *roots, by_size);
    tour->emit = true;
    for (size_t i = 0; r == 0 && i < n; i++) {
        forget_seen(f);
        r = walk_tree(tour, roots[i]);
    }
    return r;
}

/* ---- optimizers ---- */

struct optimizing {
    struct finding *finding;
    uint32_t index;
    struct torch_param_group group;
    struct torch_optimizer *optimizer;
};

static double number(struct finding *f, uint64_t object)
{
    struct object_class class;
    struct tensor_values values;
    struct tensor tensor;
    int64_t whole;
    double value = NAN;

    if (kind_of_object(f, object) == KIND_TENSOR)
        return tensor_read_object(f->view, f->offsets, object, &tensor) == 0 && tensor.numel == 1 &&
                       tensor_values_read(&f->target->memory, &tensor, NULL, NULL, &values) == 0
                   ? values.min
                   : (double)NAN;
    if (object_classify(f->view, f->offsets, object, &class) < 0)
        return (double)NAN;
    if (class.kind == OBJECT_FLOAT && f->offsets->float_value >= 0) {
        const uint8_t *p = view_read(f->view, object + (uint64_t)f->offsets->float_value, 8);
        if (p)
            memcpy(&value, p, sizeof value);
        return value;
    }
    return class.kind == OBJECT_INT && int_to_i64(f->view, f->offsets, object, &whole) == 0
               ? (double)whole
               : (double)NAN;
}

static int visit_group(void *arg, uint64_t group)
{
    struct optimizing *o = arg;
    struct finding *f = o->finding;
    struct torch_models *models = f->models;
    uint64_t value;

    o->group.lr = o->group.weight_decay = (double)NAN;
    o->group.parameters = 0;
    if (dict_lookup_str(f->view, f->offsets, group, "lr", &value) == 0)
        o->group.lr = number(f, value);
    if (dict_lookup_str(f->view, f->offsets, group, "weight_decay", &value) == 0)
        o->group.weight_decay = number(f, value);
    if (dict_lookup_str(f->view, f->offsets, group, "params", &value) == 0)
        (void)object_size(f->view, f->offsets, value, &o->group.parameters);
    if (ARRAY_GROW(models->groups, models->groups_alloc, models->ngroups + 1) < 0)
        return f->error = -ENOMEM;
    models->groups[models->ngroups++] = o->group;
    o->group.number++;
    return 0;
}

static int visit_state_entry(void *arg, uint64_t key, uint64_t value)
{
    struct optimizing *o = arg;
    struct finding *f = o->finding;

    if (str_equals(f->view, f->offsets, key, "step")) {
        double step = number(f, value);
        if (!(o->optimizer->step >= step))
            o->optimizer->step = step;
    }
    return add_held(f, key, value, HELD_BY_OPTIMIZER, o->index);
}

static int visit_state(void *arg, uint64_t parameter, uint64_t state)
{
    struct optimizing *o = arg;
    struct object_class class;

    if (object_classify(o->finding->view, o->finding->offsets, state, &class) < 0 ||
        class.kind != OBJECT_DICT)
        return 0;
    int r = dict_iterate(o->finding->view, o->finding->offsets, state, visit_state_entry, o, NULL);
    return r == -ENOMEM ? r : 0;
}

static int read_optimizer(struct finding *f, uint64_t object)
{
    struct torch_models *models = f->models;
    size_t ngroups = models->ngroups, nheld = f->nheld;
    uint64_t value;
    int r = -EAGAIN;

    if (ARRAY_GROW(models->optimizers, models->optimizers_alloc, models->noptimizers + 1) < 0)
        return -ENOMEM;
    struct torch_optimizer *optimizer = &models->optimizers[models->noptimizers];
    *optimizer = (struct torch_optimizer){.object = object};
    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        struct optimizing o = {f, (uint32_t)models->noptimizers, {0}, optimizer};
        o.group.optimizer = o.index;
        view_reset(f->view);
        models->ngroups = ngroups;
        drop_from(f, f->nchildren, nheld);
        optimizer->step = (double)NAN;
        free(optimizer->class);
        optimizer->class = class_of(f, object);
        r = instance_attribute(f->view, f->offsets, object, "param_groups", &value);
        if (r == 0)
            r = list_iterate(f->view, f->offsets, value, visit_group, &o, NULL);
        if (r == 0)
            r = instance_attribute(f->view, f->offsets, object, "state", &value);
        if (r == 0)
            r = dict_iterate(f->view, f->offsets, value, visit_state, &o, NULL);
        if (r == 0)
            r = view_verify(f->view);
    }
    if (r < 0 || !optimizer->class) {
        models->ngroups = ngroups;
        drop_from(f, f->nchildren, nheld);
        free(steal_pointer(optimizer->class));
        models->torn |= r == -EAGAIN;
        return r == -ENOMEM || r == -ESRCH || r == -EPERM ? r : 0;
    }
    models->noptimizers++;
    return 0;
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int read_optimizers(struct finding *f)
{
    struct torch_models *models = f->models;
    size_t first = f->nheld;
    int r = 0;

    array_sort(f->optimizers, f->noptimizers, sizeof *f->optimizers, by_address);
    for (size_t i = 0; r == 0 && i < f->noptimizers; i++)
        r = read_optimizer(f, f->optimizers[i]);
    if (r == 0)
        r = ARRAY_GROW(models->held, models->held_alloc, models->nheld + f->nheld - first);
    for (size_t i = first; r == 0 && i < f->nheld; i++) {
        models->held[models->nheld++] = f->held[i];
        f->held[i].name = NULL;
    }
    return r;
}

/* ---- flags ---- */

/* torch::autograd::AutogradMeta has, some words behind .grad, three flags of a byte each, of which
 * the first is requires_grad. Where they are differs by version. They are the only word there that
 * is 0 or 1 in each of its first three bytes for all parameters and not 0 for all; but for a count
 * of an empty table, before which stands its own address. */
#define FLAGS_FIRST 6
#define FLAGS_WORDS 24

struct torch_flag {
    uint64_t autograd;
    bool is_set;
};

struct flags {
    uint32_t possible, used; /* a bit for each word */
};

static void look_for_flags(const uint8_t *p, uint64_t at, struct flags *flags)
{
    for (unsigned i = FLAGS_FIRST; i < FLAGS_WORDS; i++) {
        const uint8_t *word = p + 8 * i;
        uint64_t before = load64(word - 8);
        bool own = before >= at && before < at + 8ull * FLAGS_WORDS;
        if (word[0] > 1 || word[1] > 1 || word[2] > 1 || own)
            flags->possible &= ~(1u << i);
        else if (word[0])
            flags->used |= 1u << i;
    }
}

static int read_flags(struct finding *f)
{
    struct torch_models *models = f->models;
    struct flags flags = {.possible = UINT32_MAX};
    struct tensor tensor;

    for (size_t i = 0; i < models->nheld; i++) {
        if (models->held[i].as != HELD_AS_PARAMETER ||
            torch_tensor_read(f->target, f->view, models->held[i].object, &tensor, NULL) < 0 ||
            !tensor.knows_autograd || !tensor.autograd)
            continue;
        const uint8_t *p = view_read(f->view, tensor.autograd, 8 * FLAGS_WORDS);
        if (!p)
            continue;
        look_for_flags(p, tensor.autograd, &flags);
        if (ARRAY_GROW(models->flags, models->flags_alloc, models->nflags + 1) < 0)
            return -ENOMEM;
        models->flags[models->nflags++] = (struct torch_flag){.autograd = tensor.autograd};
    }
    uint32_t found = flags.possible & flags.used;
    if (!found || found & (found - 1)) { /* none, or more than one */
        models->nflags = 0;
        return 0;
    }
    unsigned word = (unsigned)__builtin_ctz(found);
    for (size_t i = 0; i < models->nflags; i++) {
        uint64_t bits = 0;
        view_reset(f->view);
        (void)view_read64(f->view, models->flags[i].autograd + 8 * word, &bits);
        models->flags[i].is_set = bits & 1;
    }
    array_sort(models->flags, models->nflags, sizeof *models->flags, by_address);
    return 0;
}

int torch_requires_grad(const struct torch_models *models, const struct tensor *tensor)
{
    if (tensor->knows_autograd && !tensor->autograd)
        return 0;
    const struct torch_flag *flag = models->nflags
                                        ? bsearch(&tensor->autograd, models->flags, models->nflags,
                                                  sizeof *models->flags, by_address)
                                        : NULL;
    return flag ? flag->is_set : -1;
}

/* ---- the whole ---- */

bool torch_is_loaded(const struct target *target)
{
    struct maps maps;
    bool has = false;

    int r = target->core ? core_maps(target->core, &maps) : maps_read(target->pid, &maps);
    if (r < 0)
        return false;
    for (size_t i = 0; i < maps.n && !has; i++)
        has = strstr(maps.items[i].path, "/libtorch_python.so") != NULL;
    maps_deinit(&maps);
    return has;
}

static void finding_deinit(struct finding *f)
{
    drop_from(f, 0, 0);
    for (size_t i = 0; i < f->nnodes; i++)
        free(f->nodes[i].class);
    free(f->nodes);
    free(f->children);
    free(f->held);
    free(f->optimizers);
    free(f->kinds);
    addresses_deinit(&f->bases);
    view_free(f->view);
    block_types_deinit(&f->types);
}

int torch_models_read(struct target *target, struct torch_models *models, struct text *why)
{
    _cleanup_(finding_deinit) struct finding f = {
        .models = models,
        .target = target,
        .offsets = &target->runtime.offsets,
    };

    if (!torch_is_loaded(target))
        return -ENOENT;
    if (!target->runtime.supported || target->runtime.free_threaded) {
        text_puts(why, target->runtime.supported ? "a free-threaded interpreter allocates by "
                                                   "mimalloc, which isn't read"
                                                 : target->runtime.why);
        return -EOPNOTSUPP;
    }
    int r = block_types_init(&f.types, target);
    if (r == 0)
        r = view_new(&target->memory, &f.view);
    if (r == 0)
        r = find_objects(&f);
    if (r == 0)
        r = read_nodes(&f);
    if (r == 0)
        r = make_trees(&f);
    if (r == 0)
        r = read_optimizers(&f);
    if (r == 0)
        r = read_flags(&f);
    array_sort(models->tensors, models->ntensors, sizeof *models->tensors, by_address);
    return r;
}

void torch_models_deinit(struct torch_models *models)
{
    for (size_t i = 0; i < models->nmodules; i++) {
        free(models->modules[i].class);
        free(models->modules[i].path);
    }
    for (size_t i = 0; i < models->nheld; i++)
        free(models->held[i].name);
    for (size_t i = 0; i < models->noptimizers; i++)
        free(models->optimizers[i].class);
    free(models->modules);
    free(models->held);
    free(models->optimizers);
    free(models->groups);
    free(models->tensors);
    free(models->flags);
}

int torch_tensor_read(struct target *target, struct view *view, uint64_t object, struct tensor *out,
                      struct tensor *gradient)
{
    const struct offsets *offsets = &target->runtime.offsets;
    int r = -EAGAIN;

    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        view_reset(view);
        r = tensor_read_object(view, offsets, object, out);
        if (r == 0 && gradient && tensor_read_gradient(view, out, gradient) < 0)
            *gradient = (struct tensor){0};
        if (r == 0)
            r = view_verify(view);
    }
    return r == -EAGAIN ? -EINVAL : r;
}

void torch_shard_read(struct target *target, struct view *view, const struct tensor *of,
                      struct tensor *out)
{
    const struct offsets *offsets = &target->runtime.offsets;
    struct tensor shard;
    uint64_t object;
    int r = of->data || !of->object ? -ENOENT : -EAGAIN;

    *out = *of;
    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        view_reset(view);
        r = instance_attribute(view, offsets, of->object, "_local_tensor", &object);
        if (r == 0)
            r = tensor_read(view, offsets, object, &shard);
        if (r == 0)
            r = view_verify(view);
    }
    if (r == 0)
        *out = shard;
}

static void add_numbered(const char *name, unsigned number, struct text *out)
{
    text_puts(out, name);
    if (number > 1)
        text_printf(out, "#%u", number);
}

void torch_model_name(const struct torch_models *models, uint32_t model, struct text *out)
{
    const char *class = models->modules[model].class;
    unsigned number = 1;

    for (uint32_t i = 0; i < model; i++)
        number += models->modules[i].model == i && !strcmp(models->modules[i].class, class);
    add_numbered(class, number, out);
}

void torch_optimizer_name(const struct torch_models *models, uint32_t optimizer, struct text *out)
{
    const char *class = models->optimizers[optimizer].class;
    unsigned number = 1;

    for (uint32_t i = 0; i < optimizer; i++)
        number += !strcmp(models->optimizers[i].class, class);
    add_numbered(class, number, out);
}
