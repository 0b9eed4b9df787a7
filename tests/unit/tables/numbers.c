/* Many rows. */
#include "fs/sql/table.h"

#include "colours.h"

#include <stdio.h>

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    char word[32];

    for (int i = 0; i < 2000; i++) {
        rows_add(rows);
        rows_integer(rows, NUMBERS_N, i);
        rows_integer(rows, NUMBERS_HALF, i / 2);
        snprintf(word, sizeof word, "word %d", i);
        rows_text(rows, NUMBERS_WORD, word);
    }
    return 0;
}

const struct row_source numbers_rows = {.fill = fill};
