#include "agent/cpython/offsets.h"
#include "tests/unit/check.h"

#include <errno.h>

static uint8_t blob[DEBUG_OFFSETS_SIZE];

static void put(size_t index, uint64_t value) { memcpy(blob + 8 * index, &value, 8); }

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
    return 0;
}
