#include "fs/remote/objects/version.h"
#include "tests/unit/check.h"

static const char *said(uint32_t version)
{
    static struct text text;

    text_clear(&text);
    version_add(version, &text);
    return text.data;
}

int main(void)
{
    CHECK_STR(said(0x030d05f0), "3.13.5");
    CHECK_STR(said(0x030a00f0), "3.10.0");
    CHECK_STR(said(0x030f00a7), "3.15.0a7");
    CHECK_STR(said(0x030f00b1), "3.15.0b1");
    CHECK_STR(said(0x030f00c2), "3.15.0rc2");
    CHECK_STR(said(0x03090000), "3.9"); /* from outside */
    return 0;
}
