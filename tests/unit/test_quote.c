#include "fs/remote/objects/quote.h"
#include "tests/unit/check.h"

static void str_is(const void *data, unsigned width, uint32_t n, const char *want)
{
    struct text t = TEXT_INIT;
    quote_add_str(&t, data, width, n);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

static void bytes_is(const char *data, uint32_t n, const char *want)
{
    struct text t = TEXT_INIT;
    quote_add_bytes(&t, (const uint8_t *)data, n);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

int main(void)
{
    str_is("", 1, 0, "''");
    str_is("abc", 1, 3, "'abc'");
    str_is("it's", 1, 4, "\"it's\"");
    str_is("\"it's\"", 1, 6, "'\"it\\'s\"'");
    str_is("a\\b\t\n\r\0\x7f", 1, 8, "'a\\\\b\\t\\n\\r\\x00\\x7f'");
    str_is("\xe9\x80\xa0\xad", 1, 4, "'\xc3\xa9\\x80\\xa0\\xad'"); /* Latin-1 */
    str_is((uint16_t[]){0x65e5, 0x202e, 0xd800, 0xe000, 0xfeff}, 2, 5,
           "'\xe6\x97\xa5\\u202e\\ud800\\ue000\\ufeff'");
    str_is((uint32_t[]){0x1f40d, 0xe0001, 0x10ffff, 0x110000, 0xffffffff}, 4, 5,
           "'\xf0\x9f\x90\x8d\\U000e0001\\U0010ffff\\U00110000\\Uffffffff'");
    bytes_is("", 0, "b''");
    bytes_is("a'\\\n\xff", 5, "b\"a'\\\\\\n\\xff\"");
    bytes_is("'\"", 2, "b'\\'\"'");
    return 0;
}
