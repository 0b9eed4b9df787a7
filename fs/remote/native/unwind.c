#include "fs/remote/native/unwind.h"

#include "agent/base/cleanup.h"
#include "fs/arch/insn.h"
#include "fs/remote/native/demangle.h"
#include "fs/remote/native/frame_size.h"

#include <errno.h>
#include <string.h>

#define EVAL_NAME "_PyEval_EvalFrameDefault"
#define CALL_MAX 8      /* bytes of a call instruction with its operands */
#define HOPS_MAX 2      /* jumps between a call and the function: a lazy binding stub */
#define MEASURED_MAX 16 /* frames of one stack: a frame pointer, once known, stays known */

#ifndef UNWINDER
#define UNWINDER unwind_own
#endif

void unwinder_init(struct unwinder *u, const struct memory *memory)
{
    *u = (struct unwinder){.engine = &UNWINDER};
    modules_init(&u->modules, memory);
}

static void forget_pcs(struct unwinder *u)
{
    for (size_t i = 0; i < u->alloc; i++) {
        free(u->pcs[i].name);
        free(u->pcs[i].shown);
    }
    free(u->pcs);
    u->pcs = NULL;
    u->npcs = u->alloc = u->names = 0;
}

static void forget_kept(struct unwinder *u)
{
    if (u->engine->forget)
        u->engine->forget(u);
}

void unwinder_deinit(struct unwinder *u)
{
    forget_kept(u);
    forget_pcs(u);
    modules_deinit(&u->modules);
}

size_t unwinder_size(const struct unwinder *u)
{
    return u->alloc * sizeof *u->pcs + u->names + modules_symbols_size(&u->modules);
}

void unwinder_forget(struct unwinder *u)
{
    forget_kept(u);
    forget_pcs(u);
    modules_forget_symbols(&u->modules);
    pages_clear(&u->modules.pages);
}

int unwinder_refresh(struct unwinder *u, const struct maps *maps, uint64_t image_base)
{
    bool changed;

    int r = modules_refresh(&u->modules, maps, &changed);
    pages_clear(&u->modules.pages);
    if (changed || image_base != u->image_base || u->npcs > PCS_MAX / 2)
        forget_pcs(u);
    if (changed)
        forget_kept(u);
    if (r < 0)
        return r;
    if (changed || image_base != u->image_base) {
        struct elf_image image;
        u->image_base = image_base;
        u->eval = 0;
        if (image_base && elf_image_read(u->modules.memory, image_base, &image) == 0)
            elf_image_symbol(u->modules.memory, &image, EVAL_NAME, &u->eval, NULL);
    }
    return 0;
}

static size_t slot_of(const struct pc *pcs, size_t alloc, uint64_t addr)
{
    size_t i = addr * 0x9e3779b97f4a7c15ull >> 32 & (alloc - 1);

    while (pcs[i].addr && pcs[i].addr != addr)
        i = (i + 1) & (alloc - 1);
    return i;
}

/* Makes room for one more; false: there is none. */
static bool grow_pcs(struct unwinder *u)
{
    if (u->npcs * 2 < u->alloc)
        return true;
    size_t alloc = u->alloc ? u->alloc * 2 : 256;
    struct pc *pcs = alloc <= PCS_MAX * 2 ? calloc(alloc, sizeof *pcs) : NULL;
    if (!pcs)
        return false;
    for (size_t i = 0; i < u->alloc; i++)
        if (u->pcs[i].addr)
            pcs[slot_of(pcs, alloc, u->pcs[i].addr)] = u->pcs[i];
    free(u->pcs);
    u->pcs = pcs;
    u->alloc = alloc;
    return true;
}

static struct pc *find_pc(struct unwinder *u, uint64_t addr)
{
    struct pc *pc;

    if (u->alloc) {
        pc = &u->pcs[slot_of(u->pcs, u->alloc, addr)];
        if (pc->addr == addr && addr)
            return pc;
    }
    if (addr && grow_pcs(u)) {
        pc = &u->pcs[slot_of(u->pcs, u->alloc, addr)];
        u->npcs++;
    } else
        pc = &u->spare;
    *pc = (struct pc){.addr = addr, .rules = -ENOENT, .named = pc == &u->spare};
    pc->module = modules_find(&u->modules, addr);
    if (pc->module && pc->module->cfi.n)
        pc->rules = cfi_find(&u->modules.pages, &pc->module->cfi, addr, &pc->row);
    return pc;
}

/* The whole thing and its parts: compilers move what is rarely run elsewhere, under this name with
 * a suffix (".cold"). */
static bool is_eval_name(const char *name)
{
    size_t n = strlen(EVAL_NAME);
    return name && !strncmp(name, EVAL_NAME, n) && (!name[n] || name[n] == '.');
}

static void name_pc(struct unwinder *u, struct pc *pc)
{
    char raw[DEMANGLE_MAX], shown[DEMANGLE_MAX];
    uint64_t start = pc->rules == 0 ? pc->row.start : 0;

    if (pc->named)
        return;
    pc->named = true;
    if (!pc->module || !modules_symbol(&u->modules, pc->module, pc->addr, start, raw, sizeof raw))
        return;
    demangle(raw, shown);
    pc->name = strdup(raw);
    pc->shown = strdup(shown);
    u->names += strlen(raw) + strlen(shown) + 2;
}

static bool in_eval(struct unwinder *u, struct pc *pc)
{
    if (!u->eval || !pc->module || pc->module->base != u->image_base)
        return false;
    if (pc->rules == 0 && pc->row.start == u->eval)
        return true;
    name_pc(u, pc);
    return is_eval_name(pc->name);
}

const struct pc *unwinder_pc(struct unwinder *u, uint64_t addr, bool exact)
{
    return find_pc(u, addr - !exact);
}

const struct pc *unwinder_name(struct unwinder *u, uint64_t addr, bool exact)
{
    struct pc *pc = find_pc(u, addr - !exact);
    name_pc(u, pc);
    return pc;
}

bool unwinder_in_eval(struct unwinder *u, uint64_t addr, bool exact)
{
    return in_eval(u, find_pc(u, addr - !exact));
}

/* Follows stubs that only jump. */
static uint64_t follow_stubs(struct unwinder *u, uint64_t target)
{
    uint8_t code[32];

    for (unsigned hop = 0; hop < HOPS_MAX; hop++) {
        struct insn insn;
        if (pages_read(&u->modules.pages, target, code, sizeof code) < 0 ||
            !insn_stub(code, sizeof code, target, &insn))
            return target;
        if (insn.kind == INSN_JUMP)
            target = insn.target;
        else if (pages_read(&u->modules.pages, insn.target, &target, sizeof target) < 0)
            return target;
    }
    return target;
}

/* Whether a call instruction stands before a return address and, where it can be told which
 * function it calls, that is the one at start, or one that can have jumped there. */
static bool called_from(struct unwinder *u, uint64_t ra, uint64_t start)
{
    uint8_t code[CALL_MAX];
    struct insn insn;

    if (pages_read(&u->modules.pages, ra - sizeof code, code, sizeof code) < 0 ||
        !insn_call_before(code, sizeof code, ra, &insn))
        return false;
    uint64_t target = insn.target;
    if (insn.kind == INSN_CALL_SLOT &&
        pages_read(&u->modules.pages, insn.target, &target, sizeof target) < 0)
        return false;
    if (!target)
        return true;
    target = follow_stubs(u, target);
    return target == start || modules_find(&u->modules, target);
}

/* The frame's size where its rules count from a register that isn't known. */
static bool measure(struct unwinder *u, struct pc *pc, uint64_t at, int64_t *depth)
{
    const struct cfi_row *row = &pc->row;

    if (!pc->depth) {
        size_t size = row->end - row->start;
        pc->depth = -1;
        if (size > FRAME_SIZE_CODE_MAX)
            return false;
        _cleanup_free_ uint8_t *code = malloc(size ? size : 1);
        if (!code || pages_read(&u->modules.pages, row->start, code, size) < 0 ||
            frame_size(code, size, row->start, at, &pc->depth) < 0)
            pc->depth = -1;
    }
    *depth = pc->depth;
    return pc->depth > 0;
}

/* One unwinding: where it stands. */
struct walk {
    struct unwinder *u;
    const struct stack_copy *copy;
    struct native_regs regs;
    uint64_t missed; /* the address that could not be loaded last */
    bool exact;      /* regs' pc is no return address */
    bool measured;   /* this frame was measured */
    unsigned nmeasured;
};

static bool load_stack(void *arg, uint64_t addr, uint64_t *out)
{
    struct walk *w = arg;
    const struct stack_copy *copy = w->copy;

    if (addr < copy->low || copy->high - copy->low < 8 || addr > copy->high - 8) {
        w->missed = addr;
        return false;
    }
    *out = load64(copy->data + (addr - copy->low));
    return true;
}

/* What could not be loaded lies above the copy, or nowhere. */
static enum native_end unreadable(const struct walk *w)
{
    bool above = w->missed > w->copy->high - 8 && w->missed - w->copy->high + 8 < NATIVE_STACK_MAX;
    return above && w->copy->cut ? NATIVE_SHORT : NATIVE_UNREADABLE;
}

/* The canonical frame address. 0, or why it can't be told. */
static int find_cfa(struct walk *w, struct pc *pc, uint64_t *cfa)
{
    const struct cfi_rule *rule = &pc->row.cfa;
    int64_t depth;

    if (rule->how == CFI_EXPR) {
        int r =
            cfi_evaluate(&w->u->modules.pages, &pc->row, rule, &w->regs, NULL, load_stack, w, cfa);
        return r == -ENODATA ? NATIVE_NO_REGISTER : r < 0 ? unreadable(w) : 0;
    }
    if (rule->how != CFI_REGISTER)
        return NATIVE_NO_INFO;
    if (regs_know(&w->regs, rule->reg)) {
        *cfa = w->regs.value[rule->reg] + (uint64_t)(int64_t)rule->offset;
        return 0;
    }
    uint64_t at = w->regs.value[DW_PC];
    if (rule->reg != DW_FRAME || w->nmeasured++ == MEASURED_MAX || !measure(w->u, pc, at, &depth))
        return NATIVE_NO_REGISTER;
    *cfa = w->regs.value[DW_SP] + (uint64_t)depth;
    regs_put(&w->regs, DW_FRAME, *cfa - (uint64_t)(int64_t)rule->offset);
    w->measured = true;
    return 0;
}

/* The caller's value of one register; false: it is not known. */
static bool recover(struct walk *w, const struct cfi_row *row, unsigned reg, uint64_t cfa,
                    uint64_t *out)
{
    const struct cfi_rule *rule = &row->regs[reg];
    uint64_t addr = cfa + (uint64_t)(int64_t)rule->offset;

    switch (rule->how) {
    case CFI_SAME: *out = w->regs.value[reg]; return regs_know(&w->regs, reg);
    case CFI_SAVED: return load_stack(w, addr, out);
    case CFI_OFFSET: *out = addr; return true;
    case CFI_REGISTER:
        *out = w->regs.value[rule->reg] + (uint64_t)(int64_t)rule->offset;
        return regs_know(&w->regs, rule->reg);
    case CFI_EXPR_SAVED:
    case CFI_EXPR:
        if (cfi_evaluate(&w->u->modules.pages, row, rule, &w->regs, &cfa, load_stack, w, &addr) < 0)
            return false;
        *out = addr;
        return rule->how == CFI_EXPR || load_stack(w, addr, out);
    default: return false;
    }
}

/* Something was called that is no code, a function at NULL say: nothing of it has run, and the
 * return address is still where the call has left it. */
static int step_back(struct walk *w, struct native_frame *frame)
{
    uint64_t sp = w->regs.value[DW_SP], caller;

    bool there = ARCH_CALL_PUSHES ? load_stack(w, sp, &caller) : regs_know(&w->regs, DW_RETURN);
    if (!ARCH_CALL_PUSHES)
        caller = arch_code_address(w->regs.value[DW_RETURN]);
    if (!frame->exact || !there || !called_from(w->u, caller, frame->pc))
        return NATIVE_NO_MODULE;
    frame->cfa = sp + ARCH_CALL_PUSHES;
    regs_put(&w->regs, DW_PC, caller);
    regs_put(&w->regs, DW_SP, frame->cfa);
    w->exact = false;
    return 0;
}

/* Steps from the code that returns from a signal's handler to what the signal interrupted. False:
 * it isn't that code, or the registers can't be read. */
static bool step_over_signal(struct walk *w, struct native_frame *frame)
{
    uint8_t code[8];
    struct native_regs before = {0};

    if (pages_read(&w->u->modules.pages, frame->pc, code, sizeof code) < 0)
        return false;
    uint64_t at = arch_signal_registers(code);
    for (unsigned reg = 0; at && reg < REGS_N; reg++) {
        uint64_t value;
        if (!load_stack(w, frame->sp + at + 8 * reg, &value))
            return false;
        regs_put(&before, reg, value);
    }
    if (!at)
        return false;
    frame->cfa = before.value[DW_SP];
    w->regs = before;
    w->exact = true;
    return true;
}

/* Where a call puts the return address onto the stack, every frame has that; where it doesn't, a
 * function that calls nothing may have no frame at all. */
static bool is_above(const struct walk *w, uint64_t cfa)
{
    uint64_t sp = w->regs.value[DW_SP];

    return cfa > sp || (!ARCH_CALL_PUSHES && w->exact && cfa == sp);
}

/* Makes of what a caller finds in its registers where it goes on. */
static void return_to(struct native_regs *caller, bool signal)
{
    if (DW_RETURN == DW_PC)
        return;
    regs_put(caller, DW_PC, arch_code_address(caller->value[DW_RETURN]));
    if (!signal)
        regs_forget(caller, DW_RETURN); /* the call has written over its own */
}

/* Steps to the caller. 0, or why there is none. */
static int step(struct walk *w, struct pc *pc, struct native_frame *frame)
{
    const struct cfi_row *row = &pc->row;
    struct native_regs caller = {0};
    uint64_t cfa;

    if (!pc->module)
        return step_back(w, frame);
    if (pc->rules != 0 && step_over_signal(w, frame))
        return 0;
    if (pc->rules != 0)
        return pc->module->base ? NATIVE_NO_INFO : NATIVE_NO_MODULE;
    if (row->regs[DW_RETURN].how == CFI_UNDEFINED)
        return NATIVE_BASE;
    w->measured = false;
    w->missed = 0;
    int end = find_cfa(w, pc, &cfa);
    if (end)
        return end;
    if (!row->signal && (!is_above(w, cfa) || cfa & 7))
        return NATIVE_UNREADABLE;
    for (unsigned reg = 0; reg < REGS_N; reg++) {
        uint64_t value;
        if (recover(w, row, reg, cfa, &value))
            regs_put(&caller, reg, value);
    }
    if (DW_RETURN != DW_PC && !regs_know(&caller, DW_RETURN) && !w->missed)
        return NATIVE_NO_REGISTER;
    if (!regs_know(&caller, DW_RETURN) || !regs_know(&caller, DW_SP))
        return unreadable(w);
    return_to(&caller, row->signal);
    if (w->measured && !called_from(w->u, caller.value[DW_PC], row->start))
        return NATIVE_NO_REGISTER;
    frame->cfa = cfa;
    w->regs = caller;
    w->exact = row->signal;
    return caller.value[DW_PC] ? 0 : NATIVE_BASE;
}

static enum native_end unwind_ourselves(struct unwinder *u, const struct stack_copy *copy,
                                        const struct native_regs *regs, struct native_frame *frames,
                                        size_t max, size_t *n)
{
    struct walk w = {.u = u, .copy = copy, .regs = *regs, .exact = true};
    size_t first_measured = 0;
    int end = 0;

    *n = 0;
    while (!end && *n < max) {
        uint64_t addr = w.regs.value[DW_PC];
        struct pc *pc = find_pc(u, addr - !w.exact);
        struct native_frame *frame = &frames[(*n)++];
        *frame = (struct native_frame){
            .pc = addr, .sp = w.regs.value[DW_SP], .exact = w.exact, .eval = in_eval(u, pc)};
        end = step(&w, pc, frame);
        if (w.measured && !first_measured)
            first_measured = *n;
    }
    if (!end)
        end = NATIVE_LIMIT;
    /* What was measured is believed only if the way on from there makes sense to the end. */
    if (first_measured && end != NATIVE_BASE && end != NATIVE_LIMIT && end != NATIVE_SHORT) {
        *n = first_measured;
        frames[*n - 1].cfa = 0;
        end = NATIVE_NO_REGISTER;
    }
    return end;
}

const struct unwind_engine unwind_own = {.unwind = unwind_ourselves};

enum native_end unwind(struct unwinder *u, const struct stack_copy *copy,
                       const struct native_regs *regs, struct native_frame *frames, size_t max,
                       size_t *n)
{
    return u->engine->unwind(u, copy, regs, frames, max, n);
}
