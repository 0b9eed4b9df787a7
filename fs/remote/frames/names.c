#include "fs/remote/frames/names.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#define NAME_CHARACTERS_MAX 256   /* of one thread's name */
#define LOCATE_AGE_NS 2000000000u /* look for threading._active again, for it may be another */

#define NO_NAME SIZE_MAX

struct name {
    uint64_t thread_id;
    pid_t tid; /* whose it is; 0: not known yet */
    size_t at; /* in the text; NO_NAME: the thread is not in the dict */
};

struct name_table {
    struct name *items; /* ascending by thread_id */
    size_t n, alloc;
    struct text text; /* the names, each with a NUL behind it */
};

struct interpreter_names {
    uint64_t interp;
    uint64_t active; /* threading._active; 0: not found */
    uint64_t located_ns, read_ns;
    bool fresh;        /* read in this round */
    struct view *view; /* what the last reading used, copied again in one call */
    struct name_table table;
};

struct names {
    const struct memory *memory;
    struct interpreter_names *interpreters[NAMES_INTERPRETERS_MAX];
    size_t n;
};

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
    table->items[table->n++] = (struct name){.thread_id = (uint64_t)id, .at = at};
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
        objects_prefetch(view, offsets, list.idents, list.n);
        objects_prefetch(view, offsets, list.threads, list.n);
        for (size_t i = 0; i < list.n; i++)
            add_thread(view, offsets, list.idents[i], list.threads[i], table);
        if (table->n)
            array_sort(table->items, table->n, sizeof *table->items, by_thread_id);
        r = table->text.error;
    }
    free(list.idents);
    free(list.threads);
    return r;
}

static const char *name_text(const struct name_table *table, const struct name *name)
{
    return name->at == NO_NAME ? NULL : table->text.data + name->at;
}

static struct name *table_find(const struct name_table *table, uint64_t thread_id)
{
    struct name key = {.thread_id = thread_id};

    return table->n ? bsearch(&key, table->items, table->n, sizeof key, by_thread_id) : NULL;
}

/* Threads that have no name in one don't count. */
static bool same_names(const struct name_table *a, const struct name_table *b)
{
    for (size_t i = 0, k = 0;;) {
        while (i < a->n && a->items[i].at == NO_NAME)
            i++;
        while (k < b->n && b->items[k].at == NO_NAME)
            k++;
        if (i == a->n || k == b->n)
            return i == a->n && k == b->n;
        if (a->items[i].thread_id != b->items[k].thread_id ||
            strcmp(name_text(a, &a->items[i]), name_text(b, &b->items[k])) != 0)
            return false;
        i++;
        k++;
    }
}

/* Notes that a thread has no name, so that the dict is not read again for it. */
static void table_add_nameless(struct name_table *table, uint64_t thread_id, pid_t tid)
{
    size_t at = table->n;

    if (table->n == NAMES_MAX)
        return;
    if (table->n == table->alloc) {
        size_t alloc = table->alloc ? 2 * table->alloc : 16;
        struct name *items = realloc(table->items, alloc * sizeof *items);
        if (!items)
            return;
        table->items = items;
        table->alloc = alloc;
    }
    while (at && table->items[at - 1].thread_id > thread_id)
        at--;
    memmove(table->items + at + 1, table->items + at, (table->n - at) * sizeof *table->items);
    table->items[at] = (struct name){.thread_id = thread_id, .tid = tid, .at = NO_NAME};
    table->n++;
}

static void swap_tables(struct name_table *a, struct name_table *b)
{
    struct name_table t = *a;
    *a = *b;
    *b = t;
}

/* What a thread was called before and is called still is its own name. */
static void keep_owners(struct name_table *table, const struct name_table *before)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct name *old = table_find(before, table->items[i].thread_id);
        if (old && old->at != NO_NAME &&
            strcmp(name_text(before, old), name_text(table, &table->items[i])) == 0)
            table->items[i].tid = old->tid;
    }
}

/* Leaves what another reading agrees with. */
static void keep_agreed(struct name_table *table, const struct name_table *other)
{
    size_t n = 0;

    for (size_t i = 0; i < table->n; i++) {
        const struct name *same = table_find(other, table->items[i].thread_id);
        if (same && strcmp(name_text(other, same), name_text(table, &table->items[i])) == 0)
            table->items[n++] = table->items[i];
    }
    table->n = n;
}

static int read_once(struct interpreter_names *in, const struct offsets *offsets,
                     struct name_table *table)
{
    int r = view_refresh(in->view);
    return r < 0 ? r : read_table(in->view, offsets, in->active, table);
}

/* Reads twice, and takes over what was the same. The names known so far count as one reading:
 * when nothing has changed since, one is enough. False: they could not be read. */
static bool read_names(struct interpreter_names *in, const struct offsets *offsets)
{
    struct name_table first = {0}, second = {0};
    struct name_table *read = &first;

    int r = read_once(in, offsets, &first);
    if (r == 0 && !same_names(&first, &in->table)) {
        r = read_once(in, offsets, &second);
        if (r == 0)
            keep_agreed(&second, &first);
        read = &second;
    }
    if (r == 0) {
        keep_owners(read, &in->table);
        swap_tables(read, &in->table);
    }
    table_deinit(&first);
    table_deinit(&second);
    return r == 0;
}

static void read_again(const struct names *names, struct interpreter_names *in,
                       const struct offsets *offsets)
{
    uint64_t now = monotonic_ns();

    if (!in->located_ns || now - in->located_ns > LOCATE_AGE_NS) {
        in->active = locate_active(names, offsets, in->interp);
        in->located_ns = now;
    }
    if (!in->active || !read_names(in, offsets)) {
        in->table.n = 0;
        if (in->active)
            in->located_ns = 0; /* perhaps it is elsewhere now */
    }
    in->read_ns = monotonic_ns();
    in->fresh = true;
}

void names_refresh(struct names *names, const struct offsets *offsets, uint64_t interp,
                   uint64_t max_age_ns)
{
    struct interpreter_names *in = find_interpreter(names, interp);

    if (!in)
        in = make_interpreter(names, interp);
    if (!in)
        return;
    in->fresh = false;
    if (!in->read_ns || monotonic_ns() - in->read_ns >= max_age_ns)
        read_again(names, in, offsets);
}

static bool is_alive(const struct names *names, pid_t tid)
{
    return names->memory->core || syscall(SYS_tgkill, names->memory->pid, tid, 0) == 0 ||
           errno == EPERM;
}

const char *names_find(struct names *names, const struct offsets *offsets, uint64_t interp,
                       uint64_t thread_id, pid_t tid)
{
    struct interpreter_names *in = find_interpreter(names, interp);

    if (!in || !tid)
        return NULL;
    struct name *name = table_find(&in->table, thread_id);
    if (name && name->tid == tid)
        return name_text(&in->table, name);
    if (!in->fresh) {
        read_again(names, in, offsets);
        name = table_find(&in->table, thread_id);
    }
    if (!name) {
        table_add_nameless(&in->table, thread_id, tid);
        return NULL;
    }
    if (name->tid != tid && !is_alive(names, tid))
        return NULL;
    name->tid = tid;
    return name_text(&in->table, name);
}
