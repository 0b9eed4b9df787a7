#include "fs/remote/moment/imports.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/caches.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/objects/object.h"

#include <errno.h>

#define PIECE_NS 2000000u /* after which no module is begun in the same moment */
#define BATCH 64
#define QUIET_TRIES 2
#define TRIES 3 /* to read a module that is replaced by others of its name */

void import_list_deinit(struct import_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].name);
    free(list->items);
    *list = (struct import_list){0};
}

static void clear(struct import_list *list)
{
    while (list->n)
        free(list->items[--list->n].name);
    list->bytes = 0;
}

static int add(struct import_list *list, const struct import *ref)
{
    if (ARRAY_GROW(list->items, list->alloc, list->n + 1) < 0)
        return -ENOMEM;
    list->items[list->n++] = *ref;
    list->bytes += strlen(ref->name) + 1;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct import *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Ascending, the first entry of each name. */
static void sort(struct import_list *list)
{
    size_t n = 0;

    if (list->n)
        qsort(list->items, list->n, sizeof *list->items, by_name);
    for (size_t i = 0; i < list->n; i++) {
        if (n && !strcmp(list->items[n - 1].name, list->items[i].name))
            free(list->items[i].name);
        else
            list->items[n++] = list->items[i];
    }
    list->n = n;
}

/* ---- sys.modules ---- */

/* The entries of sys.modules at a moment, in their order. */
struct entries {
    struct entry {
        uint64_t key, object;
    } * items;
    size_t n, alloc;
};

static int collect(void *arg, uint64_t key, uint64_t object)
{
    struct entries *entries = arg;

    if (entries->n == IMPORTS_MAX)
        return 1;
    if (ARRAY_GROW(entries->items, entries->alloc, entries->n + 1) < 0)
        return -ENOMEM;
    entries->items[entries->n++] = (struct entry){key, object};
    return 0;
}

static int read_entries(struct target *target, uint64_t interp, struct entries *entries)
{
    const struct offsets *o = &target->runtime.offsets;
    uint64_t modules;

    entries->n = 0;
    if (!interp || !object_field(target->view, interp, o->interp_modules, &modules))
        return 0;
    int r = dict_iterate(target->view, o, modules, collect, entries, NULL);
    return r == -ENOMEM ? r : 0;
}

/* 0: none of its threads is there. */
static uint64_t main_interpreter(const struct walk *walk)
{
    for (size_t i = 0; i < walk->n; i++)
        if (walk->stacks[i].interp_id == 0)
            return walk->stacks[i].interp;
    return 0;
}

/* Runs work in a moment; the caller holds the target's lock. */
static int run(struct target *target, moment_work *work, void *arg)
{
    struct moment moment;

    if (!target->runtime.supported)
        return -EOPNOTSUPP;
    int r = moment_run(target, work, arg, &moment);
    view_reset(target->view); /* what was read of modules is of no use for the next look */
    caches_note(target);
    return r == -EAGAIN ? target_why_not(target) : r;
}

/* ---- their names ---- */

struct listing {
    struct target *target;
    struct import_list list;
    struct entries entries;
    struct text scratch;
};

static int add_names(struct listing *listing, size_t at, size_t n)
{
    struct target *target = listing->target;
    uint64_t keys[BATCH];

    for (size_t i = 0; i < n; i++)
        keys[i] = listing->entries.items[at + i].key;
    objects_prefetch(target->view, &target->runtime.offsets, keys, n);
    for (size_t i = 0; i < n; i++) {
        text_clear(&listing->scratch);
        if (str_decode(target->view, &target->runtime.offsets, keys[i], IMPORT_NAME_MAX,
                       &listing->scratch) < 0)
            continue;
        struct import ref = {
            .name = strdup(listing->scratch.size ? listing->scratch.data : ""),
            .key = keys[i],
            .object = listing->entries.items[at + i].object,
            .index = at + i,
        };
        if (!ref.name || add(&listing->list, &ref) < 0) {
            free(ref.name);
            return -ENOMEM;
        }
    }
    return 0;
}

static int list_within(struct moment *moment, void *arg)
{
    struct listing *listing = arg;

    clear(&listing->list);
    listing->list.interp = main_interpreter(moment->walk);
    int r = read_entries(listing->target, listing->list.interp, &listing->entries);
    for (size_t i = 0; r == 0 && i < listing->entries.n; i += BATCH) {
        size_t left = listing->entries.n - i;
        r = add_names(listing, i, left < BATCH ? left : BATCH);
    }
    return r;
}

static int list_locked(struct target *target, struct import_list *out)
{
    struct listing listing = {.target = target};

    int r = run(target, list_within, &listing);
    if (r == 0) {
        sort(&listing.list);
        *out = listing.list;
        listing.list = (struct import_list){0};
    }
    import_list_deinit(&listing.list);
    free(listing.entries.items);
    text_deinit(&listing.scratch);
    return r;
}

/* ---- what is kept of it ---- */

static struct import *find(const struct import_list *list, const char *name)
{
    size_t found = LOWER_BOUND(list->n, i, strcmp(list->items[i].name, name) < 0);

    return found < list->n && !strcmp(list->items[found].name, name) ? &list->items[found] : NULL;
}

static int copy(const struct import *ref, struct import_list *to)
{
    struct import ref_copy = *ref;

    ref_copy.name = strdup(ref->name);
    if (ref_copy.name && add(to, &ref_copy) == 0)
        return 0;
    free(ref_copy.name);
    return -ENOMEM;
}

/* Puts a listing in the place of the last one, whose names stay for a while. */
static int keep(struct target *target, const struct import_list *list, uint64_t now)
{
    struct import_list kept = {.interp = list->interp, .used_ns = now}, *old = target->imports;
    int r = 0;

    if (!old)
        old = target->imports = calloc(1, sizeof *old);
    if (!old)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < list->n; i++) {
        r = copy(&list->items[i], &kept);
        if (r == 0)
            kept.items[i].used_ns = now;
    }
    for (size_t i = 0; r == 0 && i < old->n && kept.n < IMPORTS_MAX; i++)
        if (now - old->items[i].used_ns < IMPORTS_KEPT_NS && !find(list, old->items[i].name))
            r = copy(&old->items[i], &kept);
    if (r == 0) {
        sort(&kept);
        import_list_deinit(old);
        *old = kept;
    } else {
        import_list_deinit(&kept);
    }
    return r;
}

static int list_and_keep(struct target *target, struct import_list *out)
{
    int r = list_locked(target, out);
    if (r == 0)
        r = keep(target, out, monotonic_ns());
    if (r < 0)
        import_list_deinit(out);
    return r;
}

void imports_forget(struct target *target)
{
    if (target->imports)
        import_list_deinit(target->imports);
    free(target->imports);
    target->imports = NULL;
}

size_t imports_size(const struct target *target)
{
    const struct import_list *list = target->imports;
    return list ? list->alloc * sizeof *list->items + list->bytes : 0;
}

int imports_list(struct target *target, struct import_list *out)
{
    _guard_mutex_(&target->lock);
    return list_and_keep(target, out);
}

/* The one that is wanted among those that are kept. NULL: none. */
static struct import *among_kept(const struct target *target, import_is *is, const char *wanted)
{
    const struct import_list *list = target->imports;
    struct import *found = list ? find(list, wanted) : NULL;

    for (size_t i = 0; list && i < list->n && (!found || !is(found->name, wanted)); i++)
        found = is(list->items[i].name, wanted) ? &list->items[i] : NULL;
    return found;
}

bool imports_knew(struct target *target, import_is *is, const char *wanted)
{
    _guard_mutex_(&target->lock);
    return among_kept(target, is, wanted);
}

/* Finds a module among those that are kept, of which one was used not so long ago. */
static int find_kept(struct target *target, import_is *is, const char *wanted, uint64_t most_ns,
                     struct import_list *out)
{
    struct import *found = among_kept(target, is, wanted);
    struct import_list *list = target->imports;
    uint64_t now = monotonic_ns();

    if (!found || now - list->used_ns >= most_ns)
        return -ENOENT;
    if (now - list->used_ns < IMPORTS_KEPT_NS) /* else it isn't used again for others */
        found->used_ns = list->used_ns = now;
    return copy(found, out);
}

int imports_find(struct target *target, import_is *is, const char *wanted, struct import_list *out)
{
    struct import_list list = {0};
    _guard_mutex_(&target->lock);

    int r = find_kept(target, is, wanted, IMPORTS_KEPT_NS, out);
    if (r != -ENOENT)
        return r;
    r = list_and_keep(target, &list);
    import_list_deinit(&list);
    return r < 0 ? r : find_kept(target, is, wanted, IMPORTS_KEPT_NS, out);
}

/* ---- what they bind ---- */

struct reading {
    struct target *target;
    const struct import_list *list;
    const struct import_reader *reader;
    void *arg;
    struct entries entries;
    struct text scratch;
    size_t at, next;     /* in the list: what comes next, before this moment and after it */
    size_t met, met_now; /* how many of them were still there; of this piece */
};

/* Whether the module stands where it stood, or elsewhere, under the same name. */
static bool is_there(struct reading *reading, const struct import *ref)
{
    const struct entries *entries = &reading->entries;
    size_t i = ref->index < entries->n ? ref->index : 0;

    for (size_t n = 0; n < entries->n; n++, i = i + 1 < entries->n ? i + 1 : 0) {
        if (entries->items[i].key != ref->key || entries->items[i].object != ref->object)
            continue;
        text_clear(&reading->scratch);
        int r = str_decode(reading->target->view, &reading->target->runtime.offsets, ref->key,
                           IMPORT_NAME_MAX, &reading->scratch);
        return r >= 0 && !strcmp(reading->scratch.size ? reading->scratch.data : "", ref->name);
    }
    return false;
}

static int read_piece(struct reading *reading, uint64_t interp)
{
    const struct import_list *list = reading->list;
    uint64_t begin = monotonic_ns();

    if (reading->reader->again)
        reading->reader->again(reading->arg);
    reading->met_now = 0;
    int r = read_entries(reading->target, interp, &reading->entries);
    for (reading->next = reading->at; r == 0 && reading->next < list->n; reading->next++) {
        if (reading->next > reading->at && monotonic_ns() - begin > PIECE_NS)
            break;
        if (!is_there(reading, &list->items[reading->next]))
            continue;
        reading->met_now++;
        r = reading->reader->read(reading->arg, reading->target->view, &list->items[reading->next]);
    }
    return r;
}

static int read_within(struct moment *moment, void *arg)
{
    return read_piece(arg, main_interpreter(moment->walk));
}

/* Reads a piece twice, without a moment: modules change rarely, also while the program runs, and
 * then no thread has to stand still for them. -EAGAIN: something changed. */
static int read_quietly(struct reading *reading)
{
    struct target *target = reading->target;
    uint64_t interp = target->imports ? target->imports->interp : 0;
    int r = -EAGAIN;

    for (int i = 0; i < QUIET_TRIES && interp && r == -EAGAIN; i++) {
        view_reset(target->view);
        r = read_piece(reading, interp);
        if (r == 0)
            r = view_verify(target->view);
    }
    view_reset(target->view);
    return r;
}

/* How many were there, or -errno. */
static int read_all(struct target *target, const struct import_list *list,
                    const struct import_reader *reader, void *arg)
{
    struct reading reading = {.target = target, .list = list, .reader = reader, .arg = arg};
    int r = 0;

    while (r == 0 && reading.at < list->n) {
        _guard_mutex_(&target->lock);
        r = read_quietly(&reading);
        if (r == -EAGAIN)
            r = run(target, read_within, &reading);
        reading.at = reading.next;
        reading.met += reading.met_now;
        if (r == 0 && reader->keep)
            r = reader->keep(arg);
    }
    free(reading.entries.items);
    text_deinit(&reading.scratch);
    return r < 0 ? r : (int)reading.met;
}

int imports_read(struct target *target, const struct import_reader *reader, void *arg)
{
    _cleanup_(import_list_deinit) struct import_list list = {0};

    int r = imports_list(target, &list);
    if (r == 0)
        r = read_all(target, &list, reader, arg);
    return r < 0 ? r : 0;
}

/* However long ago that was: whether it is still there, who reads it sees. */
static void find_last(struct target *target, import_is *is, const char *wanted,
                      struct import_list *out)
{
    _guard_mutex_(&target->lock);
    (void)find_kept(target, is, wanted, UINT64_MAX, out);
}

/* Another module may have taken the place of the one that is known: then they are listed anew. */
int imports_read_one(struct target *target, import_is *is, const char *wanted,
                     const struct import_reader *reader, void *arg)
{
    int r = 0;

    for (int i = 0; i < TRIES && r == 0; i++) {
        _cleanup_(import_list_deinit) struct import_list found = {0}, all = {0};
        if (i)
            r = imports_list(target, &all);
        else
            find_last(target, is, wanted, &found);
        if (r == 0 && !found.n)
            r = imports_find(target, is, wanted, &found);
        if (r == 0)
            r = read_all(target, &found, reader, arg);
    }
    return r;
}
