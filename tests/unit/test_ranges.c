#include "fs/base/ranges.h"
#include "tests/unit/check.h"

#include <stdbool.h>

static void reads(const char *text, int first, int last, int missing)
{
    struct ranges ranges;
    const char *wrong;

    CHECK(ranges_parse(text, strlen(text), &ranges, &wrong));
    CHECK(ranges_have(&ranges, first));
    CHECK(ranges_have(&ranges, last));
    CHECK(!ranges_have(&ranges, missing));
}

static void is_wrong(const char *text, size_t at)
{
    struct ranges ranges;
    const char *wrong;

    CHECK(!ranges_parse(text, strlen(text), &ranges, &wrong));
    CHECK_INT(wrong - text, at);
}

static void is_written(const int64_t *numbers, size_t n, const char *want)
{
    struct text text = TEXT_INIT;

    ranges_add_text(numbers, n, &text);
    CHECK_STR(text.data ? text.data : "", want);
    text_deinit(&text);
}

int main(void)
{
    char many[RANGES_MAX * 2 + 2];

    reads("0", 0, 0, 1);
    reads("0,2-3", 2, 3, 1);
    reads("0,2-3", 0, 0, -1);
    reads("4-4,1000000-2147483647", 4, 2147483647, 5);
    is_wrong("", 0);
    is_wrong("x", 0);
    is_wrong("1,", 2);
    is_wrong("1;2", 1);
    is_wrong("3-2", 0);
    is_wrong("0,2-", 2);
    is_wrong("1,2147483648", 2);
    is_wrong("-1", 0);
    for (size_t i = 0; i <= RANGES_MAX; i++)
        memcpy(many + i * 2, "7,", 2);
    many[sizeof many - 1] = 0;
    is_wrong(many, RANGES_MAX * 2);

    is_written(NULL, 0, "");
    is_written((int64_t[]){5}, 1, "5");
    is_written((int64_t[]){0, 1, 2, 4, 6, 7}, 6, "0-2,4,6-7");
    is_written((int64_t[]){3, 3, 3, 4}, 4, "3-4");
    return 0;
}
