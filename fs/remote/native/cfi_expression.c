/* DWARF expressions, as far as call frame information uses them (DWARF 5, section 2.5). gcc needs
 * them for the lazy binding stubs, for functions that realign their stack, and the C library for
 * the frame that a signal leaves. */
#include "fs/remote/memory/bytes.h"
#include "fs/remote/native/cfi.h"

#include <errno.h>

#define EXPRESSION_MAX 256 /* bytes */
#define STACK_MAX 32
#define STEPS_MAX 1000 /* branches can loop */

/* clang-format off */
enum {
    OP_ADDR = 0x03, OP_DEREF = 0x06, OP_CONST1U = 0x08, OP_CONST1S, OP_CONST2U, OP_CONST2S,
    OP_CONST4U, OP_CONST4S, OP_CONST8U, OP_CONST8S, OP_CONSTU, OP_CONSTS, OP_DUP, OP_DROP, OP_OVER,
    OP_PICK, OP_SWAP, OP_ROT, OP_ABS = 0x19, OP_AND, OP_DIV, OP_MINUS, OP_MOD, OP_MUL, OP_NEG,
    OP_NOT, OP_OR, OP_PLUS, OP_PLUS_UCONST, OP_SHL, OP_SHR, OP_SHRA, OP_XOR, OP_BRA, OP_EQ, OP_GE,
    OP_GT, OP_LE, OP_LT, OP_NE, OP_SKIP, OP_LIT0 = 0x30, OP_LIT31 = 0x4f, OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f, OP_BREGX = 0x92, OP_NOP = 0x96,
};
/* clang-format on */

struct evaluation {
    struct pages *pages;
    const struct native_regs *regs;
    cfi_load *load;
    void *arg;
    uint64_t stack[STACK_MAX];
    unsigned n;
    int error;
};

static void push(struct evaluation *e, uint64_t value)
{
    if (e->n == STACK_MAX)
        e->error = -ENOEXEC;
    else
        e->stack[e->n++] = value;
}

static uint64_t pop(struct evaluation *e)
{
    if (!e->n) {
        e->error = -ENOEXEC;
        return 0;
    }
    return e->stack[--e->n];
}

static void push_register(struct evaluation *e, uint64_t reg, int64_t offset)
{
    if (reg >= REGS_N)
        e->error = -ENOEXEC;
    else if (!regs_know(e->regs, (unsigned)reg))
        e->error = -ENODATA;
    else
        push(e, e->regs->value[reg] + (uint64_t)offset);
}

static void dereference(struct evaluation *e)
{
    uint64_t addr = pop(e), value = 0;

    if (!e->error && !e->load(e->arg, addr, &value))
        e->error = -EFAULT; /* memory that isn't in the copy may have changed since */
    push(e, value);
}

static bool run_constant(struct evaluation *e, struct bytes *b, uint8_t op)
{
    switch (op) {
    case OP_ADDR:
    case OP_CONST8U:
    case OP_CONST8S: push(e, bytes_u64(b)); return true;
    case OP_CONST1U: push(e, bytes_u8(b)); return true;
    case OP_CONST1S: push(e, (uint64_t)(int8_t)bytes_u8(b)); return true;
    case OP_CONST2U: push(e, bytes_u16(b)); return true;
    case OP_CONST2S: push(e, (uint64_t)(int16_t)bytes_u16(b)); return true;
    case OP_CONST4U: push(e, bytes_u32(b)); return true;
    case OP_CONST4S: push(e, (uint64_t)(int32_t)bytes_u32(b)); return true;
    case OP_CONSTU: push(e, bytes_uleb(b)); return true;
    case OP_CONSTS: push(e, (uint64_t)bytes_sleb(b)); return true;
    default: return false;
    }
}

static bool run_unary(struct evaluation *e, struct bytes *b, uint8_t op)
{
    uint64_t a;

    switch (op) {
    case OP_DUP:
        a = pop(e);
        push(e, a);
        push(e, a);
        return true;
    case OP_DROP: pop(e); return true;
    case OP_OVER:
    case OP_PICK: {
        uint64_t depth = op == OP_OVER ? 1 : bytes_u8(b);
        if (depth >= e->n)
            e->error = -ENOEXEC;
        else
            push(e, e->stack[e->n - 1 - depth]);
        return true;
    }
    case OP_DEREF: dereference(e); return true;
    case OP_ABS:
        a = pop(e);
        push(e, (int64_t)a < 0 ? -a : a);
        return true;
    case OP_NEG: push(e, -pop(e)); return true;
    case OP_NOT: push(e, ~pop(e)); return true;
    case OP_PLUS_UCONST:
        a = pop(e);
        push(e, a + bytes_uleb(b));
        return true;
    default: return false;
    }
}

static void run_binary(struct evaluation *e, uint8_t op)
{
    uint64_t y = pop(e), x = pop(e);
    int64_t sx = (int64_t)x, sy = (int64_t)y;

    switch (op) {
    case OP_SWAP:
        push(e, y);
        push(e, x);
        break;
    case OP_AND: push(e, x & y); break;
    case OP_MINUS: push(e, x - y); break;
    case OP_MUL: push(e, x * y); break;
    case OP_OR: push(e, x | y); break;
    case OP_PLUS: push(e, x + y); break;
    case OP_XOR: push(e, x ^ y); break;
    case OP_SHL: push(e, y < 64 ? x << y : 0); break;
    case OP_SHR: push(e, y < 64 ? x >> y : 0); break;
    case OP_SHRA: push(e, (uint64_t)(sx >> (y < 64 ? y : 63))); break;
    case OP_EQ: push(e, x == y); break;
    case OP_NE: push(e, x != y); break;
    case OP_GE: push(e, sx >= sy); break;
    case OP_GT: push(e, sx > sy); break;
    case OP_LE: push(e, sx <= sy); break;
    case OP_LT: push(e, sx < sy); break;
    default: e->error = -ENOEXEC; /* division and rotation among them: nobody writes them here */
    }
}

static void jump(struct evaluation *e, struct bytes *b, const uint8_t *start, int16_t offset)
{
    if (offset < start - b->at || offset > b->end - b->at)
        e->error = -ENOEXEC;
    else
        b->at += offset;
}

static void run_operation(struct evaluation *e, struct bytes *b, const uint8_t *start)
{
    uint8_t op = bytes_u8(b);

    if (op >= OP_LIT0 && op <= OP_LIT31)
        push(e, op - OP_LIT0);
    else if (op >= OP_BREG0 && op <= OP_BREG31)
        push_register(e, op - OP_BREG0, bytes_sleb(b));
    else if (op == OP_BREGX) {
        uint64_t reg = bytes_uleb(b);
        push_register(e, reg, bytes_sleb(b));
    } else if (op == OP_SKIP || op == OP_BRA) {
        int16_t offset = (int16_t)bytes_u16(b);
        if (op == OP_SKIP || pop(e))
            jump(e, b, start, offset);
    } else if (op != OP_NOP && !run_constant(e, b, op) && !run_unary(e, b, op))
        run_binary(e, op);
}

int cfi_evaluate(struct pages *pages, const struct cfi_row *row, const struct cfi_rule *rule,
                 const struct native_regs *regs, const uint64_t *initial, cfi_load *load, void *arg,
                 uint64_t *out)
{
    uint8_t data[EXPRESSION_MAX];
    struct evaluation e = {.pages = pages, .regs = regs, .load = load, .arg = arg};

    if (rule->size > sizeof data)
        return -ENOEXEC;
    int r = pages_read(pages, row->base + (uint64_t)(int64_t)rule->offset, data, rule->size);
    if (r < 0)
        return r;
    struct bytes b = {.at = data, .end = data + rule->size};
    if (initial)
        push(&e, *initial);
    for (unsigned steps = 0; b.at < b.end; steps++) {
        if (steps == STEPS_MAX)
            return -ENOEXEC;
        run_operation(&e, &b, data);
        if (e.error || b.bad)
            return e.error ? e.error : -ENOEXEC;
    }
    if (!e.n)
        return -ENOEXEC;
    *out = e.stack[e.n - 1];
    return 0;
}
