/* One reading of all tasks: what its steps share. */
#pragma once

#include "fs/remote/objects/coroutine.h"
#include "fs/remote/memory/prefetch.h"
#include "fs/remote/tasks/awaitable.h"
#include "fs/remote/tasks/tasks.h"

/* Numbers under addresses: open addressing, never more than half full. */
struct address_table {
    struct address_slot {
        uint64_t addr; /* 0: free */
        uint32_t number;
    } * slots;
    size_t n, size;
};

/* What a task holds besides what is shown. */
struct task_links {
    bool listed; /* in a list of tasks proper: it is one, or a broken one */
    uint64_t interp;
    uint64_t loop, coro, name, waiter;
    uint64_t callback0, callbacks; /* the first callback, the list of the others; or 0 */
    uint64_t awaited_by;           /* an object, or a set of them; or 0 */
    bool awaited_by_is_set;
    bool handed;                /* awaited_by may name who doesn't await it: tasks_awaits.c */
    uint64_t next;              /* the object that the innermost frame so far awaits */
    uint32_t last;              /* that frame, or TASKS_NONE */
    struct coroutine executing; /* its coroutine, where that runs; else frame is 0 */
};

#define TYPE_NAMES 64

struct reading {
    struct view *view;
    const struct offsets *offsets;
    const struct tasks_origin *origin;
    struct tasks *out;
    struct task_links *links; /* one for each task */
    size_t links_alloc;
    struct prefetch prefetch;
    struct awaitable_cache types;
    struct address_table index; /* task's address -> its index */
    struct {
        uint64_t type;
        uint32_t name;        /* tasks_string() */
    } type_names[TYPE_NAMES]; /* some of those met, for names are slow to find */
    uint64_t start;           /* CLOCK_MONOTONIC, ns */
    uint64_t cpu_start;       /* CLOCK_THREAD_CPUTIME_ID, ns */
    int error;                /* -ENOMEM, -ESRCH, -EPERM: sticky */
};

/* tasks_list.c: finds all tasks: their addresses, nothing else. */
void tasks_list(struct reading *reading);
/* tasks_fields.c: reads their fields, drops those that are done. */
void tasks_read_fields(struct reading *reading);
/* tasks_chains.c: follows what each one's coroutine awaits, then what the threads run. */
void tasks_read_chains(struct reading *reading);
/* tasks_awaits.c: finds who awaits whom. */
void tasks_read_awaits(struct reading *reading);

/* The number under addr, or TASKS_NONE. */
uint32_t address_table_find(const struct address_table *table, uint64_t addr);
/* Adds it unless it is there. False: it was, or there is no memory. */
bool address_table_add(struct address_table *table, uint64_t addr, uint32_t number);
void address_table_deinit(struct address_table *table);

/* Room for n items: the array, perhaps moved, or NULL, and reading->error is set. */
void *reading_grow(struct reading *reading, void *array, size_t *alloc, size_t n, size_t size);
/* Whether the time for one reading is over: the target may stand still for it, and one that means
 * no good could keep us busy. Marks the result as cut. */
bool reading_expired(struct reading *reading);
/* Copies all pages wanted. */
void reading_fetch(struct reading *reading);
enum awaitable_kind reading_classify(struct reading *reading, uint64_t object);
/* Begins a string; what is added to out->strings until reading_string_end() belongs to it. */
uint32_t reading_string_begin(struct reading *reading);
void reading_string_end(struct reading *reading);
/* The name of an object's type as a string; 0 if it can't be told. */
uint32_t reading_type_name(struct reading *reading, uint64_t object);
/* Adds `<module.Type object at 0x...>`, as repr() shows most objects. */
uint32_t reading_describe(struct reading *reading, uint64_t object);
