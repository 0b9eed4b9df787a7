/* What torch/distributed/distributed_c10d.py binds, the same from PyTorch 1.8 to 2.9: _pg_map,
 * whose first entry is that of the default group, and _pg_group_ranks, which has its ranks. Which
 * of them this process is only the group itself knows, an object of C++: c10d::ProcessGroup keeps
 * two ints one behind the other, its rank and its size, not far from its beginning. Where they are
 * differs from version to version, so they are looked for; if there is more than one place where
 * they may be, nothing is said.
 *
 * What a group was made with is an object of C++, too, and nobody binds it in Python: Options, with
 * its timeout in milliseconds and right behind that the name of the backend
 * (torch/csrc/distributed/c10d/ProcessGroup.hpp, since 2.0 Backend.hpp). It is looked for by that
 * name, along the pointers from the group, and if what is found doesn't agree nothing is said. */
#include "fs/process/torch_group.h"

#include "fs/remote/frames/locals.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/torch/models.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MODULE "torch.distributed.distributed_c10d"
#define HOLDER 16         /* of pybind11's instance: its pointer to the object of C++ */
#define POINTERS_MAX 2048 /* that are followed from a group to its Options, ... */
#define POINTERS_DEEP 3   /* ... one behind the other at most */
#define CHUNK_MAX 1024    /* bytes of an object of C++ that are looked at */
#define TIMEOUT_MS_MAX (1000ll * 86400 * 3650)
#define OBJECT_FIRST 16 /* bytes of that where its own fields may begin, behind its count, ... */
#define OBJECT_LAST 128 /* ... and where they are all looked at */

struct reading {
    const struct offsets *offsets;
    struct names_at *at;
    struct view *view;
    uint64_t map, ranks, names, init_method; /* objects; 0: not bound */
    uint64_t group;                          /* a ProcessGroup of Python's */
    struct torch_group out;
    bool found;
};

static void look_up(struct reading *r, uint64_t module, const char *name, uint64_t *at,
                    uint64_t *out)
{
    if (global_lookup(r->view, r->offsets, module, name, at, out) < 0)
        *out = 0;
}

static void read_globals(struct reading *r, uint64_t module)
{
    look_up(r, module, "_pg_map", &r->at->pg_map, &r->map);
    look_up(r, module, "_pg_group_ranks", &r->at->pg_group_ranks, &r->ranks);
    look_up(r, module, "_pg_names", &r->at->pg_names, &r->names);
    look_up(r, module, "_default_pg_init_method", &r->at->init_method, &r->init_method);
}

static void take_str(struct reading *r, uint64_t object, char *to, size_t cap)
{
    struct text text = TEXT_INIT;

    if (str_decode(r->view, r->offsets, object, cap - 1, &text) == 0 && text.size)
        snprintf(to, cap, "%s", text.data);
    text_deinit(&text);
}

/* The first is the default group. */
static int visit_group(void *arg, uint64_t key, uint64_t value)
{
    struct reading *r = arg;
    uint64_t backend;

    r->group = key;
    if (tuple_item(r->view, r->offsets, value, 0, &backend) == 0)
        take_str(r, backend, r->out.backend, sizeof r->out.backend);
    return 1;
}

static int count(void *arg, uint64_t key, uint64_t value)
{
    ++*(int64_t *)arg;
    return 0;
}

static int visit_ranks(void *arg, uint64_t key, uint64_t value)
{
    struct reading *r = arg;

    if (key != r->group)
        return 0;
    r->out.world = 0;
    dict_iterate(r->view, r->offsets, value, count, &r->out.world, NULL);
    return 1;
}

/* The rank, if there is one place where it may be. */
static bool find_rank(struct reading *r)
{
    int32_t words[(OBJECT_LAST - OBJECT_FIRST) / 4];
    unsigned places = 0;
    uint64_t object;

    if (!view_read64(r->view, r->group + HOLDER, &object))
        return false;
    const uint8_t *bytes = view_read(r->view, object + OBJECT_FIRST, sizeof words);
    if (!bytes)
        return false;
    memcpy(words, bytes, sizeof words);
    for (size_t i = 0; i + 1 < sizeof words / sizeof *words; i += 2) {
        if (words[i + 1] != r->out.world || words[i] < 0 || words[i] >= r->out.world)
            continue;
        r->out.rank = words[i];
        places++;
    }
    return places == 1;
}

static int read_module(void *arg, struct view *view, const struct import *module)
{
    struct reading *r = arg;

    r->view = view;
    read_globals(r, module->object);
    if (!r->map || !r->ranks || dict_iterate(view, r->offsets, r->map, visit_group, r, NULL) != 1 ||
        dict_iterate(view, r->offsets, r->ranks, visit_ranks, r, NULL) != 1 || r->out.world < 1)
        return 0;
    if (r->init_method)
        take_str(r, r->init_method, r->out.origin, sizeof r->out.origin);
    r->found = find_rank(r);
    return 0;
}

static void again(void *arg)
{
    struct reading *r = arg;

    *r = (struct reading){.offsets = r->offsets, .at = r->at};
}

static bool is(const char *name, const char *wanted) { return !strcmp(name, wanted); }

/* Without PyTorch all modules would be listed each time to find that out. */
static bool is_there(struct target *target)
{
    return imports_knew(target, is, MODULE) || torch_is_loaded(target);
}

int torch_group_read(struct target *target, struct torch_group *out)
{
    static const struct import_reader reader = {.read = read_module, .again = again};
    struct reading reading = {.offsets = &target->runtime.offsets, .at = &target->names_at};

    if (!is_there(target))
        return -ENOENT;
    int r = imports_read_one(target, is, MODULE, &reader, &reading);
    if (r < 0)
        return r;
    if (!reading.found)
        return -ENOENT;
    *out = reading.out;
    return 0;
}

/* ---- what a group waits at most ---- */

/* NULL: not readable. What isn't Python's changes at any time: it is not compared. */
static const uint8_t *read_fixed(struct view *view, uint64_t addr, uint32_t size)
{
    const uint8_t *bytes;

    int r = view_get_fixed(view, addr, size, &bytes);
    if (r == -EAGAIN && view_fill(view) == 0)
        r = view_get_fixed(view, addr, size, &bytes);
    return r == 0 ? bytes : NULL;
}

/* How much of an object of C++ is to be looked at: what malloc() gave to it, as glibc has it in
 * front, so that it isn't its neighbour's. */
static uint32_t size_of_chunk(struct view *view, uint64_t object)
{
    const uint8_t *bytes = read_fixed(view, object - 8, 8);
    uint64_t size = bytes ? load64(bytes) & ~(uint64_t)7 : 0;

    return size < 24 || size & 8 ? 0 : size - 8 > CHUNK_MAX ? CHUNK_MAX : (uint32_t)size - 8;
}

/* Whether these are Options of that backend: virtual functions, one or two counts, the timeout, and
 * a std::string as libstdc++ has a short one. */
static bool read_options(struct view *view, uint64_t object, const char *backend, int64_t *timeout)
{
    size_t n = strlen(backend);
    const uint8_t *bytes = n && n < 16 ? read_fixed(view, object, 64) : NULL;

    for (unsigned at = 16; bytes && at <= 24; at += 8) {
        *timeout = (int64_t)load64(bytes + at);
        if (load64(bytes + at + 8) == object + at + 24 && load64(bytes + at + 16) == n &&
            !memcmp(bytes + at + 24, backend, n + 1 < 16 ? n + 1 : n) && *timeout > 0 &&
            *timeout <= TIMEOUT_MS_MAX)
            return true;
    }
    return false;
}

struct pointers {
    uint64_t items[POINTERS_MAX];
    size_t n;
};

static bool add_pointer(struct pointers *pointers, uint64_t pointer)
{
    if (pointer < 0x10000 || pointer & 7 || pointer >> 47 || pointers->n == POINTERS_MAX)
        return false;
    for (size_t i = 0; i < pointers->n; i++)
        if (pointers->items[i] == pointer)
            return false;
    pointers->items[pointers->n++] = pointer;
    return true;
}

/* Adds where one object points to. *timeout: of Options among them; -1: none so far; 0: they
 * differ. */
static void follow(struct view *view, uint64_t object, const char *backend,
                   struct pointers *pointers, int64_t *timeout)
{
    uint32_t size = size_of_chunk(view, object);
    const uint8_t *bytes = size ? read_fixed(view, object, size) : NULL;
    uint64_t words[CHUNK_MAX / 8];
    int64_t found;

    if (!bytes)
        return;
    memcpy(words, bytes, size);
    for (size_t i = 0; i < size / 8; i++) {
        if (add_pointer(pointers, words[i]) && read_options(view, words[i], backend, &found))
            *timeout = *timeout < 0 || *timeout == found ? found : 0;
    }
}

static int64_t find_timeout(struct reading *r, const struct torch_its_group *group)
{
    struct pointers pointers = {0};
    int64_t timeout = -1;
    uint64_t object;

    if (!view_read64(r->view, group->object + HOLDER, &object) || !add_pointer(&pointers, object))
        return -1;
    for (size_t deep = 0, at = 0; deep < POINTERS_DEEP && timeout < 0; deep++)
        for (size_t end = pointers.n; at < end; at++)
            follow(r->view, pointers.items[at], group->backend, &pointers, &timeout);
    return timeout > 0 ? timeout : -1;
}

/* ---- all of them ---- */

struct listing {
    struct reading reading;
    bool timeouts;
    struct torch_groups *out;
    int64_t rank; /* of this process among all; -1: unknown */
};

static struct torch_its_group *find(struct torch_groups *groups, uint64_t object)
{
    for (size_t i = 0; i < groups->n; i++)
        if (groups->items[i].object == object)
            return &groups->items[i];
    return NULL;
}

static int list_group(void *arg, uint64_t key, uint64_t value)
{
    struct listing *l = arg;
    struct torch_groups *out = l->out;
    uint64_t backend;

    out->cut = out->n == TORCH_GROUPS_MAX;
    if (out->cut)
        return 1;
    struct torch_its_group *group = &out->items[out->n++];
    *group = (struct torch_its_group){.object = key, .size = -1, .rank = -1, .timeout = -1};
    if (tuple_item(l->reading.view, l->reading.offsets, value, 0, &backend) == 0)
        take_str(&l->reading, backend, group->backend, sizeof group->backend);
    return 0;
}

static int list_name(void *arg, uint64_t key, uint64_t value)
{
    struct listing *l = arg;
    struct torch_its_group *group = find(l->out, key);

    if (group)
        take_str(&l->reading, value, group->name, sizeof group->name);
    return 0;
}

struct search {
    const struct listing *listing;
    struct torch_its_group *group;
};

/* A rank among all is its rank in the group. */
static int find_own(void *arg, uint64_t key, uint64_t value)
{
    struct search *search = arg;
    const struct reading *r = &search->listing->reading;
    int64_t rank, own;

    if (int_to_i64(r->view, r->offsets, key, &rank) < 0 || rank != search->listing->rank ||
        int_to_i64(r->view, r->offsets, value, &own) < 0)
        return 0;
    search->group->rank = own;
    return 1;
}

static int nothing(void *arg, uint64_t key, uint64_t value) { return 1; }

static int list_ranks(void *arg, uint64_t key, uint64_t value)
{
    struct listing *l = arg;
    struct search search = {l, find(l->out, key)};
    uint64_t size = 0;

    if (!search.group)
        return 0;
    if (dict_iterate(l->reading.view, l->reading.offsets, value, nothing, NULL, &size) >= 0)
        search.group->size = (int64_t)size;
    if (l->rank >= 0)
        (void)dict_iterate(l->reading.view, l->reading.offsets, value, find_own, &search, NULL);
    return 0;
}

static int list_module(void *arg, struct view *view, const struct import *module)
{
    struct listing *l = arg;
    struct reading *r = &l->reading;

    r->view = view;
    read_globals(r, module->object);
    if (r->map)
        (void)dict_iterate(view, r->offsets, r->map, list_group, l, NULL);
    if (r->names)
        (void)dict_iterate(view, r->offsets, r->names, list_name, l, NULL);
    for (size_t i = 0; l->timeouts && i < l->out->n; i++)
        l->out->items[i].timeout = find_timeout(r, &l->out->items[i]);
    if (!r->ranks || !l->out->n)
        return 0;
    r->group = l->out->items[0].object;
    (void)dict_iterate(view, r->offsets, r->ranks, visit_ranks, r, NULL);
    l->rank = r->out.world > 0 && find_rank(r) ? r->out.rank : -1;
    (void)dict_iterate(view, r->offsets, r->ranks, list_ranks, l, NULL);
    return 0;
}

static void list_again(void *arg)
{
    struct listing *l = arg;

    again(&l->reading);
    *l->out = (struct torch_groups){0};
}

static int list_groups(struct target *target, bool timeouts, struct torch_groups *out)
{
    static const struct import_reader reader = {.read = list_module, .again = list_again};
    struct listing listing = {
        .reading = {.offsets = &target->runtime.offsets, .at = &target->names_at},
        .timeouts = timeouts,
        .out = out,
    };

    *out = (struct torch_groups){0};
    if (!is_there(target))
        return -ENOENT;
    int r = imports_read_one(target, is, MODULE, &reader, &listing);
    return r < 0 ? r : out->n ? 0 : -ENOENT;
}

int torch_groups_read(struct target *target, struct torch_groups *out)
{
    return list_groups(target, false, out);
}

int torch_timeouts_read(struct target *target, struct torch_groups *out)
{
    return list_groups(target, true, out);
}
