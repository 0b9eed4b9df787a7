/* Finds the tasks.
 *
 * 3.14 on     a list in each thread state, and one in the interpreter for the tasks of threads
 * that are gone: `struct llist_node`, circular, the head is part of it. A task that
 * runs its first step eagerly is in no list, but in a set of the module's state, as
 * are the tasks of foreign classes that registered themselves.
 * all         asyncio.tasks._scheduled_tasks, a WeakSet, and _eager_tasks, a set. Up to 3.13
 * they are the C module's own; later they hold the tasks written in Python.
 *
 * Sources: Modules/_asynciomodule.c, Lib/asyncio/tasks.py, Include/internal/pycore_llist.h. */
#include "fs/remote/tasks/tasks_reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INTERPRETERS_MAX 256 /* looked into */

/* PyModuleObject.md_state: behind md_dict and, up to 3.14, md_def */
#define MODULE_STATE_3_14 16
#define MODULE_STATE_3_15 8
/* asyncio_state is some 25 words */
#define STATE_WORDS 32

static void add_task(struct reading *reading, uint64_t interp, uint64_t addr, bool listed)
{
    struct tasks *out = reading->out;

    if (!addr || addr & 7 || address_table_find(&reading->index, addr) != TASKS_NONE)
        return;
    if (out->n >= TASKS_MAX) {
        out->cut = true;
        return;
    }
    void *items = reading_grow(reading, out->items, &out->alloc, out->n + 1, sizeof *out->items);
    if (!items)
        return;
    out->items = items;
    void *links = reading_grow(reading, reading->links, &reading->links_alloc, out->n + 1,
                               sizeof *reading->links);
    if (!links)
        return;
    reading->links = links;
    if (!address_table_add(&reading->index, addr, (uint32_t)out->n))
        return;
    reading->links[out->n] =
        (struct task_links){.interp = interp, .listed = listed, .last = TASKS_NONE};
    out->items[out->n++] =
        (struct task){.addr = addr, .loop = TASKS_NONE, .frames = TASKS_NONE, .order = TASKS_NONE};
}

/* Follows a list from its head, to which tasks are added at the end. Each node must point back to
 * where we came from. */
static void add_list(struct reading *reading, uint64_t interp, uint64_t head)
{
    uint64_t before = head, node;

    if (!view_read64(reading->view, head, &node)) {
        reading->out->torn = true;
        return;
    }
    for (size_t i = 0; node && node != head; i++) {
        const uint8_t *p = NULL;
        if (i > TASKS_MAX) {
            reading->out->cut = true;
            return;
        }
        if (!(node & 7))
            p = prefetch_read(reading->view, node, 16);
        if (!p || load64(p + 8) != before) {
            reading->out->torn = true;
            return;
        }
        size_t n = reading->out->n;
        add_task(reading, interp, node - (uint32_t)reading->origin->asyncio->node, true);
        if (reading->out->n > n)
            reading->out->items[n].order = (uint32_t)n;
        before = node;
        node = load64(p);
    }
}

struct collection {
    struct reading *reading;
    uint64_t *items;
    size_t n, alloc;
};

static int collect(void *arg, uint64_t item)
{
    struct collection *c = arg;

    void *items = reading_grow(c->reading, c->items, &c->alloc, c->n + 1, sizeof *c->items);
    if (!items || c->n >= ENTRIES_MAX || (c->n % 64 == 63 && reading_expired(c->reading)))
        return 1;
    c->items = items;
    c->items[c->n++] = item;
    prefetch_want(&c->reading->prefetch, item, (uint32_t)c->reading->offsets->weakref_object + 8);
    return 0;
}

/* The tasks in a set, or those that weak references in it lead to. */
static void add_set(struct reading *reading, uint64_t interp, uint64_t set, bool weak)
{
    struct collection c = {.reading = reading};
    uint64_t used = 0;

    int r = set_iterate(reading->view, reading->offsets, set, collect, &c, &used);
    if (r > 0 || r == -E2BIG)
        reading->out->cut = true;
    else if (r < 0 || c.n != used) /* a table that grows is filled anew */
        reading->out->torn = true;
    reading_fetch(reading);
    for (size_t i = 0; i < c.n && !reading->error; i++) {
        uint64_t task = c.items[i];
        if (!weak || object_field(reading->view, task, reading->offsets->weakref_object, &task))
            add_task(reading, interp, task, false);
    }
    free(c.items);
}

/* weakref.WeakSet keeps its references in `data` (Lib/_weakrefset.py). */
static void add_weak_set(struct reading *reading, uint64_t interp, uint64_t set)
{
    uint64_t data;

    if (instance_attribute(reading->view, reading->offsets, set, "data", &data) == 0)
        add_set(reading, interp, data, true);
}

/* The sets among the words of the C module's state. What isn't a task in them is dropped later. */
static void add_module_state(struct reading *reading, uint64_t interp, uint64_t module)
{
    struct view *view = reading->view;
    const struct offsets *o = reading->offsets;
    uint64_t state, word;

    int32_t behind = o->version >= 0x030f0000 ? MODULE_STATE_3_15 : MODULE_STATE_3_14;

    if (!object_field(view, module, o->object_size + behind, &state) || !state || state & 7)
        return;
    for (size_t i = 0; i < STATE_WORDS && !reading->error && !reading_expired(reading); i++) {
        struct object_class class;
        if (!view_read64(view, state + 8 * i, &word))
            return;
        if (!word || word & 7 || object_classify(view, o, word, &class) < 0)
            continue;
        const char *type = tasks_string(reading->out, reading_type_name(reading, word));
        if (class.kind == OBJECT_SET)
            add_set(reading, interp, word, false);
        else if (!strcmp(type, "_weakrefset.WeakSet"))
            add_weak_set(reading, interp, word);
    }
}

static void add_modules(struct reading *reading, uint64_t interp)
{
    struct view *view = reading->view;
    const struct offsets *o = reading->offsets;
    uint64_t modules, module, dict, set;

    if (!object_field(view, interp, o->interp_modules, &modules))
        return;
    if (o->version >= 0x030e0000 && reading->origin->asyncio->known &&
        dict_lookup_str(view, o, modules, "_asyncio", &module) == 0)
        add_module_state(reading, interp, module);
    if (dict_lookup_str(view, o, modules, "asyncio.tasks", &module) < 0 ||
        !object_field(view, module, o->module_dict, &dict))
        return;
    if (dict_lookup_str(view, o, dict, "_eager_tasks", &set) == 0)
        add_set(reading, interp, set, false);
    if (dict_lookup_str(view, o, dict, "_scheduled_tasks", &set) == 0)
        add_weak_set(reading, interp, set);
}

static void add_interpreter(struct reading *reading, uint64_t interp)
{
    const struct asyncio *asyncio = reading->origin->asyncio;

    if (asyncio->known && asyncio->interp_tasks >= 0)
        add_list(reading, interp, interp + (uint32_t)asyncio->interp_tasks);
    add_modules(reading, interp);
}

void tasks_list(struct reading *reading)
{
    const struct asyncio *asyncio = reading->origin->asyncio;
    const struct walk *walk = reading->origin->walk;
    uint64_t seen[INTERPRETERS_MAX], task;
    size_t nseen = 0;

    for (size_t i = 0; i < walk->n && !reading->error && !reading_expired(reading); i++) {
        const struct stack *s = &walk->stacks[i];
        size_t k = 0;
        while (k < nseen && seen[k] != s->interp)
            k++;
        if (k == nseen && nseen < INTERPRETERS_MAX) {
            seen[nseen++] = s->interp;
            add_interpreter(reading, s->interp);
        }
        if (!asyncio->known || asyncio->tstate_tasks < 0)
            continue;
        add_list(reading, s->interp, s->tstate + (uint32_t)asyncio->tstate_tasks);
        if (object_field(reading->view, s->tstate, asyncio->tstate_task, &task))
            add_task(reading, s->interp, task, true);
    }
}
