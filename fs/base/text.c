#include "fs/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_deinit(struct text *t)
{
    if (!t)
        return;
    free(t->data);
    *t = TEXT_INIT;
}

void text_clear(struct text *t)
{
    t->size = 0;
    t->cut = false;
    t->error = 0;
    if (t->data)
        t->data[0] = 0;
}

void text_truncate(struct text *t, size_t size)
{
    if (size >= t->size)
        return;
    t->size = size;
    t->data[size] = 0;
}

/* Makes room for `more` bytes and the NUL; false when nothing may be added. */
static bool reserve(struct text *t, size_t more)
{
    if (t->error || t->cut)
        return false;
    if (more > TEXT_MAX - t->size) {
        t->cut = true;
        return false;
    }
    if (t->size + more + 1 <= t->alloc)
        return true;

    size_t alloc = t->alloc ? t->alloc : 1024;
    while (alloc < t->size + more + 1)
        alloc *= 2;
    char *data = realloc(t->data, alloc);
    if (!data) {
        t->error = -ENOMEM;
        return false;
    }
    t->data = data;
    t->alloc = alloc;
    return true;
}

void text_add(struct text *t, const char *bytes, size_t size)
{
    if (!size || !reserve(t, size))
        return;
    memcpy(t->data + t->size, bytes, size);
    t->size += size;
    t->data[t->size] = 0;
}

void text_puts(struct text *t, const char *s) { text_add(t, s, strlen(s)); }
void text_putc(struct text *t, char c) { text_add(t, &c, 1); }

void text_vprintf(struct text *t, const char *format, va_list args)
{
    char small[512];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small) {
        text_add(t, small, n);
    } else if (n >= 0 && reserve(t, n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, format, again);
        t->size += n;
    }
    va_end(again);
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vprintf(t, format, args);
    va_end(args);
}

size_t utf8_length(const unsigned char *s, size_t size)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || size < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

void text_add_time(struct text *t, time_t seconds)
{
    struct tm tm;
    char when[32] = "";

    if (localtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S%z", &tm);
    text_puts(t, when);
}

void text_add_codepoint(struct text *t, unsigned c)
{
    char b[4];

    if (c == '\n') {
        text_puts(t, "\\n");
    } else if (c == '\r') {
        text_puts(t, "\\r");
    } else if (c == '\t') {
        text_puts(t, "\\t");
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
        text_printf(t, "\\x%02x", c);
    } else if (c < 0x80) {
        text_putc(t, (char)c);
    } else if (c < 0x800) {
        b[0] = (char)(0xc0 | c >> 6);
        b[1] = (char)(0x80 | (c & 63));
        text_add(t, b, 2);
    } else if (c >= 0xd800 && c < 0xe000) {
        text_printf(t, "\\u%04x", c);
    } else if (c < 0x10000) {
        b[0] = (char)(0xe0 | c >> 12);
        b[1] = (char)(0x80 | (c >> 6 & 63));
        b[2] = (char)(0x80 | (c & 63));
        text_add(t, b, 3);
    } else if (c < 0x110000) {
        b[0] = (char)(0xf0 | c >> 18);
        b[1] = (char)(0x80 | (c >> 12 & 63));
        b[2] = (char)(0x80 | (c >> 6 & 63));
        b[3] = (char)(0x80 | (c & 63));
        text_add(t, b, 4);
    } else {
        text_printf(t, "\\U%08x", c);
    }
}

void text_add_escaped(struct text *t, const char *bytes, size_t size)
{
    const unsigned char *s = (const unsigned char *)bytes;
    for (size_t i = 0; i < size;) {
        size_t n = utf8_length(s + i, size - i);
        if (n == 0) {
            text_printf(t, "\\x%02x", s[i]);
            i++;
        } else if (n == 1) {
            text_add_codepoint(t, s[i]);
            i++;
        } else if (n == 2 && s[i] == 0xc2 && s[i + 1] < 0xa0) {
            text_add_codepoint(t, s[i + 1]); /* a C1 control character */
            i += 2;
        } else {
            text_add(t, bytes + i, n);
            i += n;
        }
    }
}

/* Adds one valid UTF-8 sequence. */
static void add_json_character(struct text *t, const unsigned char *s, size_t n)
{
    if (*s == '"' || *s == '\\')
        text_printf(t, "\\%c", *s);
    else if (*s == '\n')
        text_puts(t, "\\n");
    else if (*s == '\r')
        text_puts(t, "\\r");
    else if (*s == '\t')
        text_puts(t, "\\t");
    else if (*s < 0x20 || *s == 0x7f)
        text_printf(t, "\\u%04x", *s);
    else if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)
        text_printf(t, "\\u%04x", s[1]); /* a C1 control character */
    else
        text_add(t, (const char *)s, n);
}

void text_add_json(struct text *t, const char *bytes, size_t size)
{
    const unsigned char *s = (const unsigned char *)bytes;

    text_putc(t, '"');
    for (size_t i = 0, n; i < size; i += n ? n : 1) {
        n = utf8_length(s + i, size - i);
        if (n)
            add_json_character(t, s + i, n);
        else
            text_printf(t, "\\\\x%02x", s[i]);
    }
    text_putc(t, '"');
}

int text_finish(struct text *t)
{
    static const char mark[] = "\n[cut: the limit of 64 MiB for one file was reached]\n";

    if (t->error)
        return t->error;
    if (t->cut) {
        t->cut = false;
        t->size = t->size > sizeof mark ? t->size - sizeof mark : 0;
        text_add(t, mark, sizeof mark - 1);
        t->cut = true;
    }
    return t->error;
}
