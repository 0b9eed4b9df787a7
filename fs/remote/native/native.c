#include "fs/remote/native/native.h"

#include "agent/base/cleanup.h"
#include "fs/remote/native/unwind.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FIRST_SLEEPING (4u << 10) /* bytes of a stack, when nothing is known of the thread */
#define FIRST_STOPPED (64u << 10)
#define NEEDS 1024                    /* threads whose stack's size is remembered */
#define ARENA_KEPT (8u << 20)         /* bytes of copies that stay allocated between readings */
#define TLS_DISTANCE_MAX (1ull << 30) /* a thread's stack and its pthread_t are one mapping */

struct need {
    pid_t tid;
    uint32_t size; /* bytes of the stack that unwinding used */
};

struct native {
    const struct memory *memory;
    struct unwinder unwinder;
    int tasks;      /* /proc/PID/task, or -1 */
    uint8_t *arena; /* the copies of one reading */
    size_t arena_used, arena_alloc;
    uint8_t *longer; /* NATIVE_STACK_MAX: the copy of one stack that was too short */
    struct need needs[NEEDS];
    struct native_frame frames[NATIVE_FRAMES_MAX];
};

void native_regs_set(struct native_regs *regs, const struct registers *registers)
{
    regs->known = (1ull << REGS_N) - 1;
    registers_to_dwarf(registers, regs->value);
}

const char *native_end_describe(enum native_end end)
{
    switch (end) {
    case NATIVE_BASE: return NULL;
    case NATIVE_RUNNING: return "no native frames: the thread was running";
    case NATIVE_GONE: return "no native frames: the thread can't be looked at";
    case NATIVE_TORN: return "no native frames: the thread ran meanwhile";
    case NATIVE_NO_INFO: return "native frames end: function without unwind information";
    case NATIVE_NO_MODULE: return "native frames end: code generated at run time";
    case NATIVE_NO_REGISTER:
        return ARCH_CALL_PUSHES ? "native frames end: frame pointer not known"
                                : "native frames end: register not known";
    case NATIVE_UNREADABLE: return "native frames end: stack not readable";
    case NATIVE_SHORT: return "native frames end: stack deeper than was copied";
    case NATIVE_LIMIT: return "native frames end: too many";
    }
    return "native frames end";
}

int native_new(const struct memory *memory, struct native **out)
{
    struct native *native = calloc(1, sizeof *native);

    if (!native)
        return -ENOMEM;
    native->memory = memory;
    native->tasks = -1;
    unwinder_init(&native->unwinder, memory);
    *out = native;
    return 0;
}

void native_free(struct native *native)
{
    if (!native)
        return;
    unwinder_deinit(&native->unwinder);
    if (native->tasks >= 0)
        close(native->tasks);
    free(native->arena);
    free(native->longer);
    free(native);
}

size_t native_size(const struct native *native)
{
    return unwinder_size(&native->unwinder) + native->arena_alloc +
           (native->longer ? NATIVE_STACK_MAX : 0);
}

void native_rest(struct native *native)
{
    free(steal_pointer(native->arena));
    free(steal_pointer(native->longer));
    native->arena_used = native->arena_alloc = 0;
}

void native_forget(struct native *native)
{
    unwinder_forget(&native->unwinder);
    native_rest(native);
}

void native_use(struct native *native, const struct unwind_engine *engine)
{
    if (native->unwinder.engine->forget)
        native->unwinder.engine->forget(&native->unwinder);
    native->unwinder.engine = engine;
}

void native_begin(struct native *native)
{
    native->arena_used = 0;
    if (native->arena_alloc > ARENA_KEPT) {
        free(steal_pointer(native->arena));
        native->arena_alloc = 0;
    }
    free(steal_pointer(native->longer));
}

/* Reads a small file of a thread into a string. 0, or -errno. */
static int read_task_file(struct native *native, pid_t tid, const char *name, char *buf, size_t cap)
{
    char path[64];

    if (native->tasks < 0) {
        snprintf(path, sizeof path, "/proc/%d/task", (int)native->memory->pid);
        native->tasks = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (native->tasks < 0)
            return errno == ENOENT ? -ESRCH : -errno;
    }
    snprintf(path, sizeof path, "%d/%s", (int)tid, name);
    _cleanup_close_ int fd = openat(native->tasks, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t n = read(fd, buf, cap - 1);
    if (n < 0)
        return -errno;
    buf[n] = 0;
    return 0;
}

/* "NR ARG*6 SP PC", "-1 SP PC" or "running": proc_pid_syscall(5). */
static bool parse_syscall(const char *line, struct native_stack *stack)
{
    unsigned long long value[8];
    char *end;
    int n = 0;

    if (line[0] == 'r')
        return false;
    stack->syscall = strtol(line, &end, 10);
    while (n < 8 && *end == ' ')
        value[n++] = strtoull(end, &end, 16);
    if (n != 2 && n != 8)
        return false;
    for (int i = 0; i < LWP_ARGUMENTS; i++)
        stack->args[i] = n == 8 ? value[i] : 0;
    regs_put(&stack->regs, DW_SP, value[n - 2]);
    regs_put(&stack->regs, DW_PC, value[n - 1]);
    return value[n - 2] && value[n - 1];
}

/* Time on a processor changes whenever a thread has run, by nanoseconds even; where the kernel
 * was built without it, the arguments of its system call must do. */
static int read_ran(struct native *native, pid_t tid, char *buf, size_t cap)
{
    int r = read_task_file(native, tid, "schedstat", buf, cap);
    return r == -ESRCH ? read_task_file(native, tid, "syscall", buf, cap) : r;
}

/* Stack pointer and program counter of a thread that sleeps; sets `end` of one that doesn't. */
static void look_up_sleeping(struct native *native, struct native_stack *stack)
{
    char line[256];

    stack->regs = (struct native_regs){0};
    int r = read_ran(native, stack->tid, stack->ran, sizeof stack->ran);
    if (r == 0)
        r = read_task_file(native, stack->tid, "syscall", line, sizeof line);
    if (r < 0)
        stack->end = NATIVE_GONE;
    else if (!parse_syscall(line, stack))
        stack->end = NATIVE_RUNNING;
}

static struct need *need_of(struct native *native, pid_t tid)
{
    return &native->needs[(unsigned)tid % NEEDS];
}

static uint32_t first_size(struct native *native, const struct native_stack *stack)
{
    const struct need *need = need_of(native, stack->tid);

    if (need->tid != stack->tid)
        return stack->stopped ? FIRST_STOPPED : FIRST_SLEEPING;
    /* a thread that ran since may be deeper in calls now */
    uint32_t size = stack->stopped ? need->size * 2 + FIRST_SLEEPING : need->size;
    return size < NATIVE_STACK_MAX ? size : NATIVE_STACK_MAX;
}

/* The end of a copy that begins at low and would like to have size bytes. */
static uint64_t limit_copy(const struct maps *maps, const struct native_stack *stack, uint64_t low,
                           uint64_t size, bool *cut)
{
    uint64_t sp = stack->regs.value[DW_SP], high = low + size;
    const struct mapping *mapping = maps ? maps_find(maps, sp) : NULL;

    *cut = true;
    if (high < low)
        high = UINT64_MAX & ~7ull;
    if (mapping && high > mapping->end) {
        high = mapping->end;
        *cut = false;
    }
    if (stack->tls > sp && stack->tls - sp < TLS_DISTANCE_MAX && high > stack->tls) {
        high = stack->tls;
        *cut = false;
    }
    return high;
}

/* Room for size more bytes of copies: their place in the arena, or SIZE_MAX. */
static size_t reserve(struct native *native, size_t size)
{
    size_t at = native->arena_used, alloc = native->arena_alloc ? native->arena_alloc : 64 << 10;

    if (size > NATIVE_COPIES_MAX - at)
        return SIZE_MAX;
    while (alloc < at + size)
        alloc *= 2;
    if (alloc > native->arena_alloc) {
        uint8_t *arena = realloc(native->arena, alloc);
        if (!arena)
            return SIZE_MAX;
        native->arena = arena;
        native->arena_alloc = alloc;
    }
    native->arena_used += size;
    return at;
}

/* Copies [low, high) as far as it is readable. Where thread stacks lie side by side, glibc 2.43
 * guards them without a mapping of its own, so that no map tells where reading must end. Returns
 * the bytes that arrived. */
static size_t read_by_pages(const struct memory *m, uint64_t low, uint64_t high, uint8_t *data)
{
    struct memory_range ranges[64];
    uint64_t done = low;

    while (done < high) {
        size_t n = 0;
        for (uint64_t at = done; at < high && n < ARRAY_SIZE(ranges); n++) {
            uint64_t next = (at | 4095) + 1 < high ? (at | 4095) + 1 : high;
            ranges[n] = (struct memory_range){.addr = at,
                                              .data = data + (at - low),
                                              .len = (uint32_t)(next - at)};
            at = next;
        }
        if (memory_read_ranges(m, ranges, n) < 0)
            return done - low;
        for (size_t i = 0; i < n; i++) {
            if (!ranges[i].ok)
                return done - low;
            done += ranges[i].len;
        }
    }
    return done - low;
}

/* Finds room for the copies; stacks that have none get an `end`. */
static void plan_copies(struct native *native, const struct maps *maps, struct native_stack *stacks,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct native_stack *stack = &stacks[i];
        if (stack->end)
            continue;
        stack->low = (stack->regs.value[DW_SP] - ARCH_RED_ZONE) & ~7ull;
        stack->high = limit_copy(maps, stack, stack->low, first_size(native, stack), &stack->cut);
        if (stack->high <= stack->low) {
            stack->end = NATIVE_UNREADABLE;
            continue;
        }
        stack->copy = reserve(native, stack->high - stack->low);
        if (stack->copy == SIZE_MAX)
            stack->end = NATIVE_LIMIT;
    }
}

int native_capture(struct native *native, const struct maps *maps, struct native_stack *stacks,
                   size_t n)
{
    _cleanup_free_ struct memory_range *ranges = calloc(n ? n : 1, sizeof *ranges);
    size_t nranges = 0;

    if (!ranges)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        stacks[i].end = 0;
        stacks[i].syscall = -1;
        stacks[i].frames = NULL;
        stacks[i].nframes = 0;
        if (!stacks[i].stopped)
            look_up_sleeping(native, &stacks[i]);
    }
    plan_copies(native, maps, stacks, n);
    for (size_t i = 0; i < n; i++)
        if (!stacks[i].end)
            ranges[nranges++] =
                (struct memory_range){.addr = stacks[i].low,
                                      .data = native->arena + stacks[i].copy,
                                      .len = (uint32_t)(stacks[i].high - stacks[i].low)};
    int r = memory_read_ranges(native->memory, ranges, nranges);
    if (r < 0)
        return r;
    for (size_t i = 0, k = 0; i < n; i++) {
        struct native_stack *stack = &stacks[i];
        if (stack->end || ranges[k++].ok)
            continue;
        stack->high = stack->low + read_by_pages(native->memory, stack->low, stack->high,
                                                 native->arena + stack->copy);
        stack->cut = false;
        if (stack->high == stack->low)
            stack->end = NATIVE_UNREADABLE;
    }
    return 0;
}

/* Copies a sleeping thread's stack again, twice as much of it. False: no use. */
static bool copy_longer(struct native *native, const struct maps *maps,
                        const struct native_stack *stack, struct stack_copy *copy)
{
    uint64_t size = (copy->high - copy->low) * 4;

    if (stack->stopped || copy->high - copy->low >= NATIVE_STACK_MAX)
        return false;
    if (size > NATIVE_STACK_MAX)
        size = NATIVE_STACK_MAX;
    if (!native->longer && !(native->longer = malloc(NATIVE_STACK_MAX)))
        return false;
    copy->high = limit_copy(maps, stack, copy->low, size, &copy->cut);
    struct memory_range range = {.addr = copy->low,
                                 .data = native->longer,
                                 .len = (uint32_t)(copy->high - copy->low)};
    if (memory_read_ranges(native->memory, &range, 1) < 0)
        return false;
    if (!range.ok) {
        copy->high = copy->low +
                     read_by_pages(native->memory, copy->low, copy->high, native->longer);
        copy->cut = false;
    }
    copy->data = native->longer;
    return true;
}

/* Remembers how much of the stack was of use. */
static void note_need(struct native *native, const struct native_stack *stack, size_t n)
{
    uint64_t used = n ? native->frames[n - 1].sp - stack->low + 512 : FIRST_SLEEPING;

    if (stack->end == NATIVE_SHORT)
        used = (stack->high - stack->low) * 4;
    if (used > NATIVE_STACK_MAX)
        used = NATIVE_STACK_MAX;
    *need_of(native, stack->tid) = (struct need){stack->tid, ((uint32_t)used + 511) & ~511u};
}

static int unwind_stack(struct native *native, const struct maps *maps, struct native_stack *stack)
{
    struct stack_copy copy = {.low = stack->low,
                              .high = stack->high,
                              .data = native->arena + stack->copy,
                              .cut = stack->cut};
    size_t n = 0;

    do
        stack->end =
            unwind(&native->unwinder, &copy, &stack->regs, native->frames, NATIVE_FRAMES_MAX, &n);
    while (stack->end == NATIVE_SHORT && copy_longer(native, maps, stack, &copy));
    note_need(native, stack, n);
    if (stack->end == NATIVE_SHORT && copy.high - copy.low >= NATIVE_STACK_MAX)
        stack->end = NATIVE_LIMIT;
    stack->frames = malloc((n ? n : 1) * sizeof *stack->frames);
    if (!stack->frames)
        return -ENOMEM;
    memcpy(stack->frames, native->frames, n * sizeof *stack->frames);
    stack->nframes = n;
    return 0;
}

/* Whether a thread that slept has not run since. */
static bool still_sleeps(struct native *native, const struct native_stack *stack)
{
    char now[sizeof stack->ran];

    return read_ran(native, stack->tid, now, sizeof now) == 0 && !strcmp(now, stack->ran);
}

int native_unwind(struct native *native, const struct maps *maps, uint64_t image_base,
                  struct native_stack *stacks, size_t n)
{
    int r = unwinder_refresh(&native->unwinder, maps, image_base);

    for (size_t i = 0; i < n && r == 0; i++)
        if (!stacks[i].end)
            r = unwind_stack(native, maps, &stacks[i]);
    for (size_t i = 0; i < n && r == 0; i++) {
        struct native_stack *stack = &stacks[i];
        if (!stack->frames || stack->stopped || still_sleeps(native, stack))
            continue;
        free(steal_pointer(stack->frames));
        stack->nframes = 0;
        stack->end = NATIVE_TORN;
    }
    native_begin(native);
    return r;
}

void native_stacks_deinit(struct native_stack *stacks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(steal_pointer(stacks[i].frames));
        stacks[i].nframes = 0;
    }
}

void native_resolve(struct native *native, const struct native_frame *frame,
                    struct native_symbol *out)
{
    const struct pc *pc = unwinder_name(&native->unwinder, frame->pc, frame->exact);
    const struct module *module = pc->module;

    *out = (struct native_symbol){.name = pc->shown,
                                  .module = module ? module->name : "",
                                  .offset = frame->pc};
    if (module)
        out->offset -= module->state == MODULE_READ ? module->image.bias
                                                    : module->start - module->offset;
}
