/* Line tables of code objects: which source line an instruction belongs to.
 *
 * Three formats: co_lnotab up to 3.9 (Objects/lnotab_notes.txt), co_linetable of 3.10 (PEP 626,
 * the same file), and the location table from 3.11 on (Objects/locations.md, later
 * InternalDocs/code_objects.md). The bytes come from a target: any bytes give some table. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes of a table that are looked at: a module of 100,000 lines has some 500 KiB. */
#define LINETABLE_BYTES_MAX (1u << 20)
#define LINETABLE_NO_LINE (-1) /* an instruction that belongs to no line */

enum linetable_format {
    LINETABLE_LNOTAB, /* 3.9 */
    LINETABLE_3_10,
    LINETABLE_LOCATIONS, /* 3.11 on */
};

struct linetable {
    struct linetable_row {
        uint32_t start; /* first byte of bytecode it holds for */
        int32_t line;
        uint16_t lines;       /* further ones that it reaches over */
        int16_t col, end_col; /* as in struct position */
    } * rows;                 /* ascending */
    size_t n;
    int first_line;
};

/* What code.co_positions() says of an instruction. */
struct position {
    int line, end_line; /* LINETABLE_NO_LINE: none */
    int col, end_col; /* [bytes] of the source as UTF-8, before it in its line, and up to its end in
                         the last line; -1: not known (before 3.11, or not kept) */
};

/* The format that a version (PY_VERSION_HEX) uses. */
enum linetable_format linetable_format_of(uint32_t version);

/* Decodes a table of a function that begins at first_line. -ENOMEM; -E2BIG over
 * LINETABLE_BYTES_MAX. The caller owns *out (linetable_deinit). */
int linetable_decode(enum linetable_format format, const uint8_t *bytes, size_t size,
                     int first_line, struct linetable *out);
void linetable_deinit(struct linetable *table);

/* The line of the instruction at a byte offset into the bytecode, or LINETABLE_NO_LINE. Negative
 * offsets (not started yet) give the first line. */
int linetable_line(const struct linetable *table, int64_t offset);
/* The position of an instruction: its line and columns. */
struct position linetable_position(const struct linetable *table, int64_t offset);
