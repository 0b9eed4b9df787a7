#include "fs/remote/objects/quote.h"

#include "fs/remote/memory/memory.h"

/* Categories Cc, Cf, Co, Cs, Zl, Zp and Zs beyond ASCII, as Unicode 15.1 has them (what
 * str.isprintable() denies); unassigned code points between two of them count in. */
static const struct {
    uint32_t first, last;
} not_printable[] = {
    {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
    {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
    {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f},
    {0x205f, 0x206f},   {0x3000, 0x3000},   {0xd800, 0xf8ff},   {0xfeff, 0xfeff},
    {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe007f}, {0xf0000, UINT32_MAX},
};

static bool printable(uint32_t c)
{
    for (size_t i = 0; i < sizeof not_printable / sizeof *not_printable; i++)
        if (c <= not_printable[i].last)
            return c < not_printable[i].first;
    return true;
}

static uint32_t character(const uint8_t *data, unsigned width, uint32_t i)
{
    return width == 1 ? data[i] : width == 2 ? load16(data + 2 * i) : load32(data + 4 * i);
}

/* repr() takes ' unless that would need a backslash and " would not. */
static char choose_quote(const uint8_t *data, unsigned width, uint32_t n)
{
    bool single = false;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = character(data, width, i);
        if (c == '"')
            return '\'';
        single |= c == '\'';
    }
    return single ? '"' : '\'';
}

/* What both kinds of strings escape alike; false: it isn't one of those. */
static bool add_ascii(struct text *out, uint32_t c, char quote)
{
    if (c == (uint32_t)quote || c == '\\') {
        text_putc(out, '\\');
        text_putc(out, (char)c);
    } else if (c == '\t') {
        text_puts(out, "\\t");
    } else if (c == '\n') {
        text_puts(out, "\\n");
    } else if (c == '\r') {
        text_puts(out, "\\r");
    } else if (c < ' ') {
        text_printf(out, "\\x%02x", c);
    } else if (c < 0x7f) {
        text_putc(out, (char)c);
    } else {
        return false;
    }
    return true;
}

void quote_add_str(struct text *out, const uint8_t *data, unsigned width, uint32_t n)
{
    char quote = choose_quote(data, width, n);

    text_putc(out, quote);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = character(data, width, i);
        if (add_ascii(out, c, quote))
            continue;
        if (printable(c))
            text_add_codepoint(out, c);
        else
            text_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    text_putc(out, quote);
}

void quote_add_bytes(struct text *out, const uint8_t *data, uint32_t n)
{
    char quote = choose_quote(data, 1, n);

    text_putc(out, 'b');
    text_putc(out, quote);
    for (uint32_t i = 0; i < n; i++)
        if (!add_ascii(out, data[i], quote))
            text_printf(out, "\\x%02x", data[i]);
    text_putc(out, quote);
}
