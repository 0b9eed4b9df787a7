/* The table globals: what the modules of the main interpreter bind. The rows of a module are taken
 * down within a moment, and added when that was a good one. */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/remote/frames/locals.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/objects/values.h"
#include "schema/schema.h"

#include <errno.h>

#define BYTES_MAX (8u << 20) /* of all texts */
/* The deadline where neither a module nor a name is asked for. */
#define DEADLINE_NS 5000000000ull
#define NAME_CHARACTERS_MAX 200

/* A row, before it is one: where its texts are in `texts`, each ending with a NUL; NONE: NULL. */
struct found {
    const struct import *module;
    size_t name, type, value;
};

#define NONE SIZE_MAX

struct reading {
    const struct offsets *offsets;
    const struct use *use;
    struct rows *rows;
    struct view *view;
    const struct import *module;
    struct found *found;
    size_t n, alloc;
    struct text texts, scratch;
    size_t bytes; /* in rows */
    const struct stop *stop;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none of its own */
};

/* Moves the scratch text behind the others. */
static size_t take(struct reading *r)
{
    size_t at = r->texts.size;

    text_add(&r->texts, r->scratch.data, r->scratch.size);
    text_add(&r->texts, "", 1);
    text_clear(&r->scratch);
    return at;
}

static int add(struct reading *r, struct found found, uint64_t object)
{
    if (use_wants(r->use, GLOBALS_TYPE) &&
        value_type_name(r->view, r->offsets, object, &r->scratch) == 0)
        found.type = take(r);
    text_clear(&r->scratch);
    if (use_wants(r->use, GLOBALS_VALUE)) {
        value_add(r->view, r->offsets, object, &r->scratch);
        found.value = take(r);
    }
    if (ARRAY_GROW(r->found, r->alloc, r->n + 1) < 0)
        return -ENOMEM;
    found.module = r->module;
    r->found[r->n++] = found;
    return r->texts.error ? r->texts.error : r->scratch.error;
}

/* What was left out is a row as well, without a name. */
static int add_note(struct reading *r, const char *note)
{
    struct found found = {r->module, NONE, NONE, NONE};

    text_puts(&r->scratch, note);
    found.value = take(r);
    if (ARRAY_GROW(r->found, r->alloc, r->n + 1) < 0)
        return -ENOMEM;
    r->found[r->n++] = found;
    return 0;
}

static int add_global(void *arg, const struct local *global)
{
    struct reading *r = arg;
    const char *wanted = r->use->bounds[GLOBALS_NAME].equal;
    struct found found = {r->module, NONE, NONE, NONE};

    if (r->bytes + r->texts.size > BYTES_MAX)
        return 1;
    if (*wanted || use_wants(r->use, GLOBALS_NAME)) {
        if (global->text)
            text_add_escaped(&r->scratch, global->text, strlen(global->text));
        else if (str_decode(r->view, r->offsets, global->name, NAME_CHARACTERS_MAX, &r->scratch) <
                 0)
            value_add(r->view, r->offsets, global->name, &r->scratch);
        if (*wanted && (!r->scratch.size || strcmp(r->scratch.data, wanted))) {
            text_clear(&r->scratch);
            return r->scratch.error;
        }
        found.name = take(r);
    }
    return add(r, found, global->reference);
}

static int read_module(void *arg, struct view *view, const struct import *module)
{
    struct reading *r = arg;
    struct object_class class;
    uint64_t left;
    int e = 0;

    r->view = view;
    r->module = module;
    if (r->bytes + r->texts.size > BYTES_MAX)
        return 0;
    if (!*r->use->bounds[GLOBALS_NAME].equal &&
        object_classify(view, r->offsets, module->object, &class) == 0 &&
        class.kind != OBJECT_MODULE)
        e = add(r, (struct found){module, NONE, NONE, NONE}, module->object);
    if (e == 0)
        e = globals_iterate(view, r->offsets, module->object, add_global, r, &left);
    if (e == -E2BIG)
        return add_note(r, "[cut: the module binds more than 65536 names]");
    if (e == -EFAULT)
        return add_note(r, "[unreadable]");
    return e < 0 ? e : 0;
}

static void drop(void *arg)
{
    struct reading *r = arg;

    r->n = 0;
    text_clear(&r->texts);
    text_clear(&r->scratch);
}

static void set(struct reading *r, unsigned column, size_t text)
{
    if (text != NONE)
        rows_text(r->rows, column, r->texts.data + text);
}

/* Makes rows of what was found. */
static int keep(void *arg)
{
    struct reading *r = arg;
    bool late = r->deadline_ns && monotonic_ns() > r->deadline_ns;
    bool cut = late || r->bytes + r->texts.size > BYTES_MAX;

    for (size_t i = 0; i < r->n; i++) {
        const struct found *found = &r->found[i];
        rows_add(r->rows);
        rows_text(r->rows, GLOBALS_MODULE, found->module->name);
        set(r, GLOBALS_NAME, found->name);
        set(r, GLOBALS_TYPE, found->type);
        set(r, GLOBALS_VALUE, found->value);
    }
    r->bytes += r->texts.size;
    drop(r);
    if (cut) {
        rows_add(r->rows);
        rows_text(
            r->rows, GLOBALS_VALUE,
            late ? "[cut: all globals together take more than 5 s; ask for one module or name]"
                 : "[cut: all globals together are more than 8 MiB; ask for one module or name]");
    }
    int stopped = stop_reason(r->stop);
    return r->rows->error ? r->rows->error : stopped ? stopped : cut;
}

static bool is(const char *name, const char *wanted) { return !strcmp(name, wanted); }

static const struct import_reader reader = {.read = read_module, .keep = keep, .again = drop};

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const char *module = use->bounds[GLOBALS_MODULE].equal;
    struct reading reading = {
        .offsets = &scene->target->runtime.offsets,
        .use = use,
        .rows = rows,
        .stop = scene->stop,
    };
    if (!*module && !*use->bounds[GLOBALS_NAME].equal)
        reading.deadline_ns = monotonic_ns() + DEADLINE_NS;

    int r = *module ? imports_read_one(scene->target, is, module, &reader, &reading)
                    : imports_read(scene->target, &reader, &reading);
    free(reading.found);
    text_deinit(&reading.texts);
    text_deinit(&reading.scratch);
    return r < 0 && r != -ENOENT ? r : 0;
}

const struct row_source globals_rows = {.fill = fill};
