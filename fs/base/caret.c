#include "fs/base/caret.h"

#include "agent/base/cleanup.h"

/* Characters of UTF-8. */
static size_t count_characters(const struct text *text)
{
    size_t n = 0;

    for (size_t i = 0; i < text->size; i++)
        n += (text->data[i] & 0xc0) != 0x80;
    return n;
}

void text_add_caret(struct text *out, const char *line, size_t size, const char *at)
{
    _cleanup_(text_deinit) struct text before = TEXT_INIT;

    text_add_escaped(&before, line, (size_t)(at - line));
    text_puts(out, "\n  ");
    text_add_escaped(out, line, size);
    text_printf(out, "\n  %*s^", (int)count_characters(&before), "");
}
