#include "fs/remote/frames/exception_table.h"

#include "fs/remote/objects/object.h"

#define TABLE_BYTES_MAX (1u << 16)
#define ENTRY_BEGINS 0x80
#define MORE_FOLLOWS 0x40

static bool next_number(struct exception_table *t, uint32_t *out)
{
    uint32_t value = 0;

    for (int i = 0; i < 5 && t->p < t->end; i++) {
        uint8_t byte = *t->p++;
        value = value << 6 | (byte & 0x3f);
        if (!(byte & MORE_FOLLOWS)) {
            *out = value;
            return true;
        }
    }
    return false;
}

bool exception_table_next(struct exception_table *t, struct handled *out)
{
    uint32_t start, length, handler, packed;

    if (t->p >= t->end || !(*t->p & ENTRY_BEGINS) || !next_number(t, &start) ||
        !next_number(t, &length) || !next_number(t, &handler) || !next_number(t, &packed))
        return false;
    /* it counts instructions, of two bytes each */
    *out = (struct handled){2 * start, 2 * (start + length), 2 * handler, packed >> 1};
    return true;
}

bool exception_table_read(struct view *view, const struct offsets *o, uint64_t code,
                          struct exception_table *out)
{
    struct exception_table found = {0};
    uint64_t bytes, size;

    if (!object_field(view, code, o->code_exceptiontable, &bytes) || !bytes ||
        !object_size(view, o, bytes, &size) || size > TABLE_BYTES_MAX)
        return false;
    if (size) {
        found.p = view_read(view, bytes + (uint32_t)o->bytes_data, (uint32_t)size);
        if (!found.p)
            return false;
        found.end = found.p + size;
    }
    *out = found;
    return true;
}
