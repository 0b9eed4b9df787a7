#include "fs/remote/objects/unicode.h"

#include "fs/remote/memory/memory.h"

bool unicode_head(const struct offsets *offsets, const uint8_t *head, struct unicode *out)
{
    uint32_t state = load32(head + offsets->unicode_state);

    out->length = load64(head + offsets->unicode_length);
    out->kind = state >> offsets->unicode_kind_bit & 7;
    out->compact = state >> offsets->unicode_compact_bit & 1;
    out->ascii = state >> offsets->unicode_ascii_bit & 1;
    out->data =
        (uint32_t)(out->ascii ? offsets->unicode_ascii_size : offsets->unicode_compact_size);
    if (out->kind != 0 && out->kind != 1 && out->kind != 2 && out->kind != 4)
        return false;
    if (out->ascii && out->kind != 1)
        return false;
    return out->length < 1ull << 40;
}

uint64_t unicode_size(const struct unicode *u) { return u->length * u->kind; }

void unicode_add(const struct unicode *u, const uint8_t *characters, uint64_t n, struct text *out)
{
    if (u->ascii) {
        text_add_escaped(out, (const char *)characters, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        text_add_codepoint(out, u->kind == 1   ? characters[i]
                                : u->kind == 2 ? load16(characters + 2 * i)
                                               : load32(characters + 4 * i));
}
