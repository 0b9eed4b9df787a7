#include "fs/remote/frames/locals.h"

#include <errno.h>
#include <string.h>

/* Kinds of a name, from 3.11 on (co_localspluskinds) */
#define FAST_CELL 0x40
#define FAST_FREE 0x80

struct locals_walk {
    struct view *view;
    const struct offsets *offsets;
    local_visit *visit;
    void *arg;
};

static bool read_i32(struct view *view, uint64_t object, int32_t offset, int32_t *out)
{
    const uint8_t *p = offset < 0 ? NULL : view_read(view, object + (uint32_t)offset, 4);
    if (p)
        *out = (int32_t)load32(p);
    return p;
}

/* A slot that may hold a cell: before its cell is made an argument's holds the value itself. */
static int visit_slot(const struct locals_walk *walk, uint64_t name, uint64_t reference,
                      bool may_be_cell)
{
    struct object_class class;
    struct local local = {.name = name, .reference = reference};

    if (may_be_cell) {
        uint64_t object = stackref_object(walk->offsets, reference);
        if (object && object_classify(walk->view, walk->offsets, object, &class) == 0 &&
            class.kind == OBJECT_CELL &&
            !object_field(walk->view, object, walk->offsets->cell_ref, &local.reference))
            return -EFAULT;
    }
    if (!(local.reference & ~3ull) && (local.reference & 3) != 3) /* NULL, also as a reference */
        return 0;
    return walk->visit(walk->arg, &local);
}

/* Queues what n slots point to: most costs of reading values are calls. */
static void prefetch_slots(const struct locals_walk *walk, const uint8_t *slots, uint32_t n)
{
    uint64_t objects[64];

    for (uint32_t i = 0; i < n;) {
        size_t k = 0;
        for (; k < sizeof objects / sizeof *objects && i < n; i++)
            objects[k++] = stackref_object(walk->offsets, load64(slots + 8 * i));
        objects_prefetch(walk->view, walk->offsets, objects, k);
    }
}

/* Names in a tuple, n of them, and as many slots. kinds (3.11 on) is NULL for the older ones,
 * where each tuple has slots of one kind. */
static int iterate_slots(const struct locals_walk *walk, uint64_t names, uint64_t slots_addr,
                         uint32_t n, const uint8_t *kinds, bool cells)
{
    uint64_t name;

    if (!n)
        return 0;
    const uint8_t *slots = view_read(walk->view, slots_addr, 8 * n);
    if (!slots)
        return -EFAULT;
    prefetch_slots(walk, slots, n);
    for (uint32_t i = 0; i < n; i++) {
        bool may_be_cell = kinds ? kinds[i] & (FAST_CELL | FAST_FREE) : cells;
        if (tuple_item(walk->view, walk->offsets, names, i, &name) < 0)
            return -EFAULT;
        int r = visit_slot(walk, name, load64(slots + 8 * i), may_be_cell);
        if (r)
            return r;
    }
    return 0;
}

/* 3.11 on: all kinds of names in one table. */
static int iterate_localsplus(const struct locals_walk *walk, uint64_t code, uint64_t slots)
{
    const struct offsets *o = walk->offsets;
    int32_t n;
    uint64_t names, kinds;

    if (!read_i32(walk->view, code, o->code_nlocalsplus, &n) || n < 0 ||
        !object_field(walk->view, code, o->code_localsplusnames, &names) ||
        !object_field(walk->view, code, o->code_localspluskinds, &kinds) || o->bytes_data < 0)
        return -EFAULT;
    uint32_t limit = n < LOCALS_MAX ? (uint32_t)n : LOCALS_MAX;
    const uint8_t *kind = limit ? view_read(walk->view, kinds + (uint32_t)o->bytes_data, limit)
                                : NULL;
    if (limit && !kind)
        return -EFAULT;
    int r = iterate_slots(walk, names, slots, limit, kind, false);
    return r ? r : limit < (uint32_t)n ? -E2BIG : 0;
}

/* Up to 3.10: local variables, cells, free variables, one behind the other. */
static int iterate_old(const struct locals_walk *walk, uint64_t code, uint64_t slots)
{
    const int32_t fields[] = {walk->offsets->code_varnames, walk->offsets->code_cellvars,
                              walk->offsets->code_freevars};
    uint64_t names, n, at = 0;

    for (int i = 0; i < 3; i++) {
        if (!object_field(walk->view, code, fields[i], &names) ||
            tuple_size(walk->view, walk->offsets, names, &n) < 0)
            return -EFAULT;
        uint32_t limit = n < LOCALS_MAX ? (uint32_t)n : LOCALS_MAX;
        int r = iterate_slots(walk, names, slots + 8 * at, limit, NULL, i > 0);
        if (r)
            return r;
        if (limit < n)
            return -E2BIG;
        at += n;
    }
    return 0;
}

/* What the import system puts into a module (Lib/importlib/_bootstrap.py _init_module_attrs) and
 * the interpreter beside it: the same in each module, and long. */
static bool is_import_name(const struct locals_walk *walk, uint64_t name)
{
    static const char *const names[] = {
        "__name__", "__doc__",    "__package__",  "__loader__",      "__spec__",
        "__file__", "__cached__", "__builtins__", "__annotations__",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_equals(walk->view, walk->offsets, name, names[i]))
            return true;
    return false;
}

#define BATCH 64

struct batch {
    const struct locals_walk *walk;
    uint64_t names[BATCH], values[BATCH];
    unsigned n, left;
    uint64_t seen; /* entries, those that aren't shown too */
};

static int visit_batch(struct batch *batch)
{
    objects_prefetch(batch->walk->view, batch->walk->offsets, batch->names, batch->n);
    objects_prefetch(batch->walk->view, batch->walk->offsets, batch->values, batch->n);
    for (unsigned i = 0; i < batch->n; i++) {
        struct local local = {.name = batch->names[i], .reference = batch->values[i]};
        batch->seen++;
        if (is_import_name(batch->walk, local.name))
            continue;
        int r = batch->walk->visit(batch->walk->arg, &local);
        if (r)
            return r;
    }
    batch->n = 0;
    return 0;
}

static int collect_entry(void *arg, uint64_t key, uint64_t value)
{
    struct batch *batch = arg;

    if (!batch->left--)
        return -E2BIG;
    batch->names[batch->n] = key;
    batch->values[batch->n++] = value;
    return batch->n == BATCH ? visit_batch(batch) : 0;
}

/* f_locals of a module or class: nearly always a dict; exec() takes any mapping. */
static int iterate_mapping(const struct locals_walk *walk, uint64_t frame)
{
    struct object_class class;
    uint64_t mapping;

    if (!object_field(walk->view, frame, walk->offsets->frame_locals, &mapping))
        return -EFAULT;
    if (!mapping)
        return 0;
    if (object_classify(walk->view, walk->offsets, mapping, &class) < 0)
        return -EFAULT;
    if (class.kind != OBJECT_DICT) {
        struct local local = {.text = "locals()", .reference = mapping};
        return walk->visit(walk->arg, &local);
    }
    struct batch batch = {.walk = walk, .left = LOCALS_MAX};
    int r = dict_iterate(walk->view, walk->offsets, mapping, collect_entry, &batch, NULL);
    return r == 0 ? visit_batch(&batch) : r;
}

int locals_iterate(struct view *view, const struct offsets *offsets, uint64_t frame, uint64_t code,
                   local_visit *visit, void *arg)
{
    struct locals_walk walk = {view, offsets, visit, arg};
    int32_t flags;

    if (offsets->frame_localsplus < 0 || !read_i32(view, code, offsets->code_flags, &flags))
        return -EFAULT;
    if (!(flags & CO_OPTIMIZED)) {
        int r = iterate_mapping(&walk, frame);
        if (r)
            return r;
    }
    uint64_t slots = frame + (uint32_t)offsets->frame_localsplus;
    return offsets->code_nlocalsplus >= 0 ? iterate_localsplus(&walk, code, slots)
                                          : iterate_old(&walk, code, slots);
}

struct attributes {
    local_visit *visit;
    void *arg;
};

static int visit_attribute(void *arg, const struct own_attribute *attribute)
{
    const struct attributes *attributes = arg;
    const struct local local = {
        .name = attribute->key,
        .text = attribute->key ? NULL : attribute->name,
        .reference = attribute->value,
    };

    return attributes->visit(attributes->arg, &local);
}

int globals_iterate(struct view *view, const struct offsets *offsets, uint64_t module,
                    local_visit *visit, void *arg, uint64_t *left)
{
    struct locals_walk walk = {view, offsets, visit, arg};
    struct batch batch = {.walk = &walk, .left = GLOBALS_MAX};
    struct attributes attributes = {visit, arg};
    struct object_class class;
    uint64_t dict, used = 0;

    *left = 0;
    if (object_classify(view, offsets, module, &class) < 0)
        return -EFAULT;
    if (class.kind != OBJECT_MODULE)
        return instance_iterate(view, offsets, module, visit_attribute, &attributes);
    if (!object_field(view, module, offsets->module_dict, &dict))
        return -EFAULT;
    if (!dict)
        return 0;
    int r = dict_iterate(view, offsets, dict, collect_entry, &batch, &used);
    if (r == 0)
        r = visit_batch(&batch);
    *left = used > batch.seen ? used - batch.seen : 0;
    return r;
}

int global_lookup(struct view *view, const struct offsets *offsets, uint64_t module,
                  const char *name, uint64_t *at, uint64_t *value)
{
    struct object_class class;
    uint64_t dict;

    if (object_classify(view, offsets, module, &class) < 0)
        return -EFAULT;
    if (class.kind != OBJECT_MODULE)
        return instance_attribute(view, offsets, module, name, value);
    if (!object_field(view, module, offsets->module_dict, &dict))
        return -EFAULT;
    return dict ? dict_lookup_again(view, offsets, dict, name, at, value) : -ENOENT;
}
