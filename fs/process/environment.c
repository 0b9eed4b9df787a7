#include "fs/process/environment.h"

#include "fs/remote/frames/locals.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/imports.h"

#include <errno.h>
#include <string.h>

#define NAME_BYTES_MAX 64    /* of a variable that is of interest */
#define VALUE_BYTES_MAX 1024 /* a longer one isn't taken */

struct reading {
    const struct offsets *offsets;
    struct view *view;
    struct text *out;
    size_t before; /* bytes that were in it */
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

static int visit_variable(void *arg, uint64_t key, uint64_t value)
{
    struct reading *r = arg;
    char name[NAME_BYTES_MAX + 2];
    size_t size;

    const char *bytes = read_bytes(r, key, NAME_BYTES_MAX, &size);
    if (!bytes || memchr(bytes, 0, size))
        return 0;
    memcpy(name, bytes, size);
    memcpy(name + size, "=", 2);
    if (!is_wanted(name))
        return 0;
    bytes = read_bytes(r, value, VALUE_BYTES_MAX, &size);
    if (!bytes || memchr(bytes, 0, size) || r->out->size + size > ENVIRONMENT_BYTES_MAX)
        return 0;
    text_puts(r->out, name);
    text_add(r->out, bytes, size);
    text_add(r->out, "", 1);
    return 0;
}

static int visit_global(void *arg, const struct local *global)
{
    struct reading *r = arg;
    uint64_t dict;

    if (!global->name || !str_equals(r->view, r->offsets, global->name, "environ"))
        return 0;
    int e = instance_attribute(r->view, r->offsets, global->reference, "_data", &dict);
    if (e == 0)
        e = dict_iterate(r->view, r->offsets, dict, visit_variable, r, NULL);
    r->found = e == 0 || e == -E2BIG;
    return 1;
}

static int read_os(void *arg, struct view *view, const struct import *module)
{
    struct reading *r = arg;
    uint64_t left;

    r->view = view;
    globals_iterate(view, r->offsets, module->object, visit_global, r, &left);
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
    };

    int r = imports_read_one(target, is, "os", &reader, &reading);
    return r < 0 ? r : reading.found ? 0 : -ENOENT;
}
