#include "fs/remote/moment/sources.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/object.h"

#include <errno.h>
#include <string.h>

#define SEEN_MAX 1024 /* names of code on the stacks that are told apart by their address */
#define LINE_CHARACTERS_MAX 65536

void source_list_deinit(struct source_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (struct source_list){0};
}

static void truncate_to(struct source_list *list, size_t n)
{
    while (list->n > n)
        free(list->paths[--list->n]);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct source_list *list)
{
    size_t n = 0;

    array_sort(list->paths, list->n, sizeof *list->paths, by_path);
    for (size_t i = 0; i < list->n; i++)
        if (n && !strcmp(list->paths[n - 1], list->paths[i]))
            free(list->paths[i]);
        else
            list->paths[n++] = list->paths[i];
    list->n = n;
}

/* ---- what they are called ---- */

struct listing {
    struct target *target;
    struct view *view;
    struct source_list list;
    size_t good; /* of the list, what isn't void any more */
    int error;
};

static bool ends_in(const char *path, const char *end)
{
    size_t size = strlen(path), n = strlen(end);

    return size >= n && !strcmp(path + size - n, end);
}

/* Adds what a str says, if a file may be called so. kept: linecache has its text, which <string>
 * and the like have from nowhere else. */
static void add(struct listing *listing, uint64_t name, bool kept)
{
    struct source_list *list = &listing->list;
    char path[SOURCE_PATH_MAX + 1];

    if (listing->error || list->n >= SOURCES_MAX ||
        str_file_name(listing->view, &listing->target->runtime.offsets, name, path, sizeof path) <
            0 ||
        !*path || ends_in(path, ".so") || ends_in(path, ".pyc") ||
        (!kept && *path == '<' && ends_in(path, ">")))
        return;
    if (ARRAY_GROW(list->paths, list->alloc, list->n + 1) == 0)
        list->paths[list->n] = strdup(path);
    else
        listing->error = -ENOMEM;
    if (!listing->error && !list->paths[list->n])
        listing->error = -ENOMEM;
    list->n += !listing->error;
}

/* ---- linecache ---- */

/* The dict that a module binds a name to; 0: there is none. */
static uint64_t dict_of(struct view *view, const struct offsets *o, uint64_t module,
                        const char *name)
{
    struct object_class class;
    uint64_t dict, found;

    if (object_classify(view, o, module, &class) < 0 || class.kind != OBJECT_MODULE ||
        !object_field(view, module, o->module_dict, &dict) ||
        dict_lookup_str(view, o, dict, name, &found) < 0 ||
        object_classify(view, o, found, &class) < 0 || class.kind != OBJECT_DICT)
        return 0;
    return found;
}

/* The lines of an entry: (size, mtime, lines, name). 0: they were not read yet, or it is none. */
static uint64_t lines_of(struct view *view, const struct offsets *o, uint64_t entry)
{
    struct object_class class;
    uint64_t lines;

    if (tuple_item(view, o, entry, 2, &lines) < 0 || object_classify(view, o, lines, &class) < 0 ||
        class.kind != OBJECT_LIST)
        return 0;
    return lines;
}

/* The dicts of Lib/linecache.py: `cache` by the name of the file; from 3.13 on those of code that
 * was typed, and of -c, by tuples that begin with it. */
static const char *const caches[] = {"cache", "_interactive_cache"};

static uint64_t name_of_entry(struct view *view, const struct offsets *o, uint64_t key)
{
    uint64_t name;

    return tuple_item(view, o, key, 0, &name) == 0 ? name : key;
}

static int add_kept(void *arg, uint64_t key, uint64_t entry)
{
    struct listing *listing = arg;
    const struct offsets *o = &listing->target->runtime.offsets;

    if (lines_of(listing->view, o, entry))
        add(listing, name_of_entry(listing->view, o, key), true);
    return listing->error;
}

/* ---- listing ---- */

static int read_module(void *arg, struct view *view, const struct import *module)
{
    struct listing *listing = arg;
    const struct offsets *o = &listing->target->runtime.offsets;
    struct object_class class;
    uint64_t dict, file;

    listing->view = view;
    if (object_classify(view, o, module->object, &class) < 0 || class.kind != OBJECT_MODULE ||
        !object_field(view, module->object, o->module_dict, &dict))
        return 0;
    if (dict_lookup_str(view, o, dict, "__file__", &file) == 0)
        add(listing, file, false);
    if (!strcmp(module->name, "linecache"))
        for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
            uint64_t cache = dict_of(view, o, module->object, caches[i]);
            if (cache)
                (void)dict_iterate(view, o, cache, add_kept, listing, NULL);
        }
    return listing->error;
}

static int keep_modules(void *arg)
{
    struct listing *listing = arg;

    listing->good = listing->list.n;
    return 0;
}

static void list_again(void *arg)
{
    struct listing *listing = arg;

    truncate_to(&listing->list, listing->good);
}

static const struct import_reader reader = {read_module, keep_modules, list_again};

static bool is_seen(uint64_t *seen, size_t *n, uint64_t name)
{
    for (size_t i = *n; i-- > 0;)
        if (seen[i] == name)
            return true;
    if (*n < SEEN_MAX)
        seen[(*n)++] = name;
    return false;
}

/* snapshot_options.work */
static int add_stacks(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct listing *listing = arg;
    const struct offsets *o = &listing->target->runtime.offsets;
    uint64_t seen[SEEN_MAX], name;
    size_t nseen = 0;

    list_again(listing);
    listing->view = listing->target->view;
    for (size_t i = 0; i < moment->walk->n; i++) {
        const struct stack *stack = &moment->walk->stacks[i];
        for (size_t k = 0; k < stack->n && !listing->error; k++)
            if (object_field(listing->view, stack->frames[k].code, o->code_filename, &name) &&
                !is_seen(seen, &nseen, name))
                add(listing, name, false);
    }
    return listing->error;
}

int sources_list(struct target *target, struct source_list *out)
{
    struct listing listing = {.target = target};
    const struct snapshot_options options = {.work = add_stacks, .arg = &listing};
    struct snapshot *snapshot = NULL;

    int r = target->runtime.supported ? imports_read(target, &reader, &listing) : -EOPNOTSUPP;
    if (r == 0) {
        listing.good = listing.list.n;
        r = snapshot_take(target, &options, &snapshot);
        snapshot_free(snapshot);
    }
    if (r < 0) {
        source_list_deinit(&listing.list);
        return r == -EAGAIN ? target_why_not(target) : r;
    }
    sort(&listing.list);
    *out = listing.list;
    return 0;
}

/* ---- what is kept of it ---- */

struct known {
    struct target_kept kept;
    pthread_mutex_t lock; /* guards what follows */
    struct source_list list;
    uint64_t used_ns; /* CLOCK_MONOTONIC, when it was listed, or one of it found, last */
};

static void known_free(struct target_kept *kept)
{
    struct known *known = (struct known *)kept;

    source_list_deinit(&known->list);
    pthread_mutex_destroy(&known->lock);
    free(known);
}

/* NULL without memory. */
static struct known *known_of(struct target *target)
{
    struct known *known = (struct known *)atomic_load(&target->kept[KEPT_BY_SOURCES]);

    if (known)
        return known;
    known = calloc(1, sizeof *known);
    if (!known)
        return NULL;
    known->kept.free = known_free;
    pthread_mutex_init(&known->lock, NULL);
    struct target_kept *kept = target_keep(target, KEPT_BY_SOURCES, &known->kept);
    if (kept != &known->kept)
        known_free(&known->kept); /* another thread was faster */
    return (struct known *)kept;
}

static int find(struct known *known, source_is *is, const char *wanted,
                char path[SOURCE_PATH_MAX + 1])
{
    uint64_t now = monotonic_ns();

    _guard_mutex_(&known->lock);
    if (now - known->used_ns >= SOURCES_KEPT_NS)
        return -ENOENT;
    for (size_t i = 0; i < known->list.n; i++)
        if (is(known->list.paths[i], wanted)) {
            strcpy(path, known->list.paths[i]);
            known->used_ns = now;
            return 0;
        }
    return -ENOENT;
}

int sources_find(struct target *target, source_is *is, const char *wanted,
                 char path[SOURCE_PATH_MAX + 1])
{
    struct known *known = known_of(target);
    struct source_list list = {0};

    if (!known)
        return -ENOMEM;
    int r = find(known, is, wanted, path);
    if (r != -ENOENT)
        return r;
    r = sources_list(target, &list);
    if (r < 0)
        return r;
    pthread_mutex_lock(&known->lock);
    source_list_deinit(&known->list);
    known->list = list;
    known->used_ns = monotonic_ns();
    pthread_mutex_unlock(&known->lock);
    return find(known, is, wanted, path);
}

/* ---- text ---- */

struct reading {
    struct target *target;
    struct view *view;
    const char *path;
    struct text *out;
    size_t begin; /* of the text in out */
    bool found;
};

/* item_visit: one line, with its end. */
static int add_line(void *arg, uint64_t line)
{
    struct reading *r = arg;
    const struct offsets *o = &r->target->runtime.offsets;
    struct str_data data;

    if (r->out->size - r->begin > SOURCE_KEPT_BYTES) {
        text_puts(r->out, "... (cut: more than 512 KiB)\n");
        return 1;
    }
    if (str_read(r->view, o, line, &data) < 0)
        return -EFAULT;
    uint64_t n = data.length < LINE_CHARACTERS_MAX ? data.length : LINE_CHARACTERS_MAX;
    const uint8_t *p = view_read(r->view, data.addr, (uint32_t)n * data.width);
    if (n && !p)
        return -EFAULT;
    for (uint64_t i = 0; i < n; i++, p += data.width) {
        uint32_t c = data.width == 1 ? *p : data.width == 2 ? load16(p) : load32(p);
        if (c == '\n' || c == '\t')
            text_putc(r->out, (char)c);
        else if (c != '\r' || i + 2 < n) /* the end of a line in a file of Windows */
            text_add_codepoint(r->out, c);
    }
    if (n < data.length)
        text_puts(r->out, "...\n");
    return r->out->error;
}

static int take_entry(void *arg, uint64_t key, uint64_t entry)
{
    struct reading *r = arg;
    const struct offsets *o = &r->target->runtime.offsets;
    uint64_t lines = lines_of(r->view, o, entry);
    char path[SOURCE_PATH_MAX + 1];

    if (!lines ||
        str_file_name(r->view, o, name_of_entry(r->view, o, key), path, sizeof path) < 0 ||
        strcmp(path, r->path) != 0)
        return 0;
    int e = list_iterate(r->view, o, lines, add_line, r, NULL);
    if (e == -ENOMEM)
        return e;
    if (e < 0)
        text_puts(r->out, "... (unreadable)\n");
    r->found = true;
    return 1;
}

static int read_cache(void *arg, struct view *view, const struct import *module)
{
    struct reading *r = arg;
    int e = 0;

    r->view = view;
    for (size_t i = 0; i < ARRAY_SIZE(caches) && e == 0; i++) {
        uint64_t cache = dict_of(view, &r->target->runtime.offsets, module->object, caches[i]);
        if (cache)
            e = dict_iterate(view, &r->target->runtime.offsets, cache, take_entry, r, NULL);
    }
    return e == -ENOMEM ? e : 0;
}

static void read_again(void *arg)
{
    struct reading *r = arg;

    text_truncate(r->out, r->begin);
    r->found = false;
}

static bool is_linecache(const char *name, const char *wanted) { return !strcmp(name, wanted); }

int sources_kept_text(struct target *target, const char *path, struct text *out)
{
    static const struct import_reader of_cache = {.read = read_cache, .again = read_again};
    struct reading reading = {.target = target, .path = path, .out = out, .begin = out->size};

    int r = imports_read_one(target, is_linecache, "linecache", &of_cache, &reading);
    return r < 0 ? r : reading.found ? 0 : -ENOENT;
}
