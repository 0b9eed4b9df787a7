#include "fs/base/ranges.h"

#include <limits.h>

/* Reads the number at *at. */
static bool read_number(const char **at, const char *end, unsigned *out)
{
    uint64_t value = 0;
    const char *p = *at;

    while (p < end && *p >= '0' && *p <= '9' && value <= INT_MAX)
        value = value * 10 + (uint64_t)(*p++ - '0');
    if (p == *at || value > INT_MAX)
        return false;
    *out = (unsigned)value;
    *at = p;
    return true;
}

static bool read_range(const char **at, const char *end, struct range *out)
{
    if (!read_number(at, end, &out->low))
        return false;
    out->high = out->low;
    if (*at == end || **at != '-')
        return true;
    ++*at;
    return read_number(at, end, &out->high) && out->high >= out->low;
}

bool ranges_parse(const char *text, size_t size, struct ranges *out, const char **wrong)
{
    const char *at = text, *end = text + size;

    out->n = 0;
    while (true) {
        *wrong = at;
        if (out->n == RANGES_MAX || !read_range(&at, end, &out->items[out->n]))
            return false;
        out->n++;
        if (at == end)
            return true;
        if (*at != ',') {
            *wrong = at;
            return false;
        }
        at++;
    }
}

bool ranges_have(const struct ranges *ranges, int64_t number)
{
    for (size_t i = 0; i < ranges->n; i++)
        if (number >= ranges->items[i].low && number <= ranges->items[i].high)
            return true;
    return false;
}

void ranges_add_text(const int64_t *numbers, size_t n, struct text *out)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && numbers[end] <= numbers[end - 1] + 1; end++)
            ;
        text_printf(out, i ? ",%lld" : "%lld", (long long)numbers[i]);
        if (numbers[end - 1] > numbers[i])
            text_printf(out, "-%lld", (long long)numbers[end - 1]);
    }
}
