#include "fs/remote/names.h"

#include "fs/cleanup.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define NAME_CHARACTERS_MAX 256   /* of one thread's name */
#define TRIES_MAX 3               /* to see the same twice */
#define LOCATE_AGE_NS 2000000000u /* look for threading._active again, for it may be another */

struct name {
    uint64_t thread_id;
    size_t at; /* in the text */
};

struct name_table {
    struct name *items; /* ascending by thread_id */
    size_t n, alloc;
    struct text text;   /* the names, each with a NUL behind it */
};

struct interpreter_names {
    uint64_t interp;
    uint64_t active;          /* threading._active; 0: not found */
    uint64_t located_ns, read_ns;
    struct view *view;        /* what the last reading used, copied again in one call */
    struct name_table table;
};

struct names {
    const struct memory *memory;
    struct interpreter_names *interpreters[NAMES_INTERPRETERS_MAX];
    size_t n;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int names_new(const struct memory *memory, struct names **out)
{
    struct names *names = calloc(1, sizeof *names);
    if (!names)
        return -ENOMEM;
    names->memory = memory;
    *out = names;
    return 0;
}

static void table_deinit(struct name_table *table)
{
    free(table->items);
    text_deinit(&table->text);
}

void names_free(struct names *names)
{
    if (!names)
        return;
    for (size_t i = 0; i < names->n; i++) {
        view_free(names->interpreters[i]->view);
        table_deinit(&names->interpreters[i]->table);
        free(names->interpreters[i]);
    }
    free(names);
}

static struct interpreter_names *find_interpreter(const struct names *names, uint64_t interp)
{
    for (size_t i = 0; i < names->n; i++)
        if (names->interpreters[i]->interp == interp)
            return names->interpreters[i];
    return NULL;
}

/* Interpreters come and go: the one that was asked for longest ago makes room. */
static struct interpreter_names *make_interpreter(struct names *names, uint64_t interp)
{
    struct interpreter_names *in;

    if (names->n < NAMES_INTERPRETERS_MAX) {
        in = calloc(1, sizeof *in);
        if (!in)
            return NULL;
        if (view_new(names->memory, &in->view) < 0) {
            free(in);
            return NULL;
        }
        names->interpreters[names->n++] = in;
    } else {
        in = names->interpreters[0];
        for (size_t i = 1; i < names->n; i++)
            if (names->interpreters[i]->read_ns < in->read_ns)
                in = names->interpreters[i];
        view_reset(in->view);
        in->table.n = 0;
        in->active = in->located_ns = in->read_ns = 0;
    }
    in->interp = interp;
    return in;
}

/* Looks through modules with hundreds of entries: through a view of its own, so that they are
 * not copied again each time. */
static uint64_t locate_active(const struct names *names, const struct offsets *offsets,
                              uint64_t interp)
{
    struct object_class class;
    struct view *view;
    uint64_t modules, module, dict, active, found = 0;

    if (view_new(names->memory, &view) < 0)
        return 0;
    if (object_field(view, interp, offsets->interp_modules, &modules) &&
        dict_lookup_str(view, offsets, modules, "threading", &module) == 0 &&
        object_classify(view, offsets, module, &class) == 0 && class.kind == OBJECT_MODULE &&
        object_field(view, module, offsets->module_dict, &dict) &&
        dict_lookup_str(view, offsets, dict, "_active", &active) == 0 &&
        object_classify(view, offsets, active, &class) == 0 && class.kind == OBJECT_DICT)
        found = active;
    view_free(view);
    return found;
}

struct thread_list {
    uint64_t *idents, *threads; /* objects */
    size_t n, alloc;
};

static int collect_thread(void *arg, uint64_t key, uint64_t value)
{
    struct thread_list *list = arg;

    if (list->n == NAMES_MAX)
        return -E2BIG;
    if (list->n == list->alloc) {
        size_t alloc = list->alloc ? 2 * list->alloc : 64;
        uint64_t *idents = realloc(list->idents, alloc * sizeof *idents);
        if (idents)
            list->idents = idents;
        uint64_t *threads = realloc(list->threads, alloc * sizeof *threads);
        if (threads)
            list->threads = threads;
        if (!idents || !threads)
            return -ENOMEM;
        list->alloc = alloc;
    }
    list->idents[list->n] = key;
    list->threads[list->n++] = value;
    return 0;
}

static int by_thread_id(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    return x->thread_id < y->thread_id ? -1 : x->thread_id > y->thread_id;
}

static void add_thread(struct view *view, const struct offsets *offsets, uint64_t ident,
                       uint64_t thread, struct name_table *table)
{
    size_t at = table->text.size;
    uint64_t name;
    int64_t id;

    if (int_to_i64(view, offsets, ident, &id) < 0 ||
        instance_attribute(view, offsets, thread, "_name", &name) < 0 ||
        str_decode(view, offsets, name, NAME_CHARACTERS_MAX, &table->text) < 0)
        return;
    text_putc(&table->text, 0);
    table->items[table->n++] = (struct name){(uint64_t)id, at};
}

/* Reads all names once. The threads that can't be read are left out; -EFAULT: the dict can't. */
static int read_table(struct view *view, const struct offsets *offsets, uint64_t active,
                      struct name_table *table)
{
    struct thread_list list = {0};

    table->n = 0;
    text_clear(&table->text);
    int r = dict_iterate(view, offsets, active, collect_thread, &list, NULL);
    if (r == -E2BIG)
        r = 0;
    if (r == 0 && list.n > table->alloc) {
        struct name *items = realloc(table->items, list.n * sizeof *items);
        if (items) {
            table->items = items;
            table->alloc = list.n;
        } else {
            r = -ENOMEM;
        }
    }
    if (r == 0) {
        objects_prefetch(view, list.idents, list.n);
        objects_prefetch(view, list.threads, list.n);
        for (size_t i = 0; i < list.n; i++)
            add_thread(view, offsets, list.idents[i], list.threads[i], table);
        if (table->n)
            qsort(table->items, table->n, sizeof *table->items, by_thread_id);
        r = table->text.error;
    }
    free(list.idents);
    free(list.threads);
    return r;
}

static bool same_table(const struct name_table *a, const struct name_table *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->items[i].thread_id != b->items[i].thread_id ||
            strcmp(a->text.data + a->items[i].at, b->text.data + b->items[i].at) != 0)
            return false;
    return true;
}

static void swap_tables(struct name_table *a, struct name_table *b)
{
    struct name_table t = *a;
    *a = *b;
    *b = t;
}

/* Reads until two readings in a row say the same; the first is compared with the last known
 * names, which is all there is to do most of the time. */
static void read_names(struct interpreter_names *in, const struct offsets *offsets)
{
    struct name_table last = {0}, next = {0};

    for (int i = 0; i < TRIES_MAX; i++) {
        int r = view_refresh(in->view);
        if (r == 0)
            r = read_table(in->view, offsets, in->active, &next);
        if (r < 0) {
            in->located_ns = 0; /* perhaps it is elsewhere now */
            break;
        }
        if (same_table(&next, i ? &last : &in->table)) {
            swap_tables(&in->table, &next);
            break;
        }
        swap_tables(&last, &next);
    }
    table_deinit(&last);
    table_deinit(&next);
}

void names_refresh(struct names *names, const struct offsets *offsets, uint64_t interp,
                   uint64_t max_age_ns)
{
    struct interpreter_names *in = find_interpreter(names, interp);
    uint64_t now = now_ns();

    if (in && in->read_ns && now - in->read_ns < max_age_ns)
        return;
    if (!in)
        in = make_interpreter(names, interp);
    if (!in)
        return;
    if (!in->located_ns || now - in->located_ns > LOCATE_AGE_NS) {
        in->active = locate_active(names, offsets, interp);
        in->located_ns = now;
    }
    if (in->active)
        read_names(in, offsets);
    else
        in->table.n = 0;
    in->read_ns = now_ns();
}

const char *names_find(const struct names *names, uint64_t interp, uint64_t thread_id)
{
    const struct interpreter_names *in = find_interpreter(names, interp);
    struct name key = {.thread_id = thread_id};

    if (!in || !in->table.n)
        return NULL;
    const struct name *name = bsearch(&key, in->table.items, in->table.n, sizeof key, by_thread_id);
    return name ? in->table.text.data + name->at : NULL;
}
