#include "fs/base/size.h"

#include <string.h>

bool size_parse(const char *text, size_t size, uint64_t *out)
{
    static const char units[] = "KMG";
    uint64_t number = 0;
    size_t i = 0;
    bool large = false;

    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        large |= __builtin_mul_overflow(number, 10u, &number) ||
                 __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number);
    const char *unit = i < size && text[i] ? strchr(units, text[i]) : NULL;
    if (i == 0 || i + (unit != NULL) != size)
        return false;
    if (unit)
        large |= __builtin_mul_overflow(number, 1ull << 10 * (unit - units + 1), &number);
    *out = large ? UINT64_MAX : number;
    return true;
}
