/* The rows of a table that only a test has. */
#include "fs/sql/table.h"

#include "colours.h"

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    static const char *const names[] = {"red",   "gre\"en",   "bl,ue",       "",
                                        " grey", "bl\377ack", "line\nbreak", "gr\xc3\xbcn"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        rows_add(rows);
        rows_integer(rows, COLOURS_ID, i);
        rows_text(rows, COLOURS_NAME, names[i]);
        rows_real(rows, COLOURS_SHARE, i * 1.5);
        if (i == 2)
            rows_integer(rows, COLOURS_EXTRA, INT64_MIN + 1);
    }
    return 0;
}

const struct row_source colours_rows = {.fill = fill};
