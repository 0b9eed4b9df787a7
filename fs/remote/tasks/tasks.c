#include "fs/remote/tasks/tasks.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/tasks/tasks_reading.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static size_t slot_of(const struct address_table *table, uint64_t addr)
{
    size_t i = (size_t)((addr >> 3) * 0x9e3779b97f4a7c15ull >> 16) & (table->size - 1);
    while (table->slots[i].addr && table->slots[i].addr != addr)
        i = (i + 1) & (table->size - 1);
    return i;
}

uint32_t address_table_find(const struct address_table *table, uint64_t addr)
{
    if (!table->n || !addr)
        return TASKS_NONE;
    const struct address_slot *slot = &table->slots[slot_of(table, addr)];
    return slot->addr ? slot->number : TASKS_NONE;
}

bool address_table_add(struct address_table *table, uint64_t addr, uint32_t number)
{
    if (2 * (table->n + 1) > table->size) {
        struct address_table larger = {.size = table->size ? table->size * 2 : 1024};
        larger.slots = calloc(larger.size, sizeof *larger.slots);
        if (!larger.slots)
            return false;
        for (size_t i = 0; i < table->size; i++)
            if (table->slots[i].addr)
                larger.slots[slot_of(&larger, table->slots[i].addr)] = table->slots[i];
        free(table->slots);
        larger.n = table->n;
        *table = larger;
    }
    struct address_slot *slot = &table->slots[slot_of(table, addr)];
    if (slot->addr)
        return false;
    *slot = (struct address_slot){addr, number};
    table->n++;
    return true;
}

void address_table_deinit(struct address_table *table)
{
    free(table->slots);
    *table = (struct address_table){0};
}

void *reading_grow(struct reading *reading, void *array, size_t *alloc, size_t n, size_t size)
{
    if (n <= *alloc)
        return array;
    size_t want = *alloc ? *alloc * 2 : 64;
    while (want < n)
        want *= 2;
    void *more = realloc(array, want * size);
    if (!more) {
        reading->error = -ENOMEM;
        return NULL;
    }
    *alloc = want;
    return more;
}

bool reading_expired(struct reading *reading)
{
    uint64_t wall = monotonic_ns() - reading->start;

    if (wall <= TASKS_CPU_NS) /* the cheaper clock */
        return false;
    if (wall <= TASKS_DEADLINE_NS && thread_cpu_ns() - reading->cpu_start <= TASKS_CPU_NS)
        return false;
    reading->out->cut = true;
    return true;
}

void reading_fetch(struct reading *reading)
{
    int r = prefetch_run(&reading->prefetch, reading->view);
    if (r < 0 && !reading->error)
        reading->error = r;
}

enum awaitable_kind reading_classify(struct reading *reading, uint64_t object)
{
    return awaitable_classify(reading->view, reading->offsets, reading->origin->asyncio,
                              &reading->types, object);
}

/* Offset 0 is the empty string; each other one follows a NUL. */
uint32_t reading_string_begin(struct reading *reading)
{
    return (uint32_t)reading->out->strings.size;
}

void reading_string_end(struct reading *reading)
{
    text_putc(&reading->out->strings, 0);
    if (reading->out->strings.error)
        reading->error = -ENOMEM;
}

uint32_t reading_type_name(struct reading *reading, uint64_t object)
{
    uint64_t type;

    if (!object_type(reading->view, reading->offsets, object, &type))
        return 0;
    size_t slot = (type >> 4) % TYPE_NAMES;
    if (reading->type_names[slot].type != type) {
        uint32_t name = reading_string_begin(reading);
        if (type_add_name(reading->view, reading->offsets, type, &reading->out->strings) < 0)
            name = 0;
        reading_string_end(reading);
        reading->type_names[slot].type = type;
        reading->type_names[slot].name = name;
    }
    return reading->type_names[slot].name;
}

uint32_t reading_describe(struct reading *reading, uint64_t object)
{
    uint32_t name = reading_type_name(reading, object);
    uint32_t string = reading_string_begin(reading);
    struct text *strings = &reading->out->strings;
    char type[TASK_NAME_MAX]; /* the text may move while it grows */

    snprintf(type, sizeof type, "%s", name ? tasks_string(reading->out, name) : "??");
    text_printf(strings, "<%s object at 0x%llx>", type, (unsigned long long)object);
    reading_string_end(reading);
    return string;
}

static void clear(struct tasks *tasks)
{
    tasks->n = tasks->nloops = tasks->nframes = tasks->nedges = 0;
    tasks->cut = tasks->torn = false;
    text_clear(&tasks->strings);
    text_putc(&tasks->strings, 0);
}

/* Code objects of all frames; those on a thread's stack have been looked up by the walk. */
static void find_codes(struct reading *reading)
{
    struct tasks *out = reading->out;
    uint32_t size = code_head_size(reading->offsets);
    uint64_t code_type = reading->origin->runtime->code_type;
    struct address_table known = {0};

    for (size_t i = 0; i < out->nframes; i++)
        if (!out->frames[i].info && address_table_add(&known, out->frames[i].code, 0))
            prefetch_want(&reading->prefetch, out->frames[i].code, size);
    reading_fetch(reading);
    address_table_deinit(&known);

    for (size_t i = 0; i < out->nframes && !reading->error; i++) {
        struct task_frame *f = &out->frames[i];
        if (f->info)
            continue;
        const uint8_t *head = view_read(reading->view, f->code, size);
        if (!head || (code_type && load64(head + reading->offsets->object_type) != code_type))
            continue;
        f->info = code_cache_find(reading->origin->codes, reading->offsets, f->code, head);
        if (!f->info)
            reading->error = -ENOMEM;
    }
}

int tasks_read(struct view *view, const struct tasks_origin *origin, struct tasks *out)
{
    struct reading reading = {
        .view = view,
        .offsets = &origin->runtime->offsets,
        .origin = origin,
        .out = out,
        .start = monotonic_ns(),
        .cpu_start = thread_cpu_ns(),
    };
    void (*const steps[])(struct reading *) = {tasks_list, tasks_read_fields, tasks_read_chains,
                                               tasks_read_awaits, find_codes};

    clear(out);
    out->read_ns = reading.start;
    for (size_t i = 0; i < ARRAY_SIZE(steps) && !reading.error; i++)
        steps[i](&reading);
    free(reading.links);
    prefetch_deinit(&reading.prefetch);
    address_table_deinit(&reading.index);
    return reading.error;
}

int tasks_read_along(struct target *target, const struct asyncio *asyncio,
                     const struct moment *moment, const struct lwp_list *lwps, struct tasks *out)
{
    const struct tasks_origin origin = {
        .runtime = &target->runtime,
        .asyncio = asyncio,
        .codes = target->codes,
        .walk = moment->walk,
    };

    int r = tasks_read(target->view, &origin, out);
    for (size_t i = 0; i < out->nloops && r == 0; i++)
        if (out->loops[i].stack < moment->walk->n)
            out->loops[i].tid =
                moment_tid(target, lwps, &moment->walk->stacks[out->loops[i].stack]);
    return r;
}

const char *tasks_string(const struct tasks *tasks, uint32_t string)
{
    return string < tasks->strings.size ? tasks->strings.data + string : "";
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

bool task_loop_selects(const struct task_loop *loop)
{
    const struct code *code = loop->at.info;

    return code && code->state == CODE_LOADED && ends_with(code->file, "/selectors.py") &&
           ends_with(code->name, "select");
}

uint32_t task_loop_runs(const struct tasks *tasks, uint32_t loop)
{
    uint32_t runs = TASKS_NONE;

    for (uint32_t t = 0; t < tasks->n; t++) {
        const struct task *task = &tasks->items[t];
        if (task->loop != loop || task->state != TASK_RUNNING)
            continue;
        runs = t;
        for (uint32_t f = task->frames; f != TASKS_NONE; f = tasks->frames[f].next)
            if (tasks->frames[f].next == TASKS_NONE &&
                tasks->frames[f].code == tasks->loops[loop].at.code &&
                tasks->frames[f].lasti == tasks->loops[loop].at.lasti)
                return t; /* not one that called another one's first step */
    }
    return runs;
}

const char *task_state_name(const struct task *task)
{
    switch (task->state) {
    case TASK_RUNNING: return task->cancelling ? "running, cancelling" : "running";
    case TASK_READY: return task->cancelling ? "ready, cancelling" : "ready";
    case TASK_WAITING: return task->cancelling ? "waiting, cancelling" : "waiting";
    case TASK_UNREADABLE: break;
    }
    return "unreadable";
}

void tasks_deinit(struct tasks *tasks)
{
    free(tasks->items);
    free(tasks->loops);
    free(tasks->frames);
    free(tasks->edges);
    text_deinit(&tasks->strings);
    *tasks = (struct tasks){0};
}
