#include "fs/remote/native/cfi.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/bytes.h"

#include <errno.h>
#include <string.h>

#define ENTRIES_MAX 8000000u
#define CIE_MAX 512          /* bytes */
#define FDE_MAX (256u << 10) /* bytes; a function of a megabyte of code stays below */
#define REMEMBER_MAX 16      /* DW_CFA_remember_state within each other; gcc needs 1 */

/* Pointer encodings, Linux Standard Base, "DWARF Exception Header Encoding". */
enum { PE_PCREL = 0x10, PE_DATAREL = 0x30, PE_INDIRECT = 0x80, PE_OMIT = 0xff };

/* Call frame instructions, DWARF 5, section 7.24. */
/* clang-format off */
enum {
    CFA_ADVANCE_LOC = 1, CFA_OFFSET = 2, CFA_RESTORE = 3, /* the two high bits */
    CFA_NOP = 0, CFA_SET_LOC, CFA_ADVANCE_LOC1, CFA_ADVANCE_LOC2, CFA_ADVANCE_LOC4,
    CFA_OFFSET_EXTENDED, CFA_RESTORE_EXTENDED, CFA_UNDEFINED, CFA_SAME_VALUE, CFA_REGISTER,
    CFA_REMEMBER_STATE, CFA_RESTORE_STATE, CFA_DEF_CFA, CFA_DEF_CFA_REGISTER, CFA_DEF_CFA_OFFSET,
    CFA_DEF_CFA_EXPRESSION, CFA_EXPRESSION, CFA_OFFSET_EXTENDED_SF, CFA_DEF_CFA_SF,
    CFA_DEF_CFA_OFFSET_SF, CFA_VAL_OFFSET, CFA_VAL_OFFSET_SF, CFA_VAL_EXPRESSION,
    CFA_NEGATE_RA_STATE = 0x2d, CFA_GNU_ARGS_SIZE = 0x2e,
};
/* clang-format on */

/* What a function's entry shares with others. */
struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint8_t encoding; /* of addresses in the function's entry */
    bool augmented, signal;
    struct bytes program;
    uint64_t program_addr;
};

struct rules {
    struct cfi_rule cfa;
    struct cfi_rule regs[REGS_N];
};

/* addr: of the next byte to read */
static uint64_t read_encoded(struct bytes *b, uint8_t encoding, uint64_t addr, uint64_t data)
{
    uint64_t value;

    switch (encoding & 0x0f) {
    case 0x0:
    case 0x4:
    case 0xc: value = bytes_u64(b); break;
    case 0x1: value = bytes_uleb(b); break;
    case 0x2: value = bytes_u16(b); break;
    case 0x3: value = bytes_u32(b); break;
    case 0x9: value = (uint64_t)bytes_sleb(b); break;
    case 0xa: value = (uint64_t)(int16_t)bytes_u16(b); break;
    case 0xb: value = (uint64_t)(int32_t)bytes_u32(b); break;
    default: b->bad = true; return 0;
    }
    switch (encoding & 0x70) {
    case 0: return value;
    case PE_PCREL: return value + addr;
    case PE_DATAREL: return value + data;
    default: b->bad = true; return 0;
    }
}

int cfi_table_read(struct pages *pages, uint64_t addr, struct cfi_table *out)
{
    uint8_t head[32];

    int r = pages_read(pages, addr, head, 12);
    if (r < 0)
        return r;
    /* version 1; a table sorted by address, of pairs of 32-bit offsets from the header: the only
     * kind that linkers write */
    if (head[0] != 1 || head[2] == PE_OMIT || head[3] != (PE_DATAREL | 0xb))
        return -ENOENT;
    r = pages_read(pages, addr, head, sizeof head);
    size_t size = r < 0 ? 12 : sizeof head;
    struct bytes b = {.at = head + 4, .end = head + size};
    read_encoded(&b, head[1], addr + 4, addr);
    uint64_t n = read_encoded(&b, head[2], addr + (uint64_t)(b.at - head), addr);
    if (b.bad || !n || n > ENTRIES_MAX)
        return -ENOENT;
    *out = (struct cfi_table){addr, addr + (uint64_t)(b.at - head), (uint32_t)n};
    return 0;
}

/* The function's entry (FDE) that the search table gives for pc. */
static int search_table(struct pages *pages, const struct cfi_table *table, uint64_t pc,
                        uint64_t *fde)
{
    uint32_t low = 0, high = table->n;
    int32_t entry[2];
    int64_t wanted = (int64_t)(pc - table->header);

    while (low < high) { /* the first entry beyond pc */
        uint32_t mid = low + (high - low) / 2;
        int r = pages_read(pages, table->entries + 8ull * mid, entry, sizeof entry);
        if (r < 0)
            return r;
        if (entry[0] <= wanted)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low)
        return -ENOENT;
    int r = pages_read(pages, table->entries + 8ull * (low - 1), entry, sizeof entry);
    if (r < 0)
        return r;
    *fde = table->header + (uint64_t)(int64_t)entry[1];
    return 0;
}

/* Length of the entry at addr, its 4-byte length included; 0: the end, or too long. */
static int entry_size(struct pages *pages, uint64_t addr, uint32_t max, uint32_t *out)
{
    uint32_t size;

    int r = pages_read(pages, addr, &size, sizeof size);
    if (r < 0)
        return r;
    if (size < 8 || size > max - 4) /* 0xffffffff, a 64-bit length, isn't used in .eh_frame */
        return -ENOEXEC;
    *out = size + 4;
    return 0;
}

/* Parses the CIE at addr; out->program points into data. */
static int parse_cie(struct pages *pages, uint64_t addr, uint8_t data[CIE_MAX], struct cie *out)
{
    uint32_t size;

    int r = entry_size(pages, addr, CIE_MAX, &size);
    if (r == 0)
        r = pages_read(pages, addr, data, size);
    if (r < 0)
        return r;
    struct bytes b = {.at = data + 4, .end = data + size};
    struct cie cie = {0};
    uint32_t id = bytes_u32(&b);
    uint8_t version = bytes_u8(&b);
    const char *letters = (const char *)b.at;
    const uint8_t *end = memchr(b.at, 0, (size_t)(b.end - b.at));
    if (id != 0 || (version != 1 && version != 3) || !end)
        return -ENOEXEC;
    bytes_take(&b, (size_t)(end - b.at) + 1);
    cie.code_align = bytes_uleb(&b);
    cie.data_align = bytes_sleb(&b);
    uint64_t ra = version == 1 ? bytes_u8(&b) : bytes_uleb(&b);
    if (ra != DW_RETURN)
        return -ENOEXEC;
    if (*letters == 'z') {
        uint64_t length = bytes_uleb(&b);
        const uint8_t *start = b.at;
        cie.augmented = true;
        for (letters++; *letters && !b.bad; letters++) {
            if (*letters == 'R')
                cie.encoding = bytes_u8(&b);
            else if (*letters == 'L')
                bytes_u8(&b);
            else if (*letters == 'P') {
                uint8_t encoding = bytes_u8(&b);
                read_encoded(&b, encoding & 0x0f, 0, 0);
            } else if (*letters == 'S')
                cie.signal = true;
            else if (*letters != 'B')
                break; /* the length below steps over what is unknown */
        }
        if (b.bad || length > (size_t)(b.end - start))
            return -ENOEXEC;
        b.at = start + length;
    } else if (*letters)
        return -ENOEXEC;
    if (b.bad)
        return -ENOEXEC;
    cie.program = b;
    cie.program_addr = addr + (uint64_t)(b.at - data);
    *out = cie;
    return 0;
}

/* Runs call frame instructions up to pc. */
struct machine {
    const struct cie *cie;
    uint64_t header; /* of the table: expressions are found relative to it */
    uint64_t loc, pc;
    struct rules now, initial;
    struct rules remembered[REMEMBER_MAX];
    unsigned nremembered;
};

static void set_rule(struct machine *m, struct bytes *b, uint64_t reg, uint8_t how, int64_t offset)
{
    if (offset != (int32_t)offset)
        b->bad = true;
    if (reg < REGS_N) /* the others are vector and control registers */
        m->now.regs[reg] = (struct cfi_rule){.how = how, .offset = (int32_t)offset};
}

static void set_cfa(struct machine *m, struct bytes *b, uint64_t reg, int64_t offset)
{
    if (reg >= REGS_N || offset != (int32_t)offset)
        b->bad = true;
    else
        m->now.cfa =
            (struct cfi_rule){.how = CFI_REGISTER, .reg = (uint8_t)reg, .offset = (int32_t)offset};
}

/* An expression follows; delta is what turns a pointer into the copy into an offset from
 * m->header. */
static void set_expression(struct machine *m, struct bytes *b, struct cfi_rule *rule, uint8_t how,
                           uint64_t addr, const uint8_t *data)
{
    uint64_t size = bytes_uleb(b);
    int64_t offset = (int64_t)(addr + (uint64_t)(b->at - data) - m->header);

    if (size > UINT16_MAX || !bytes_take(b, size) || offset != (int32_t)offset)
        b->bad = true;
    else if (rule)
        *rule = (struct cfi_rule){.how = how, .size = (uint16_t)size, .offset = (int32_t)offset};
}

static struct cfi_rule *rule_of(struct machine *m, uint64_t reg)
{
    return reg < REGS_N ? &m->now.regs[reg] : NULL;
}

/* False: pc lies before the next row. */
static bool advance(struct machine *m, uint64_t delta)
{
    uint64_t next = m->loc + delta * m->cie->code_align;
    if (next > m->pc || next < m->loc)
        return false;
    m->loc = next;
    return true;
}

/* An instruction whose operands are registers and offsets. */
static void run_operands(struct machine *m, struct bytes *b, uint8_t op, uint64_t addr,
                         const uint8_t *data)
{
    int64_t align = m->cie->data_align;
    uint64_t reg = 0;

    if (op != CFA_DEF_CFA_OFFSET && op != CFA_DEF_CFA_OFFSET_SF && op != CFA_DEF_CFA_EXPRESSION)
        reg = bytes_uleb(b);
    struct cfi_rule *rule = rule_of(m, reg);
    switch (op) {
    case CFA_OFFSET_EXTENDED:
        set_rule(m, b, reg, CFI_SAVED, (int64_t)(bytes_uleb(b) * (uint64_t)align));
        break;
    case CFA_OFFSET_EXTENDED_SF:
        set_rule(m, b, reg, CFI_SAVED, (int64_t)((uint64_t)bytes_sleb(b) * (uint64_t)align));
        break;
    case CFA_VAL_OFFSET:
        set_rule(m, b, reg, CFI_OFFSET, (int64_t)(bytes_uleb(b) * (uint64_t)align));
        break;
    case CFA_VAL_OFFSET_SF:
        set_rule(m, b, reg, CFI_OFFSET, (int64_t)((uint64_t)bytes_sleb(b) * (uint64_t)align));
        break;
    case CFA_RESTORE_EXTENDED:
        if (rule)
            *rule = m->initial.regs[reg];
        break;
    case CFA_UNDEFINED: set_rule(m, b, reg, CFI_UNDEFINED, 0); break;
    case CFA_SAME_VALUE: set_rule(m, b, reg, CFI_SAME, 0); break;
    case CFA_REGISTER: {
        uint64_t from = bytes_uleb(b);
        if (from >= REGS_N)
            set_rule(m, b, reg, CFI_UNDEFINED, 0);
        else if (rule)
            *rule = (struct cfi_rule){.how = CFI_REGISTER, .reg = (uint8_t)from};
        break;
    }
    case CFA_DEF_CFA: set_cfa(m, b, reg, (int64_t)bytes_uleb(b)); break;
    case CFA_DEF_CFA_SF:
        set_cfa(m, b, reg, (int64_t)((uint64_t)bytes_sleb(b) * (uint64_t)align));
        break;
    case CFA_DEF_CFA_REGISTER: set_cfa(m, b, reg, m->now.cfa.offset); break;
    case CFA_DEF_CFA_OFFSET: set_cfa(m, b, m->now.cfa.reg, (int64_t)bytes_uleb(b)); break;
    case CFA_DEF_CFA_OFFSET_SF:
        set_cfa(m, b, m->now.cfa.reg, (int64_t)((uint64_t)bytes_sleb(b) * (uint64_t)align));
        break;
    case CFA_DEF_CFA_EXPRESSION: set_expression(m, b, &m->now.cfa, CFI_EXPR, addr, data); break;
    case CFA_EXPRESSION: set_expression(m, b, rule, CFI_EXPR_SAVED, addr, data); break;
    case CFA_VAL_EXPRESSION: set_expression(m, b, rule, CFI_EXPR, addr, data); break;
    case CFA_GNU_ARGS_SIZE: break;
    default: b->bad = true;
    }
}

/* addr: the target's address of *data, from which the program was copied. */
static int run_program(struct machine *m, struct bytes program, uint64_t addr, const uint8_t *data)
{
    struct bytes *b = &program;

    while (b->at < b->end && !b->bad) {
        uint8_t op = bytes_u8(b), low = op & 63;
        bool more = true;
        switch (op >> 6) {
        case CFA_ADVANCE_LOC: more = advance(m, low); break;
        case CFA_OFFSET:
            set_rule(m, b, low, CFI_SAVED, (int64_t)(bytes_uleb(b) * (uint64_t)m->cie->data_align));
            break;
        case CFA_RESTORE:
            if (low < REGS_N)
                m->now.regs[low] = m->initial.regs[low];
            break;
        default:
            switch (op) {
            case CFA_NOP:
            case CFA_NEGATE_RA_STATE: break; /* arch_code_address() is there for all */
            case CFA_SET_LOC: {
                uint64_t here = addr + (uint64_t)(b->at - data);
                uint64_t to = read_encoded(b, m->cie->encoding, here, m->header);
                more = to <= m->pc;
                m->loc = to;
                break;
            }
            case CFA_ADVANCE_LOC1: more = advance(m, bytes_u8(b)); break;
            case CFA_ADVANCE_LOC2: more = advance(m, bytes_u16(b)); break;
            case CFA_ADVANCE_LOC4: more = advance(m, bytes_u32(b)); break;
            case CFA_REMEMBER_STATE:
                if (m->nremembered == REMEMBER_MAX)
                    return -ENOEXEC;
                m->remembered[m->nremembered++] = m->now;
                break;
            case CFA_RESTORE_STATE:
                if (!m->nremembered)
                    return -ENOEXEC;
                m->now = m->remembered[--m->nremembered];
                break;
            default: run_operands(m, b, op, addr, data);
            }
        }
        if (!more)
            break;
    }
    return b->bad ? -ENOEXEC : 0;
}

/* What holds where a module says nothing. */
static void default_rules(struct rules *rules)
{
    memset(rules, 0, sizeof *rules);
    for (unsigned i = 0; i < REGS_N; i++)
        rules->regs[i].how = ARCH_DW_KEPT >> i & 1 ? CFI_SAME : CFI_UNDEFINED;
    rules->regs[DW_SP] = (struct cfi_rule){.how = CFI_OFFSET};
    rules->cfa.how = CFI_UNDEFINED;
}

/* The rules for pc from a whole FDE, copied to data. */
static int apply_fde(struct pages *pages, const struct cfi_table *table, uint64_t pc, uint64_t addr,
                     const uint8_t *data, uint32_t size, struct cfi_row *out)
{
    uint8_t cie_data[CIE_MAX];
    struct cie cie;

    struct bytes b = {.at = data + 4, .end = data + size};
    uint64_t cie_addr = addr + 4 - bytes_u32(&b);
    int r = parse_cie(pages, cie_addr, cie_data, &cie);
    if (r < 0)
        return r;
    uint64_t start = read_encoded(&b, cie.encoding & ~PE_INDIRECT, addr + 8, table->header);
    uint64_t length = read_encoded(&b, cie.encoding & 0x0f, 0, 0);
    if (cie.augmented)
        bytes_take(&b, bytes_uleb(&b));
    if (b.bad || length > UINT64_MAX - start)
        return -ENOEXEC;
    if (pc < start || pc >= start + length)
        return -ENOENT;

    struct machine m = {.cie = &cie, .header = table->header, .loc = start, .pc = pc};
    default_rules(&m.now);
    r = run_program(&m, cie.program, cie_addr, cie_data);
    if (r < 0)
        return r;
    m.initial = m.now;
    r = run_program(&m, b, addr, data);
    if (r < 0)
        return r;
    *out = (struct cfi_row){.start = start,
                            .end = start + length,
                            .base = table->header,
                            .signal = cie.signal,
                            .cfa = m.now.cfa};
    memcpy(out->regs, m.now.regs, sizeof out->regs);
    return 0;
}

int cfi_find(struct pages *pages, const struct cfi_table *table, uint64_t pc, struct cfi_row *out)
{
    uint64_t fde = 0;
    uint32_t size;

    int r = search_table(pages, table, pc, &fde);
    if (r < 0)
        return r;
    r = entry_size(pages, fde, FDE_MAX, &size);
    if (r < 0)
        return r;
    _cleanup_free_ uint8_t *data = malloc(size);
    if (!data)
        return -ENOMEM;
    r = pages_read(pages, fde, data, size);
    if (r < 0)
        return r;
    return apply_fde(pages, table, pc, fde, data, size, out);
}
