/* A growing text with an upper limit: every virtual file is rendered into one. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* No rendered file grows beyond this; what is cut says so in its last line. */
#define TEXT_MAX (64u << 20)

struct text {
    char *data;  /* NUL-terminated once anything was added, else NULL */
    size_t size; /* bytes, without the NUL */
    size_t alloc;
    bool cut;  /* a limit was reached: later additions were dropped */
    int error; /* -ENOMEM once an allocation failed, sticky */
};

#define TEXT_INIT ((struct text){0})

void text_deinit(struct text *t);
/* Forgets the content and keeps the memory. */
void text_clear(struct text *t);
/* Takes back what was added since it was this long. */
void text_truncate(struct text *t, size_t size);

void text_add(struct text *t, const char *bytes, size_t size);
void text_puts(struct text *t, const char *s);
void text_putc(struct text *t, char c);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(struct text *t, const char *format, va_list args);
/* Adds bytes that a target chose. Valid UTF-8 passes through; control characters (newlines
 * too) become \n, \t, \x1b and the like and invalid bytes \xNN, so that they can neither forge
 * a line nor drive a terminal. */
void text_add_escaped(struct text *t, const char *bytes, size_t size);
/* Adds bytes that a target chose as a JSON string, with its quotes (RFC 8259). An invalid byte
 * becomes the text \xNN, as in text_add_escaped(), and control characters \u00NN. */
void text_add_json(struct text *t, const char *bytes, size_t size);
/* Length of the valid UTF-8 sequence at s, 0 if there is none (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF). */
size_t utf8_length(const unsigned char *s, size_t size);
/* Seconds since 1970 as ISO 8601 has them, in local time with its offset; nothing where
 * that year is out of bounds. */
void text_add_time(struct text *t, time_t seconds);
/* text_add_escaped() for one Unicode code point; lone surrogates become \udcXX. */
void text_add_codepoint(struct text *t, unsigned code);

/* 0, or the first error met. Marks a text that reached TEXT_MAX with a last line that says so. */
int text_finish(struct text *t);
