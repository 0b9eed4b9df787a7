#include "fs/process/environment.h"

#include "fs/remote/frames/locals.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/imports.h"

#include <errno.h>
#include <string.h>

#define NAME_BYTES_MAX 64    /* of a variable that is of interest */
#define VALUE_BYTES_MAX 1024 /* a longer one isn't taken */

#define BATCH 64 /* variables whose names are copied at once */

struct reading {
    const struct offsets *offsets;
    struct view *view;
    struct text *out;
    size_t before; /* bytes that were in it */
    uint64_t *at;  /* where in the module's dict `environ` was */
    uint64_t keys[BATCH], values[BATCH];
    size_t n;
    bool found;
};

static bool is_wanted(const char *name)
{
    static const char *const beginnings[] = {
        "RANK=",  "LOCAL_", "WORLD_SIZE=", "MASTER_",   "TORCHELASTIC_", "ROLE_NAME=",
        "SLURM_", "OMPI_",  "PMI",         "MPI_LOCAL", "RAY_JOB",       "PROBING_",
    };

    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
            return true;
    return false;
}

/* The bytes of a bytes object; NULL: it is none, it is longer than max, or it can't be read. */
static const char *read_bytes(struct reading *r, uint64_t object, size_t max, size_t *size)
{
    struct object_class class;
    uint64_t length;

    if (r->offsets->bytes_data < 0 || object_classify(r->view, r->offsets, object, &class) < 0 ||
        class.kind != OBJECT_BYTES ||
        !object_field(r->view, object, r->offsets->bytes_size, &length) || length > max)
        return NULL;
    *size = length;
    if (!length)
        return "";
    return (const char *)view_read(r->view, object + (uint32_t)r->offsets->bytes_data,
                                   (uint32_t)length);
}

static void add_variable(struct reading *r, uint64_t key, uint64_t value)
{
    char name[NAME_BYTES_MAX + 2];
    size_t size;

    const char *bytes = read_bytes(r, key, NAME_BYTES_MAX, &size);
    if (!bytes || memchr(bytes, 0, size))
        return;
    memcpy(name, bytes, size);
    memcpy(name + size, "=", 2);
    if (!is_wanted(name))
        return;
    bytes = read_bytes(r, value, VALUE_BYTES_MAX, &size);
    if (!bytes || memchr(bytes, 0, size) || r->out->size + size > ENVIRONMENT_BYTES_MAX)
        return;
    text_puts(r->out, name);
    text_add(r->out, bytes, size);
    text_add(r->out, "", 1);
}

static void add_batch(struct reading *r)
{
    objects_prefetch(r->view, r->offsets, r->keys, r->n);
    for (size_t i = 0; i < r->n; i++)
        add_variable(r, r->keys[i], r->values[i]);
    r->n = 0;
}

static int visit_variable(void *arg, uint64_t key, uint64_t value)
{
    struct reading *r = arg;

    r->keys[r->n] = key;
    r->values[r->n++] = value;
    if (r->n == BATCH)
        add_batch(r);
    return 0;
}

static int read_os(void *arg, struct view *view, const struct import *module)
{
    struct reading *r = arg;
    uint64_t environ, dict;

    r->view = view;
    r->n = 0;
    int e = global_lookup(view, r->offsets, module->object, "environ", r->at, &environ);
    if (e == 0)
        e = instance_attribute(view, r->offsets, environ, "_data", &dict);
    if (e == 0)
        e = dict_iterate(view, r->offsets, dict, visit_variable, r, NULL);
    add_batch(r);
    r->found = e == 0 || e == -E2BIG;
    return 0;
}

static void again(void *arg)
{
    struct reading *r = arg;

    text_truncate(r->out, r->before);
    r->found = false;
}

static bool is(const char *name, const char *wanted) { return !strcmp(name, wanted); }

int environment_read(struct target *target, struct text *out)
{
    static const struct import_reader reader = {.read = read_os, .again = again};
    struct reading reading = {
        .offsets = &target->runtime.offsets,
        .out = out,
        .before = out->size,
        .at = &target->names_at.environ,
    };

    int r = imports_read_one(target, is, "os", &reader, &reading);
    return r < 0 ? r : reading.found ? 0 : -ENOENT;
}
