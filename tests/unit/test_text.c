#include "fs/base/text.h"
#include "tests/unit/check.h"

static void escapes(const char *bytes, size_t size, const char *want)
{
    struct text t = TEXT_INIT;
    text_add_escaped(&t, bytes, size);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

static void is_json(const char *bytes, size_t size, const char *want)
{
    struct text t = TEXT_INIT;
    text_add_json(&t, bytes, size);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

int main(void)
{
    struct text t = TEXT_INIT;
    for (int i = 0; i < 1000; i++)
        text_printf(&t, "%d,", i);
    CHECK_INT(t.size, 10 * 2 + 90 * 3 + 900 * 4);
    CHECK_INT(text_finish(&t), 0);
    text_clear(&t);

    static char big[1 << 20];
    memset(big, 'x', sizeof big);
    for (int i = 0; i < 70; i++)
        text_add(&t, big, sizeof big);
    CHECK(t.cut);
    CHECK_INT(text_finish(&t), 0);
    CHECK(t.size <= TEXT_MAX && strstr(t.data, "[cut:"));
    text_deinit(&t);

    escapes("a\nb\tc\x1b[31m", 10, "a\\nb\\tc\\x1b[31m");
    escapes("gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f");
    escapes("\xff\xc0\x80\xed\xa0\x80", 6, "\\xff\\xc0\\x80\\xed\\xa0\\x80");
    escapes("\xc2\x9b", 2, "\\x9b"); /* CSI as a C1 control character */
    escapes("\xf0\x9f\x90\x8d", 4, "\xf0\x9f\x90\x8d");
    is_json("", 0, "\"\"");
    is_json("a\"\\\n\r\t", 6, "\"a\\\"\\\\\\n\\r\\t\"");
    is_json("\0\x1b\x7f\xc2\x9b", 5, "\"\\u0000\\u001b\\u007f\\u009b\"");
    is_json("gr\xc3\xbc\xff\xf0\x9f", 7, "\"gr\xc3\xbc\\\\xff\\\\xf0\\\\x9f\"");
    return 0;
}
