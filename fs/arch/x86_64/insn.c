#include "fs/arch/insn.h"

#include "fs/remote/memory/bytes.h"

#include <string.h>

/* One letter for each opcode of the one-byte map:
 *   . no operand bytes      m ModRM              b imm8          z imm16/32
 *   B ModRM, imm8           Z ModRM, imm16/32    w imm16         e imm16, imm8
 *   o 64-bit address        v imm16/32/64        3 ModRM, and imm for the first two of group 3
 *   p prefix                r REX                x not in 64-bit mode
 *   E two-byte map          V VEX                W EVEX */
static const char one_byte_map[] = "mmmmbzxx"
                                   "mmmmbzxE"
                                   "mmmmbzxx"
                                   "mmmmbzxx" /* 00 */
                                   "mmmmbzpx"
                                   "mmmmbzpx"
                                   "mmmmbzpx"
                                   "mmmmbzpx" /* 20 */
                                   "rrrrrrrr"
                                   "rrrrrrrr"
                                   "........"
                                   "........" /* 40 */
                                   "xxWmpppp"
                                   "zZbB...."
                                   "bbbbbbbb"
                                   "bbbbbbbb" /* 60 */
                                   "BZxBmmmm"
                                   "mmmmmmmm"
                                   "........"
                                   "..x....." /* 80 */
                                   "oooo...."
                                   "bz......"
                                   "bbbbbbbb"
                                   "vvvvvvvv" /* a0 */
                                   "BBw.VVBZ"
                                   "e.w..bx."
                                   "mmmmxxx."
                                   "mmmmmmmm" /* c0 */
                                   "bbbbbbbb"
                                   "zzxb...."
                                   "p.pp..33"
                                   "......mm"; /* e0 */

struct decoder {
    struct bytes b;
    const uint8_t *start;
    uint64_t pc;
    uint8_t rex, opcode;
    bool operand16;       /* prefix 66 */
    bool address32;       /* prefix 67 */
    uint8_t mod, reg, rm; /* with the REX bits in reg and rm */
    uint8_t base;         /* register of a memory operand's base, 255: none, 254: rip */
    bool indexed;
    int64_t disp, imm;
};

static bool rex_w(const struct decoder *d) { return d->rex & 8; }

static void read_modrm(struct decoder *d)
{
    uint8_t modrm = bytes_u8(&d->b), low = modrm & 7;

    d->mod = modrm >> 6;
    d->reg = (modrm >> 3 & 7) | (d->rex & 4) << 1;
    d->rm = low | (d->rex & 1) << 3;
    d->base = d->rm;
    if (d->mod == 3)
        return;
    if (low == 4) {
        uint8_t sib = bytes_u8(&d->b);
        d->base = (sib & 7) | (d->rex & 1) << 3;
        d->indexed = (sib >> 3 & 7) != 4 || d->rex & 2;
        low = sib & 7;
        if (d->mod == 0 && low == 5) {
            d->base = 255;
            d->disp = (int32_t)bytes_u32(&d->b);
        }
    } else if (d->mod == 0 && low == 5) {
        d->base = 254;
        d->disp = (int32_t)bytes_u32(&d->b);
    }
    if (d->mod == 1)
        d->disp = (int8_t)bytes_u8(&d->b);
    else if (d->mod == 2)
        d->disp = (int32_t)bytes_u32(&d->b);
}

static int64_t read_imm_z(struct decoder *d)
{
    return d->operand16 ? (int16_t)bytes_u16(&d->b) : (int32_t)bytes_u32(&d->b);
}

/* What ends the instruction when its letter is known; false: not known. */
static bool read_operands(struct decoder *d, char letter)
{
    switch (letter) {
    case '.': return true;
    case 'm': read_modrm(d); return true;
    case 'B':
        read_modrm(d);
        d->imm = (int8_t)bytes_u8(&d->b);
        return true;
    case 'Z':
        read_modrm(d);
        d->imm = read_imm_z(d);
        return true;
    case 'b': d->imm = (int8_t)bytes_u8(&d->b); return true;
    case 'z': d->imm = read_imm_z(d); return true;
    case 'w': bytes_u16(&d->b); return true;
    case 'e': bytes_take(&d->b, 3); return true;
    case 'o': bytes_take(&d->b, d->address32 ? 4 : 8); return true;
    case 'v': rex_w(d) ? (void)bytes_u64(&d->b) : (void)read_imm_z(d); return true;
    case '3':
        read_modrm(d);
        if ((d->reg & 7) < 2)
            d->opcode & 1 ? (void)read_imm_z(d) : (void)bytes_u8(&d->b);
        return true;
    default: return false;
    }
}

/* Opcodes of the two-byte map, also the first one of VEX and EVEX. */
static char two_byte_letter(uint8_t op, bool vex)
{
    if ((op >= 0x70 && op <= 0x73) || op == 0xc2 || (op >= 0xc4 && op <= 0xc6))
        return 'B';
    if (op == 0x77)
        return '.';
    if (vex)
        return 'm';
    if (op >= 0x80 && op <= 0x8f)
        return 'z';
    if (op == 0xa4 || op == 0xac || op == 0xba)
        return 'B';
    if ((op >= 0x05 && op <= 0x09) || op == 0x0b || op == 0x0e || (op >= 0x30 && op <= 0x37) ||
        (op >= 0xa0 && op <= 0xa2) || (op >= 0xa8 && op <= 0xaa) || (op >= 0xc8 && op <= 0xcf))
        return '.';
    if (op == 0x04 || op == 0x0a || op == 0x0c || op == 0x0f || (op >= 0x24 && op <= 0x27))
        return 'x';
    return 'm';
}

static bool decode_two_byte(struct decoder *d, struct insn *out)
{
    uint8_t op = bytes_u8(&d->b);

    if (op == 0x38 || op == 0x3a) {
        bytes_u8(&d->b);
        return read_operands(d, op == 0x38 ? 'm' : 'B');
    }
    bool operand16 = d->operand16;
    if (op >= 0x80 && op <= 0x8f)
        d->operand16 = false; /* branches are 32-bit whatever the prefix */
    if (!read_operands(d, two_byte_letter(op, false)))
        return false;
    d->operand16 = operand16;
    if (op >= 0x80 && op <= 0x8f)
        *out = (struct insn){.kind = INSN_BRANCH, .value = d->imm};
    else if (op == 0x0b || (op == 0xff))
        out->kind = INSN_STOP;
    else if (op == 0xa0 || op == 0xa8)
        out->kind = INSN_PUSH;
    else if (op == 0xa1 || op == 0xa9)
        out->kind = INSN_POP;
    return true;
}

static bool decode_vex(struct decoder *d, uint8_t prefix)
{
    unsigned map = 1;

    if (prefix == 0xc4) {
        map = bytes_u8(&d->b) & 0x1f;
        bytes_u8(&d->b);
    } else if (prefix == 0xc5)
        bytes_u8(&d->b);
    else {
        map = bytes_u8(&d->b) & 7;
        bytes_u16(&d->b);
    }
    uint8_t op = bytes_u8(&d->b);
    switch (map) {
    case 1: return read_operands(d, two_byte_letter(op, true));
    case 2:
    case 5:
    case 6: return read_operands(d, 'm');
    case 3: return read_operands(d, 'B');
    default: return false;
    }
}

/* add, or, adc, sbb, and, sub, xor with an immediate */
static void classify_group1(const struct decoder *d, struct insn *out)
{
    unsigned op = d->reg & 7;

    if (d->mod != 3 || d->rm != 4 || op == 7)
        return;
    if (rex_w(d) && (op == 0 || op == 5))
        *out = (struct insn){.kind = INSN_ADD_RSP, .value = op ? -d->imm : d->imm};
    else if (rex_w(d) && op == 4)
        *out = (struct insn){.kind = INSN_ALIGN_RSP, .value = d->imm};
    else
        out->kind = INSN_RSP_OTHER;
}

static void classify_lea(const struct decoder *d, struct insn *out)
{
    bool plain = rex_w(d) && !d->indexed;

    if (d->reg == 4) {
        if (plain && d->base == 5)
            *out = (struct insn){.kind = INSN_RSP_FROM_RBP, .value = d->disp};
        else if (plain && d->base == 4)
            *out = (struct insn){.kind = INSN_ADD_RSP, .value = d->disp};
        else
            out->kind = INSN_RSP_OTHER;
    } else if (d->reg == 5 && plain && d->base == 4)
        *out = (struct insn){.kind = INSN_SET_RBP_OFFSET, .value = d->disp};
}

static void classify_mov(const struct decoder *d, struct insn *out, unsigned to, unsigned from)
{
    if (d->mod == 3 && to == 5 && from == 4)
        out->kind = INSN_SET_RBP;
    else if (d->mod == 3 && to == 4 && from == 5)
        *out = (struct insn){.kind = INSN_RSP_FROM_RBP};
    else if (to == 4)
        out->kind = INSN_RSP_OTHER;
}

/* Group 5: inc, dec, call, jmp, push of a register or memory */
static void classify_group5(const struct decoder *d, struct insn *out)
{
    unsigned op = d->reg & 7;
    bool slot = d->mod != 3 && d->base == 254;

    if (op == 2 || op == 4) {
        out->kind = op == 2 ? slot ? INSN_CALL_SLOT : INSN_CALL : slot ? INSN_JUMP_SLOT : INSN_JUMP;
        out->value = slot ? d->disp : 0;
    } else if (op == 6)
        out->kind = INSN_PUSH;
    else if (op < 2 && d->mod == 3 && d->rm == 4)
        out->kind = INSN_RSP_OTHER;
}

static void classify(const struct decoder *d, struct insn *out)
{
    uint8_t op = d->opcode;

    if (op < 0x40 && (op & 7) < 4) { /* add ... cmp between registers */
        unsigned to = op & 2 ? d->reg : d->mod == 3 ? d->rm : 0;
        if (to == 4 && op & 1 && op < 0x38)
            out->kind = INSN_RSP_OTHER;
        return;
    }
    if (op >= 0x50 && op <= 0x57)
        out->kind = INSN_PUSH;
    else if (op >= 0x58 && op <= 0x5f)
        out->kind = op == 0x5c && !(d->rex & 1) ? INSN_RSP_OTHER : INSN_POP;
    else if (op >= 0x70 && op <= 0x7f)
        *out = (struct insn){.kind = INSN_BRANCH, .value = d->imm};
    else if (op >= 0xb8 && op <= 0xbf) {
        if (op == 0xbc && !(d->rex & 1))
            out->kind = INSN_RSP_OTHER;
    } else
        switch (op) {
        case 0x63:
        case 0x69:
        case 0x6b:
            if (d->reg == 4)
                out->kind = INSN_RSP_OTHER;
            break;
        case 0x68:
        case 0x6a:
        case 0x9c: out->kind = INSN_PUSH; break;
        case 0x9d: out->kind = INSN_POP; break;
        case 0x81:
        case 0x83: classify_group1(d, out); break;
        case 0x87:
            if (d->mod == 3 && (d->rm == 4 || d->reg == 4))
                out->kind = INSN_RSP_OTHER;
            break;
        case 0x89: classify_mov(d, out, d->mod == 3 ? d->rm : 0, d->reg); break;
        case 0x8b: classify_mov(d, out, d->reg, d->mod == 3 ? d->rm : 0); break;
        case 0x8d: classify_lea(d, out); break;
        case 0x8f: out->kind = d->mod == 3 && d->rm == 4 ? INSN_RSP_OTHER : INSN_POP; break;
        case 0xc7:
        case 0xd1:
        case 0xd3:
        case 0xc1:
        case 0xf7:
            if (d->mod == 3 && d->rm == 4 && !(op == 0xf7 && (d->reg & 7) < 2))
                out->kind = INSN_RSP_OTHER;
            break;
        case 0xc8: out->kind = INSN_RSP_OTHER; break; /* enter */
        case 0xc9: out->kind = INSN_LEAVE; break;
        case 0xc2:
        case 0xc3:
        case 0xca:
        case 0xcb:
        case 0xcc:
        case 0xcf:
        case 0xf4: out->kind = INSN_STOP; break;
        case 0xe0:
        case 0xe1:
        case 0xe2:
        case 0xe3: *out = (struct insn){.kind = INSN_BRANCH, .value = d->imm}; break;
        case 0xe8: *out = (struct insn){.kind = INSN_CALL, .value = d->imm}; break;
        case 0xe9:
        case 0xeb: *out = (struct insn){.kind = INSN_JUMP, .value = d->imm}; break;
        case 0xff: classify_group5(d, out); break;
        }
}

/* Prefixes, then the opcode; false: more than an instruction can have. */
static bool read_prefixes(struct decoder *d)
{
    while (!d->b.bad) {
        d->opcode = bytes_u8(&d->b);
        char letter = one_byte_map[d->opcode];
        if (letter == 'r') {
            d->rex = d->opcode;
            d->opcode = bytes_u8(&d->b);
            /* a REX that isn't the last prefix has no effect; no compiler writes that */
            return one_byte_map[d->opcode] != 'r' && one_byte_map[d->opcode] != 'p';
        }
        if (letter != 'p')
            return true;
        d->operand16 |= d->opcode == 0x66;
        d->address32 |= d->opcode == 0x67;
    }
    return false;
}

bool insn_decode(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    struct decoder d = {.b = {.at = code, .end = code + (size < 15 ? size : 15)},
                        .start = code,
                        .pc = pc};
    struct insn insn = {0};
    bool ok;

    if (!read_prefixes(&d))
        return false;
    char letter = one_byte_map[d.opcode];
    if (letter == 'E')
        ok = decode_two_byte(&d, &insn);
    else if (letter == 'V' || letter == 'W')
        ok = decode_vex(&d, d.opcode);
    else {
        bool operand16 = d.operand16;
        if (d.opcode == 0xe8 || d.opcode == 0xe9)
            d.operand16 = false;
        ok = read_operands(&d, letter);
        d.operand16 = operand16;
        if (d.opcode == 0x8f && d.reg & 7)
            ok = false; /* AMD's XOP, of a few processors long ago */
        if (ok)
            classify(&d, &insn);
    }
    if (!ok || d.b.bad)
        return false;
    insn.size = (uint8_t)(d.b.at - code);
    bool direct = d.opcode != 0xff;
    if (insn.kind == INSN_CALL_SLOT || insn.kind == INSN_JUMP_SLOT || insn.kind == INSN_BRANCH ||
        ((insn.kind == INSN_CALL || insn.kind == INSN_JUMP) && direct))
        insn.target = pc + insn.size + (uint64_t)insn.value;
    if (d.operand16 && (insn.kind == INSN_PUSH || insn.kind == INSN_POP))
        insn.kind = INSN_RSP_OTHER;
    *out = insn;
    return true;
}

bool insn_call_before(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    /* longest first, with a target before those without */
    static const uint8_t sizes[] = {5, 6, 7, 8, 4, 3, 2};
    bool found = false;

    for (size_t i = 0; i < sizeof sizes; i++) {
        struct insn insn;
        size_t n = sizes[i];
        if (n > size || !insn_decode(code + size - n, n, pc - n, &insn) || insn.size != n ||
            (insn.kind != INSN_CALL && insn.kind != INSN_CALL_SLOT))
            continue;
        if (insn.target) {
            *out = insn;
            return true;
        }
        if (!found)
            *out = insn;
        found = true;
    }
    return found;
}

bool insn_stub(const uint8_t *code, size_t size, uint64_t pc, struct insn *out)
{
    size_t at = size >= 4 && !memcmp(code, "\xf3\x0f\x1e\xfa", 4) ? 4 : 0; /* endbr64 */

    return insn_decode(code + at, size - at, pc + at, out) &&
           ((out->kind == INSN_JUMP && out->target) || out->kind == INSN_JUMP_SLOT);
}
