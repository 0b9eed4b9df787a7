#include "fs/remote/frames/instructions.h"

#include "agent/base/cleanup.h"
#include "fs/remote/objects/object.h"

#include <errno.h>

/* What is known of each opcode: a letter of enum instruction_kind; how many units of two bytes its
 * caches have, in hexadecimal. */
struct opcodes {
    uint32_t version;
    char kinds[257], caches[257];
};

static const struct opcodes table[] = {
#include "fs/remote/frames/opcodes_table.h"
};

#define MINOR_MASK 0xffff0000u

static const uint8_t *read_fixed(struct view *view, uint64_t addr, uint32_t size)
{
    const uint8_t *p;

    int r = view_get_fixed(view, addr, size, &p);
    if (r == -EAGAIN && view_fill(view) == 0)
        r = view_get_fixed(view, addr, size, &p);
    return r == 0 ? p : NULL;
}

/* Finds the bytes of a code object: in itself from 3.11 on, before in a bytes object. */
static bool find_bytes(struct view *view, const struct offsets *o, uint64_t code, uint64_t *addr,
                       uint64_t *size)
{
    if (o->code_adaptive >= 0) {
        *addr = code + (uint32_t)o->code_adaptive;
        if (!object_size(view, o, code, size))
            return false;
        *size = *size > BYTECODE_MAX ? *size : *size * 2;
        return true;
    }
    if (!object_field(view, code, o->code_bytecode, addr) || !object_size(view, o, *addr, size))
        return false;
    *addr += (uint32_t)o->bytes_data;
    return true;
}

int bytecode_read(struct view *view, const struct offsets *o, uint64_t code, struct bytecode *out)
{
    struct bytecode found = {.version = o->version & MINOR_MASK};
    uint64_t addr, size;

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].version == found.version)
            found.opcodes = &table[i];
    if (!found.opcodes)
        return -EOPNOTSUPP;
    if (!find_bytes(view, o, code, &addr, &size))
        return -EFAULT;
    if (size > BYTECODE_MAX)
        return -E2BIG;
    found.size = (uint32_t)size & ~1u;
    /* the counters in its caches change all the time */
    found.bytes = read_fixed(view, addr, found.size);
    if (!found.bytes)
        return -EFAULT;
    *out = found;
    return 0;
}

/* The lowest bit of these says what else is pushed. */
static bool has_flag(const struct bytecode *code, const struct instruction *i)
{
    return (i->kind == INSTRUCTION_LOAD_GLOBAL && code->version >= 0x030b0000) ||
           (i->kind == INSTRUCTION_LOAD_ATTR && code->version >= 0x030c0000);
}

static uint32_t target_of(const struct bytecode *code, const struct instruction *i)
{
    uint32_t bytes = code->version >= 0x030a0000 ? 2 * i->arg : i->arg;

    switch (i->kind) {
    case INSTRUCTION_JUMP:
    case INSTRUCTION_JUMP_IF:
    case INSTRUCTION_SETUP_WITH:
    case INSTRUCTION_SETUP_BLOCK: return i->end + bytes;
    case INSTRUCTION_JUMP_BACKWARD:
    case INSTRUCTION_JUMP_BACKWARD_IF: return i->end - bytes;
    case INSTRUCTION_JUMP_ABSOLUTE:
    case INSTRUCTION_JUMP_ABSOLUTE_IF: return bytes;
    default: return NO_TARGET;
    }
}

bool bytecode_next(const struct bytecode *code, uint32_t at, struct instruction *out)
{
    struct instruction i = {.at = at, .end = at, .kind = INSTRUCTION_EXTENDED_ARG};
    uint8_t opcode = 0;

    while (i.kind == INSTRUCTION_EXTENDED_ARG) {
        if (i.end >= code->size)
            return false;
        opcode = code->bytes[i.end];
        i.kind = (enum instruction_kind)code->opcodes->kinds[opcode];
        i.arg = i.arg << 8 | code->bytes[i.end + 1];
        i.end += 2;
    }
    char caches = code->opcodes->caches[opcode];
    i.end += 2 * (uint32_t)(caches >= 'a' ? caches - 'a' + 10 : caches - '0');
    if (i.kind == INSTRUCTION_UNKNOWN || i.end > code->size)
        return false;
    i.target = target_of(code, &i);
    if (i.target != NO_TARGET && i.target >= code->size)
        return false;
    if (has_flag(code, &i))
        i.arg >>= 1;
    *out = i;
    return true;
}

bool instruction_falls_through(const struct instruction *i)
{
    return i->kind != INSTRUCTION_JUMP && i->kind != INSTRUCTION_JUMP_BACKWARD &&
           i->kind != INSTRUCTION_JUMP_ABSOLUTE && i->kind != INSTRUCTION_RETURN;
}
