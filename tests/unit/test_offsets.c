#include "agent/cpython/offsets.h"
#include "agent/base/cleanup.h"
#include "tests/unit/check.h"

#include <errno.h>

static uint8_t blob[DEBUG_OFFSETS_SIZE];

static void put(size_t index, uint64_t value) { memcpy(blob + 8 * index, &value, 8); }

/* What free-threaded builds say of themselves, behind the cookie. */
/* a running 3.13.15 */
static const uint64_t said_3_13[] = {
    51187696, 1,    328384, 608, 632, 215616, 7272, 7264, 7344, 7400, 7664, 7648, 7656, 16, 7760,
    0,        7784, 7776,   312, 0,   8,      16,   72,   152,  160,  232,  32,   80,   8,  0,
    56,       72,   70,     224, 128, 136,    144,  152,  84,   68,   112,  120,  216,  32, 24,
    432,      40,   104,    184, 48,  40,     32,   56,   40,   32,   64,   48,   56,   40, 32,
    48,       32,   40,     56,  32,  48,     80,   48,   32,   56,   248,  200};
/* _Py_DebugOffsets_INIT of the headers of 3.14.10 and 3.15.2, compiled without a GIL */
static const uint64_t said_3_14[] = {
    51251952, 1,    365624, 784,  808,  249976, 7280,  7272, 7344, 7360, 7408, 7712, 7696, 7704,
    16,       7808, 0,      7832, 7824, 8024,   17300, 832,  0,    8,    16,   72,   152,  160,
    232,      32,   88,     8,    0,    56,     80,    78,   64,   72,   240,  128,  136,  144,
    152,      84,   68,     112,  120,  232,    224,   32,   24,   432,  40,   104,  184,  56,
    48,       32,   56,     40,   32,   216,    40,    56,   48,   64,   48,   56,   40,   32,
    48,       32,   40,     56,   32,   48,     80,    48,   32,   56,   288,  192,  176,  40,
    88,       83,   0,      8,    24,   304,    8108,  0,    4,    512};
static const uint64_t said_3_15[] = {
    51315440, 1,    409296, 912,  936,  250328, 7272,  7264, 7336, 7352, 7400, 7592, 7576, 7584,
    16,       7736, 0,      7760, 7752, 7952,   17252, 888,  0,    8,    16,   72,   80,   88,
    96,       176,  184,    256,  32,   36,     40,    136,  288,  0,    88,   8,    0,    56,
    80,       78,   64,     72,   240,  128,    136,   144,  152,  84,   68,   112,  120,  232,
    224,      32,   24,     440,  40,   104,    184,   48,   304,  968,  904,  56,   48,   32,
    56,       40,   32,     216,  40,   56,     48,    64,   48,   56,   40,   32,   48,   32,
    40,       56,   32,     48,   80,   48,     32,    56,   72,   176,  112,  120,  224,  104,
    176,      40,   88,     83,   0,    8,      24,    344,  8036, 0,    4,    512};

/* All of it is as in the row that the headers gave. */
static void check_said(const uint64_t *said, size_t n)
{
    struct offsets o, row;
    uint32_t version = 0;
    bool free_threaded = false;

    memset(blob, 0, sizeof blob);
    memcpy(blob, "xdebugpy", 8);
    memcpy(blob + 8, said, 8 * n);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), 0);
    CHECK(free_threaded);
    CHECK_INT(version, said[0]);
    CHECK(offsets_for_build(version, true, &row));
    row.version = version;
    CHECK(!memcmp(&o, &row, sizeof o));

    /* a head of an impossible size, and the same said by a build with a GIL */
    for (size_t i = 2; i + 1 < n; i++)
        if (said[i] == 32 && said[i + 1] == 24) {
            put(i + 1, 33);
            CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded),
                      -EINVAL);
            put(i + 1, 32);
            break;
        }
    put(2, 0);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), 0);
    CHECK_INT(o.gil_enabled, -1);
    CHECK_INT(o.code_tlbc, -1);
    CHECK_INT(o.frame_tlbc_index, -1);
}

int main(void)
{
    struct offsets o;
    uint32_t version = 0;
    bool free_threaded = true;

    for (uint32_t minor = 8; minor <= 15; minor++) {
        CHECK(offsets_for_version(0x03000000 | minor << 16, &o));
        CHECK_INT(o.version >> 16, 0x300 | minor);
        /* what exists when */
        CHECK_INT(o.rt_gil >= 0, minor < 12);
        CHECK_INT(o.interp_gil >= 0, minor >= 12);
        CHECK_INT(o.frame_lasti >= 0, minor < 11);
        CHECK_INT(o.code_qualname >= 0, minor >= 11);
        CHECK_INT(o.tstate_cframe >= 0, minor >= 10 && minor < 13);
        CHECK_INT(o.managed_dict, minor < 11 ? -1 : -24);
        CHECK_INT(o.object_type, 8);
        CHECK_INT(o.gil_enabled, -1);
        CHECK_INT(offsets_for_build(0x03000000 | minor << 16, true, &o), minor >= 13);
        if (minor < 13)
            continue;
        CHECK_INT(o.managed_dict, -8);
        CHECK_INT(o.object_type, 24);
        CHECK_INT(o.unicode_kind_bit, minor < 14 ? 2 : 8);
        CHECK_INT(o.code_tlbc >= 0, minor >= 14);
        CHECK_INT(o.frame_tlbc_index >= 0, minor >= 14);
    }
    CHECK(!offsets_for_version(0x03070000, &o));
    CHECK(!offsets_for_version(0x03100000, &o));

    /* nothing that isn't the cookie, a known minor and sane is believed */
    memset(&o, 0x55, sizeof o);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), -EINVAL);
    memcpy(blob, "xdebugpy", 8);
    put(1, 0x031100f0);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), -EOPNOTSUPP);
    CHECK_INT(version, 0x031100f0);
    CHECK(!free_threaded);
    put(1, 0x030d05f0);
    CHECK_INT(offsets_parse_debug(blob, 100, &o, &version, &free_threaded), -EINVAL);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), -EINVAL);
    memset(blob + 24, 0xff, sizeof blob - 24);
    CHECK_INT(offsets_parse_debug(blob, sizeof blob, &o, &version, &free_threaded), -EINVAL);
    CHECK_INT(o.rt_gil, 0x55555555); /* untouched on failure */
    check_said(said_3_13, ARRAY_SIZE(said_3_13));
    check_said(said_3_14, ARRAY_SIZE(said_3_14));
    check_said(said_3_15, ARRAY_SIZE(said_3_15));
    return 0;
}
