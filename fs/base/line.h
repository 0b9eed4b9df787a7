/* Lines of what somebody wrote. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a line is these words; blanks behind them don't count. */
static inline bool line_is(const char *line, size_t size, const char *words)
{
    while (size && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    return size == strlen(words) && memcmp(line, words, size) == 0;
}
