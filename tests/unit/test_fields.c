#include "agent/base/cleanup.h"
#include "fs/base/fields.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <limits.h>

struct thing {
    enum { ONE, TWO } kind;
    uint64_t word;
    int number;
    bool flag;
    char name[8];
};

static void thing_fields(struct fields *fields, struct thing *thing)
{
    FIELD(fields, thing->kind, ONE, TWO);
    FIELD_ANY(fields, thing->word);
    FIELD(fields, thing->number, INT_MIN, INT_MAX);
    FIELD_BOOL(fields, thing->flag);
    field_string(fields, thing->name, sizeof thing->name);
}

static int parse(const char *text, struct thing *out)
{
    struct fields fields = {.at = text, .end = text + strlen(text)};

    thing_fields(&fields, out);
    return fields.error ? fields.error : fields.at == fields.end ? 0 : 1;
}

/* What is written is read as it was. */
static void test_both_ways(void)
{
    struct thing from = {TWO, UINT64_MAX, INT_MIN, true, "a\n\xff\x1b"}, to = {0};
    struct text text = TEXT_INIT;

    thing_fields(&(struct fields){.out = &text}, &from);
    CHECK_STR(text.data, "1 -1 -2147483648 1 4 97 10 255 27 ");
    CHECK_INT(parse(text.data, &to), 0);
    CHECK(to.kind == TWO && to.word == UINT64_MAX && to.number == INT_MIN && to.flag);
    CHECK_STR(to.name, from.name);
    text_deinit(&text);
}

/* What isn't in range ends it, and all that follows is the least that it may be. */
static void test_refused(void)
{
    static const char *const texts[] = {
        "",
        "2 1 1 1 0 ",
        "-1 1 1 1 0 ",
        "1 18446744073709551616 1 1 0 ",
        "1 1 2147483648 1 0 ",
        "1 1 1 2 0 ",
        "1 1 1 1 8 97 97 97 97 97 97 97 97 ",
        "1 1 1 1 1 256 ",
        "1 1 1 1 1 0 ",
        "1 1 1 1 2 97 ",
        "1 1 1 1 1 97",
        "1 1 1 x 0 ",
        "1\t1 1 1 0 ",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct thing to = {0};
        CHECK_INT(parse(texts[i], &to), -EPROTO);
        CHECK_STR(to.name, "");
    }
    struct thing to = {.number = 7};
    CHECK_INT(parse("9 1 1 1 0 ", &to), -EPROTO);
    CHECK_INT(to.number, INT_MIN);
    CHECK_INT(parse("1 1 1 1 0 1 ", &to), 1); /* there is more */
}

int main(void)
{
    test_both_ways();
    test_refused();
    return 0;
}
