#include "fs/base/duration.h"

#include "agent/base/cleanup.h"

#include <string.h>

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"ms", 1000000u},      {"s", 1000000000u},     {"m", 60000000000u},
    {"h", 3600000000000u}, {"d", 86400000000000u},
};

bool duration_parse(const char *text, size_t size, uint64_t *out)
{
    uint64_t number = 0;
    size_t i = 0;
    bool large = false;

    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        large |= __builtin_mul_overflow(number, 10u, &number) ||
                 __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number);
    for (size_t u = 0; i > 0 && u < ARRAY_SIZE(units); u++) {
        if (strlen(units[u].name) != size - i || memcmp(text + i, units[u].name, size - i))
            continue;
        large |= __builtin_mul_overflow(number, units[u].ns, &number);
        *out = large ? UINT64_MAX : number;
        return true;
    }
    return false;
}
