/* All instructions are words of 32 bits; what isn't in one of the groups below leaves the stack
 * pointer alone. */
#include "fs/arch/insn.h"

#include <string.h>

#define SIZE 4
#define FRAME 29 /* x29, the frame pointer */
#define SP 31    /* as a base or a destination of sums */

static uint32_t load(const uint8_t *code)
{
    uint32_t word;

    memcpy(&word, code, sizeof word);
    return word;
}

/* Bits [at, at + n) as a signed number. */
static int64_t field(uint32_t word, unsigned at, unsigned n)
{
    return (int64_t)((uint64_t)word << (64 - at - n)) >> (64 - n);
}

static unsigned destination(uint32_t word) { return word & 31; }
static unsigned base(uint32_t word) { return word >> 5 & 31; }

/* Where it goes; false: on. */
static bool decode_branch(uint32_t word, uint64_t pc, struct insn *out)
{
    if ((word & 0x7c000000) == 0x14000000) { /* b, bl */
        out->kind = word >> 31 ? INSN_CALL : INSN_JUMP;
        out->target = pc + (uint64_t)(field(word, 0, 26) * SIZE);
    } else if ((word & 0xff000000) == 0x54000000 || (word & 0x7e000000) == 0x34000000) {
        out->kind = INSN_BRANCH; /* b.cond; cbz, cbnz */
        out->target = pc + (uint64_t)(field(word, 5, 19) * SIZE);
    } else if ((word & 0x7e000000) == 0x36000000) { /* tbz, tbnz */
        out->kind = INSN_BRANCH;
        out->target = pc + (uint64_t)(field(word, 5, 14) * SIZE);
    } else if ((word & 0xfefff000) == 0xd63f0000) { /* blr, blraa and its kin */
        out->kind = INSN_CALL;
    } else if ((word & 0xfefff000) == 0xd61f0000) { /* br, braa and its kin */
        out->kind = INSN_JUMP;
    } else if ((word & 0xfffff000) == 0xd65f0000 || (word & 0xffe0001f) == 0xd4200000 ||
               !(word >> 16)) { /* ret, retaa and its kin; brk; udf */
        out->kind = INSN_STOP;
    } else
        return false;
    return true;
}

/* add and sub of a constant */
static void decode_sum(uint32_t word, struct insn *out)
{
    int64_t value = (int64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
    unsigned to = destination(word), from = base(word);

    out->value = word >> 30 & 1 ? -value : value;
    if (to == SP)
        out->kind = from == SP ? INSN_ADD_RSP : from == FRAME ? INSN_RSP_FROM_RBP : INSN_RSP_OTHER;
    else if (to == FRAME && from == SP)
        out->kind = value ? INSN_SET_RBP_OFFSET : INSN_SET_RBP;
}

/* What a load or store adds to the stack pointer that is its base. */
static void decode_access(uint32_t word, struct insn *out)
{
    unsigned size = word >> 30, vector = word >> 26 & 1;

    if (base(word) != SP)
        return;
    if ((word & 0x3a800000) == 0x28800000) { /* of a pair */
        out->kind = INSN_ADD_RSP;
        out->value = field(word, 15, 7) * (vector ? 4 << size : size == 2 ? 8 : 4);
    } else if ((word & 0x3b200400) == 0x38000400) {
        out->kind = INSN_ADD_RSP;
        out->value = field(word, 12, 9);
    }
}

bool insn_decode(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    if (size < SIZE || pc % SIZE)
        return false;
    uint32_t word = load(code);
    *out = (struct insn){.kind = INSN_OTHER, .size = SIZE};
    if (decode_branch(word, pc, out))
        return true;
    if ((word & 0xbf800000) == 0x91000000)
        decode_sum(word, out);
    else if (((word & 0xbfe00000) == 0x8b200000 || (word & 0xff800000) == 0x92000000) &&
             destination(word) == SP)
        out->kind = INSN_RSP_OTHER; /* add, sub of a register; and */
    else
        decode_access(word, out);
    return true;
}

bool insn_call_before(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    return size >= SIZE && insn_decode(code + size - SIZE, SIZE, pc - SIZE, out) &&
           out->kind == INSN_CALL;
}

/* b; or an entry of the linkage table: adrp x16, ldr x17 from there, add x16, br x17. */
bool insn_stub(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    if (size >= SIZE && load(code) == 0xd503245f) { /* bti c */
        code += SIZE;
        size -= SIZE;
        pc += SIZE;
    }
    if (!insn_decode(code, size, pc, out))
        return false;
    if (out->kind == INSN_JUMP && out->target)
        return true;
    if (size < 4 * SIZE || (load(code) & 0x9f00001f) != 0x90000010 ||
        (load(code + SIZE) & 0xffc003ff) != 0xf9400211 || load(code + 3 * SIZE) != 0xd61f0220)
        return false;
    uint64_t pages = (uint64_t)field(load(code), 5, 19) << 2 | (load(code) >> 29 & 3);
    out->kind = INSN_JUMP_SLOT;
    out->target = (pc & ~4095ull) + (pages << 12) + (load(code + SIZE) >> 10 & 0xfff) * 8ull;
    return true;
}
