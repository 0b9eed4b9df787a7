#include "fs/inject/safe_point.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/vma.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#define EVAL "_PyEval_EvalFrameDefault"
#define BASE_FRAMES_MAX 2         /* of libc below a thread's function, or below main() */
#define DESCRIPTION_SIZE 2304     /* bytes of glibc's description of a thread that are looked at */
#define DESCRIPTION_END_MAX 65536 /* from where it begins to the end of the stack */

/* How much of a stack is looked at: most often the evaluation loop is near. */
static const struct {
    size_t bytes, frames;
} depths[] = {{16u << 10, 48}, {NATIVE_STACK_MAX, NATIVE_FRAMES_MAX}};

enum code_kind { CODE_OTHER, CODE_LIBC, CODE_LOADER, CODE_MALLOC };

/* What a module is, found once. */
struct code {
    uint64_t start, base, inode;
    enum code_kind kind;
};

struct safe_points {
    const struct memory *memory;
    struct maps maps;
    struct unwinder unwinder;
    struct libc_symbols libc;
    struct code *codes; /* as unwinder.modules.items */
    size_t ncodes;
    uint64_t image_base, eval;
    struct vmas *vmas;
    bool cpython;       /* of the last judgement: libc was called by CPython's own code */
    bool waits, inside; /* likewise: it waits in libc; a frame of the interpreter's was seen */
    uint8_t *stack;     /* NATIVE_STACK_MAX */
    struct native_frame frames[NATIVE_FRAMES_MAX];
};

int safe_points_new(const struct memory *memory, struct safe_points **out)
{
    struct safe_points *points = calloc(1, sizeof *points);

    if (!points)
        return -ENOMEM;
    points->memory = memory;
    unwinder_init(&points->unwinder, memory);
    points->stack = malloc(NATIVE_STACK_MAX);
    if (!points->stack || vmas_new(memory->pid, &points->vmas) < 0) {
        safe_points_free(points);
        return -ENOMEM;
    }
    *out = points;
    return 0;
}

void safe_points_free(struct safe_points *points)
{
    if (!points)
        return;
    vmas_free(points->vmas);
    free(points->stack);
    free(points->codes);
    unwinder_deinit(&points->unwinder);
    maps_deinit(&points->maps);
    free(points);
}

const struct libc_symbols *safe_points_libc(const struct safe_points *points)
{
    return &points->libc;
}

const struct maps *safe_points_maps(const struct safe_points *points) { return &points->maps; }

struct modules *safe_points_modules(struct safe_points *points)
{
    return &points->unwinder.modules;
}

/* ---- what each module is ---- */

static enum code_kind kind_of(struct safe_points *points, size_t i)
{
    struct modules *modules = &points->unwinder.modules;
    const struct module *module = &modules->items[i];
    uint64_t addr;

    if (libc_is_library(module))
        return CODE_LIBC;
    if (libc_is_loader(module))
        return CODE_LOADER;
    modules_find(modules, module->start); /* reads its image */
    if (module->state == MODULE_READ &&
        elf_image_symbol(points->memory, &module->image, "malloc", &addr, NULL) == 0)
        return CODE_MALLOC;
    return CODE_OTHER;
}

static int find_kinds(struct safe_points *points)
{
    const struct modules *modules = &points->unwinder.modules;
    struct code *codes = calloc(modules->n + 1, sizeof *codes);
    size_t old = 0;

    if (!codes)
        return -ENOMEM;
    for (size_t i = 0; i < modules->n; i++) {
        const struct module *m = &modules->items[i];
        while (old < points->ncodes && points->codes[old].start < m->start)
            old++;
        const struct code *c = old < points->ncodes ? &points->codes[old] : NULL;
        bool known = c && c->start == m->start && c->base == m->base && c->inode == m->inode;
        codes[i] = (struct code){m->start, m->base, m->inode, known ? c->kind : kind_of(points, i)};
    }
    free(points->codes);
    points->codes = codes;
    points->ncodes = modules->n;
    return 0;
}

static void find_eval(struct safe_points *points, uint64_t image_base)
{
    struct elf_image image;

    if (image_base == points->image_base)
        return;
    points->image_base = image_base;
    points->eval = 0;
    if (elf_image_read(points->memory, image_base, &image) == 0)
        elf_image_symbol(points->memory, &image, EVAL, &points->eval, NULL);
}

int safe_points_refresh(struct safe_points *points, uint64_t image_base, struct text *why)
{
    struct maps maps;

    int r = maps_read(points->memory->pid, &maps);
    if (r < 0)
        return r;
    maps_deinit(&points->maps);
    points->maps = maps;
    vmas_forget(points->vmas);
    /* without the interpreter's base: names of its functions are not wanted */
    r = unwinder_refresh(&points->unwinder, &points->maps, 0);
    if (r == 0)
        r = libc_symbols_find(&points->unwinder.modules, &points->libc, why);
    if (r == 0)
        r = find_kinds(points);
    if (r == 0)
        find_eval(points, image_base);
    return r;
}

/* ---- the judgement ---- */

/* One look at one thread. */
struct look {
    struct safe_points *points;
    const struct registers *regs;
    uint64_t fresh;      /* start of the module that was last found to be still mapped */
    unsigned run;        /* consecutive frames of libc up to here */
    uint64_t start, end; /* the outermost of them: the function that was called from outside */
    bool other;          /* a frame of another module was seen */
};

static bool still_mapped(struct safe_points *points, const struct module *module)
{
    struct vma vma;

    return vma_find(points->vmas, module->start, &vma) == 0 && vma.start == module->start &&
           vma.end == module->end && vma.offset == module->offset && vma.inode == module->inode;
}

static bool is_fresh(struct look *look, const struct module *module)
{
    if (look->fresh != module->start && !still_mapped(look->points, module))
        return false;
    look->fresh = module->start;
    return true;
}

bool safe_points_mapped(struct safe_points *points, uint64_t addr)
{
    struct module *module = modules_find(&points->unwinder.modules, addr);
    return module && still_mapped(points, module);
}

static enum code_kind code_kind(const struct safe_points *points, const struct module *module)
{
    size_t i = (size_t)(module - points->unwinder.modules.items);
    return i < points->ncodes ? points->codes[i].kind : CODE_OTHER;
}

static bool in_futex(const struct registers *regs) { return registers_syscall(regs) == SYS_futex; }

/* The consecutive frames of libc that end here, called by another module. */
static bool run_is_safe(struct look *look)
{
    const struct libc_entry *entry = libc_entry_find(&look->points->libc, look->start, look->end);

    if (!entry)
        return false;
    if (!look->other)
        look->points->waits = entry->kind == ENTRY_WAITS;
    switch (entry->kind) {
    case ENTRY_ANYWHERE:
    case ENTRY_WAITS: return true;
    case ENTRY_ASLEEP: return in_futex(look->regs);
    case ENTRY_BASE: return look->other && look->run <= BASE_FRAMES_MAX;
    }
    return false;
}

/* The interpreter itself, and those of its modules that wait. */
static bool is_cpython(const struct safe_points *points, const struct module *module)
{
    return (module->base && module->base == points->image_base) ||
           !strncmp(module->name, "select.cpython-", 15) ||
           !strncmp(module->name, "_socket.cpython-", 16);
}

/* Judges one frame. SAFE: there is nothing against it; *over: the frames that follow don't
 * matter. */
static enum safety check_frame(struct look *look, const struct pc *pc, bool *over)
{
    const struct safe_points *points = look->points;
    struct vma vma;

    if (!pc->module) {
        bool mapped = vma_find(look->points->vmas, pc->addr, &vma) == 0 && vma.inode;
        return mapped ? UNSAFE_CHANGED : UNSAFE_UNKNOWN;
    }
    enum code_kind kind = code_kind(points, pc->module);
    if (kind == CODE_LOADER)
        return UNSAFE_LOADER;
    if (kind == CODE_MALLOC)
        return UNSAFE_MALLOC;
    if (!is_fresh(look, pc->module))
        return UNSAFE_CHANGED;
    if (pc->rules != 0)
        return UNSAFE_UNKNOWN;
    if (pc->row.signal)
        return UNSAFE_SIGNAL;
    if (kind == CODE_LIBC) {
        look->run++;
        look->start = pc->row.start;
        look->end = pc->row.end;
        return SAFE;
    }
    if (!look->other)
        look->points->cpython = look->run && is_cpython(points, pc->module);
    if (look->run && !run_is_safe(look))
        return UNSAFE_LIBC;
    look->run = 0;
    look->other = true;
    *over = points->eval && pc->row.start == points->eval;
    look->points->inside |= pc->module->base && pc->module->base == points->image_base;
    return SAFE;
}

static enum safety check_frames(struct look *look, size_t n, enum native_end end,
                                struct safety_place *where)
{
    struct safe_points *points = look->points;
    bool over = false;

    for (size_t i = 0; i < n && !over; i++) {
        const struct native_frame *frame = &points->frames[i];
        const struct pc *pc = unwinder_pc(&points->unwinder, frame->pc, frame->exact);
        enum safety safety = check_frame(look, pc, &over);
        /* seen where libc was called from: its own frame is the one before */
        if (safety == UNSAFE_LIBC)
            return safety;
        where->pc = frame->pc;
        where->exact = frame->exact;
        snprintf(where->module, sizeof where->module, "%s", pc->module ? pc->module->name : "");
        if (safety != SAFE)
            return safety;
    }
    if (over)
        return SAFE;
    if (end != NATIVE_BASE)
        return end == NATIVE_SHORT || end == NATIVE_UNREADABLE ? UNSAFE_STACK : UNSAFE_UNKNOWN;
    /* a thread that is nothing but libc is only just starting or ending */
    return look->other && look->run <= BASE_FRAMES_MAX ? SAFE : UNSAFE_LIBC;
}

/* Finds where the stack of a thread begins that isn't the main one. Its memory may be carved from a
 * larger piece (pthread_attr_setstack(3)), so that no mapping says it; glibc's own description of
 * the thread, at the end of the stack, does: three words, where the stack begins, its size, and
 * that of its guard (struct pthread, nptl/descr.h, the same since 2.4). 0: it isn't there. */
static uint64_t stack_begin(const struct safe_points *points, uint64_t tls)
{
    uint64_t words[DESCRIPTION_SIZE / sizeof(uint64_t)];

    if (memory_read(points->memory, ARCH_DESCRIPTION_ABOVE ? tls : tls - sizeof words, words,
                    sizeof words) < 0)
        return 0;
    for (size_t i = 0; i + 2 < ARRAY_SIZE(words); i++) {
        uint64_t begin = words[i], size = words[i + 1], guard = words[i + 2];
        uint64_t used = tls - begin;
        if (begin && begin < tls && used < size && size - used <= DESCRIPTION_END_MAX &&
            guard < used)
            return begin + guard;
    }
    return 0;
}

/* Bytes of stack below its pointer. A main thread's grows up to its limit. 0 also on a stack that
 * isn't the thread's own, as coroutines in C have: nothing tells where that begins. */
static uint64_t stack_room(const struct safe_points *points, const struct vma *vma,
                           const struct registers *regs)
{
    uint64_t sp = registers_sp(regs), tls = registers_tls(regs);
    const struct mapping *known = maps_find(&points->maps, sp);
    struct rlimit limit;

    if (!known || strcmp(known->path, "[stack]")) {
        uint64_t begin = stack_begin(points, tls);
        return begin && sp > begin && sp < tls ? sp - begin : 0;
    }
    if (prlimit(points->memory->pid, RLIMIT_STACK, NULL, &limit) < 0)
        return sp - vma->start; /* another user's: what is mapped already */
    uint64_t used = vma->end - sp;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

enum safety safe_point_check(struct safe_points *points, const struct registers *registers,
                             uint64_t room, struct safety_place *where)
{
    enum safety safety = UNSAFE_STACK;
    struct native_regs regs;
    struct vma vma;
    uint64_t sp = registers_sp(registers);

    *where = (struct safety_place){.pc = registers_pc(registers), .exact = true};
    points->cpython = false;
    points->waits = false;
    native_regs_set(&regs, registers);
    vmas_forget(points->vmas);
    if (vma_find(points->vmas, sp, &vma) < 0 || stack_room(points, &vma, registers) < room)
        return UNSAFE_STACK;
    for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
        struct stack_copy copy = {.low = sp, .high = vma.end, .data = points->stack};
        struct look look = {.points = points, .regs = registers};
        size_t n;
        points->inside = false;
        if (copy.high - copy.low > depths[i].bytes) {
            copy.high = copy.low + depths[i].bytes;
            copy.cut = true;
        }
        if (memory_read(points->memory, copy.low, points->stack, copy.high - copy.low) < 0)
            return UNSAFE_STACK;
        enum native_end end =
            unwind(&points->unwinder, &copy, &regs, points->frames, depths[i].frames, &n);
        safety = check_frames(&look, n, end, where);
        if (safety == SAFE || (end != NATIVE_SHORT && end != NATIVE_LIMIT))
            break;
    }
    return safety;
}

bool safe_point_in_cpython(const struct safe_points *points) { return points->cpython; }

bool safe_point_outside_python(const struct safe_points *points)
{
    return points->waits && !points->inside;
}

static const char *reason(enum safety safety)
{
    switch (safety) {
    case SAFE: return "at a safe place";
    case UNSAFE_LOADER: return "in the dynamic loader";
    case UNSAFE_MALLOC: return "in the library that provides malloc";
    case UNSAFE_LIBC: return "in a function of libc that may hold a lock";
    case UNSAFE_SIGNAL: return "in a signal handler";
    case UNSAFE_UNKNOWN: return "in code that can't be unwound";
    case UNSAFE_CHANGED: return "in code that was mapped just then";
    case UNSAFE_STACK: return "on a stack without room, or that can't be read";
    case UNSAFE_REGISTERS: return "in a timed sleep, or in a computation with vectors";
    case UNSAFE_RESTARTABLE: return "in a restartable sequence";
    }
    return "somewhere";
}

void safety_describe(struct safe_points *points, enum safety safety,
                     const struct safety_place *where, struct text *out)
{
    const struct pc *pc = unwinder_name(&points->unwinder, where->pc, where->exact);

    text_puts(out, reason(safety));
    if (pc->shown) {
        text_puts(out, ": ");
        text_add_escaped(out, pc->shown, strlen(pc->shown));
    }
    if (where->module[0]) {
        text_puts(out, pc->shown ? " of " : ": ");
        text_add_escaped(out, where->module, strlen(where->module));
    }
}
