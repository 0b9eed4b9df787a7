/* Numbers and bytes as words of a text, written and read by one description: a function that goes
 * through a struct with these names each field once, for both directions.
 *
 * What is read may come from anybody: each number is held against its range, and after the first
 * error all that follow are the least that they may be. */
#pragma once

#include "fs/base/text.h"

#include <stdint.h>

struct fields {
    struct text *out;     /* to write to; NULL: they are read from ... */
    const char *at, *end; /* ... the rest of this, behind which there is a 0 */
    int error;            /* -EPROTO: what was read is none of this */
};

/* Writes the number; or reads one, which is returned. */
int64_t field_number(struct fields *fields, int64_t number, int64_t least, int64_t most);
/* Writes a string; or reads one into buf, of cap bytes with its 0. */
void field_string(struct fields *fields, char *buf, size_t cap);

/* The same of something that a number can be assigned to. */
#define FIELD(fields, lvalue, least, most) \
 ((lvalue) = (__typeof__(lvalue))field_number((fields), (int64_t)(lvalue), (least), (most)))
#define FIELD_ANY(fields, lvalue) FIELD(fields, lvalue, INT64_MIN, INT64_MAX)
#define FIELD_BOOL(fields, lvalue) FIELD(fields, lvalue, 0, 1)
