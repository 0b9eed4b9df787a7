/* PyUnicodeObject: how a str lies in memory (Include/cpython/unicodeobject.h). */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/base/text.h"

struct unicode {
    uint64_t length; /* code points */
    unsigned kind;   /* bytes a code point: 1, 2, 4; 0: a legacy string that isn't ready */
    bool ascii;      /* kind 1 without the upper half: valid UTF-8 as it is */
    bool compact;    /* the characters follow the head at `data` */
    uint32_t data;   /* offset of the characters from the object */
};

/* Decodes the head of a str: at least offsets->unicode_ascii_size bytes from the object's start.
 * False if it makes no sense. */
bool unicode_head(const struct offsets *offsets, const uint8_t *head, struct unicode *out);
/* Bytes of its characters. */
uint64_t unicode_size(const struct unicode *u);
/* Appends n characters, escaped as text_add_escaped() does. */
void unicode_add(const struct unicode *u, const uint8_t *characters, uint64_t n, struct text *out);
