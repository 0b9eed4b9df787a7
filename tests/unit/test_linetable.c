#include "fs/remote/objects/linetable.h"
#include "tests/unit/check.h"

#include <errno.h>

static void check(enum linetable_format format, const uint8_t *bytes, size_t size, int first,
                  const int (*want)[2])
{
    struct linetable t;

    CHECK_INT(linetable_decode(format, bytes, size, first, &t), 0);
    for (; (*want)[0] >= 0; want++)
        CHECK_INT(linetable_line(&t, (*want)[0]), (*want)[1]);
    CHECK_INT(linetable_line(&t, -2), first);
    linetable_deinit(&t);
}

static void check_position(const struct linetable *t, int offset, int line, int end_line, int col,
                           int end_col)
{
    struct position p = linetable_position(t, offset);

    CHECK_INT(p.line, line);
    CHECK_INT(p.end_line, end_line);
    CHECK_INT(p.col, col);
    CHECK_INT(p.end_col, end_col);
}

int main(void)
{
    /* the example of Objects/lnotab_notes.txt: lines 1, 2, 7, 207 (by two steps), 208 at 6 ... */
    static const uint8_t lnotab[] = {0, 1, 6, 1, 44, 5, 44, 127, 0, 73, 50, 1};
    static const int lnotab_want[][2] = {{0, 2},     {5, 2},     {6, 3},    {49, 3},
                                         {50, 8},    {93, 8},    {94, 208}, {143, 208},
                                         {144, 209}, {900, 209}, {-1, 0}};
    check(LINETABLE_LNOTAB, lnotab, sizeof lnotab, 1, lnotab_want);

    /* a step back, as in a call whose arguments stand on later lines */
    static const uint8_t back[] = {8, 3, 6, 0xfe, 4, 1};
    static const int back_want[][2] = {{0, 10}, {7, 10}, {8, 13}, {14, 11}, {18, 12}, {-1, 0}};
    check(LINETABLE_LNOTAB, back, sizeof back, 10, back_want);

    /* 3.10: an instruction without a line (-128), and an empty range that only moves the line */
    static const uint8_t t310[] = {4, 1, 2, 0x80, 0, 100, 6, 5};
    static const int t310_want[][2] = {{0, 6}, {3, 6}, {4, -1}, {6, 111}, {11, 111}, {-1, 0}};
    check(LINETABLE_3_10, t310, sizeof t310, 5, t310_want);

    /* 3.11: short form (2 units), one-line +1 (1 unit), no columns -3 (4 units), long +200
     * (1 unit), none (1 unit); negative numbers carry their sign in bit 0 */
    /* clang-format off */
    static const uint8_t locations[] = {
        0x80 | 2 << 3 | 1, 0x11,
        0x80 | 11 << 3 | 0, 1, 9,
        0x80 | 13 << 3 | 3, 3 << 1 | 1,
        0x80 | 14 << 3 | 0, 0x40 | (400 & 63), 400 >> 6, 0, 1, 2,
        0x80 | 15 << 3 | 0,
    };
    /* clang-format on */
    static const int locations_want[][2] = {{0, 20},  {3, 20},   {4, 21},  {6, 18},
                                            {13, 18}, {14, 218}, {16, -1}, {-1, 0}};
    check(LINETABLE_LOCATIONS, locations, sizeof locations, 20, locations_want);

    struct linetable positions;
    CHECK_INT(linetable_decode(LINETABLE_LOCATIONS, locations, sizeof locations, 20, &positions),
              0);
    check_position(&positions, -1, 20, 20, -1, -1);
    check_position(&positions, 2, 20, 20, 17, 18);
    check_position(&positions, 4, 21, 21, 1, 9);
    check_position(&positions, 6, 18, 18, -1, -1);
    check_position(&positions, 14, 218, 218, 0, 1);
    check_position(&positions, 16, -1, -1, -1, -1);
    linetable_deinit(&positions);

    /* cut in the middle of a number, and nothing at all */
    static const int cut_want[][2] = {{0, 20}, {-1, 0}};
    check(LINETABLE_LOCATIONS, (const uint8_t[]){0x80 | 14 << 3, 0x40}, 2, 20, cut_want);
    check(LINETABLE_LOCATIONS, locations, 0, 20, cut_want);
    check(LINETABLE_LNOTAB, lnotab, 1, 20, cut_want);

    struct linetable t;
    CHECK_INT(linetable_decode(LINETABLE_3_10, lnotab, LINETABLE_BYTES_MAX + 1, 1, &t), -E2BIG);
    return 0;
}
