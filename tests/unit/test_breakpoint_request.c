#include "fs/breakpoint/request.h"
#include "tests/unit/check.h"

#include <errno.h>

static const struct proto_breakpoint *entry(const struct breakpoint_request *request, size_t i)
{
    CHECK(i < request->n && request->lines[i].at % 8 == 0);
    return (const struct proto_breakpoint *)(request->text.data + request->lines[i].at);
}

/* The words of an entry, the one after the other. */
static const char *words(const struct proto_breakpoint *entry, int n)
{
    const char *p = (const char *)(entry + 1);

    while (n--)
        p += strlen(p) + 1;
    return p;
}

static void read_lines(const char *lines, int want, struct breakpoint_request *out,
                       struct text *why)
{
    text_clear(why);
    CHECK_INT(breakpoint_request_read(lines, strlen(lines), out, why), want);
}

static void test_entries(void)
{
    static const char lines[] = "# those of yesterday\n"
                                "stop for 2s a.py:12 {x,\ty} if x > 1 x 3\n"
                                "\n"
                                "7: watch 0x1000:4 hw=ptrace\n"
                                "-7\n"
                                "-  return  m.f()\n"
                                "watch x in 12/3";
    struct breakpoint_request request;
    struct text why = TEXT_INIT;

    read_lines(lines, 0, &request, &why);
    CHECK(request.n == 5 && request.sets && request.lines[0].at == 0);

    const struct proto_breakpoint *e = entry(&request, 0);
    CHECK(e->size == request.lines[1].at && !e->id && e->kind == BREAKPOINT_LINE &&
          e->action == BREAKPOINT_STOP);
    CHECK(e->line == 12 && e->count == 3 && e->stop_ns == 2000000000u && e->captures == 2);
    CHECK_STR(words(e, 0), "stop for 2s a.py:12 {x, y} if x > 1 x 3");
    CHECK(e->text_size == strlen(words(e, 0)) &&
          !memcmp(words(e, 0) + e->location_at, "a.py:12", e->location_size));
    CHECK_INT(e->location_size, 7);
    CHECK_STR(words(e, 1), "a.py");
    CHECK_INT(e->where_size, 4);
    CHECK_STR(words(e, 2), "x > 1");
    CHECK_INT(e->condition_size, 5);
    CHECK_STR(words(e, 3), "x");
    CHECK_STR(words(e, 4), "y");
    CHECK_INT(e->captures_size, 4);

    e = entry(&request, 1);
    CHECK(e->id == 7 && e->kind == BREAKPOINT_WATCH_ADDRESS && e->route == ROUTE_PTRACE &&
          e->address == 0x1000);
    CHECK(e->length == 4 && !e->captures && !e->captures_size && !e->where_size);
    e = entry(&request, 2);
    CHECK(e->kind == BREAKPOINT_REMOVE && e->id == 7 && !e->where_size);
    e = entry(&request, 3);
    CHECK(e->kind == BREAKPOINT_REMOVE && !e->id && !e->text_size);
    CHECK_STR(words(e, 1), "return m.f()");
    CHECK_INT(e->where_size, 12);
    CHECK(!e->thread && !e->depth);
    e = entry(&request, 4);
    CHECK(e->kind == BREAKPOINT_WATCH && e->thread == 12 && e->depth == 3);
    CHECK_STR(words(e, 0), "log watch x in 12/3");
    CHECK_STR(words(e, 1), "x");
    CHECK_INT(request.text.size, request.lines[4].at + e->size);
    breakpoint_request_deinit(&request);

    read_lines("-7\n", 0, &request, &why);
    CHECK(request.n == 1 && !request.sets);
    breakpoint_request_deinit(&request);
    text_deinit(&why);
}

static void blames(const struct breakpoint_request *request, uint64_t byte, const char *want)
{
    struct text why = TEXT_INIT;

    breakpoint_request_blame(request, byte, &why);
    CHECK_STR(why.data ? why.data : "", want);
    text_deinit(&why);
}

static void test_blame(void)
{
    struct breakpoint_request request;
    struct text why = TEXT_INIT;

    read_lines("f()\n g() {\xc3\xa4 +, b} if\tc d\n", 0, &request, &why);
    const struct proto_breakpoint *e = entry(&request, 1);
    uint64_t head = request.lines[1].at + sizeof *e;
    uint64_t condition = head + e->text_size + 1 + e->where_size + 1;
    uint64_t captures = condition + e->condition_size + 1;
    blames(&request, 0, "\n  f()\n  ^");
    blames(&request, request.lines[1].at, "\n   g() {\xc3\xa4 +, b} if\\tc d\n   ^");
    blames(&request, head + 2, "\n   g() {\xc3\xa4 +, b} if\\tc d\n   ^");
    blames(&request, condition + 2, "\n   g() {\xc3\xa4 +, b} if\\tc d\n                      ^");
    blames(&request, captures + 3, "\n   g() {\xc3\xa4 +, b} if\\tc d\n          ^");
    blames(&request, captures + 5, "\n   g() {\xc3\xa4 +, b} if\\tc d\n             ^");
    blames(&request, request.text.size, "");
    breakpoint_request_deinit(&request);
    text_deinit(&why);
}

static void test_limits(void)
{
    struct text lines = TEXT_INIT, why = TEXT_INIT;
    struct breakpoint_request request;

    read_lines("f()\nstop g(x)\nh(\n", -EINVAL, &request, &why);
    CHECK_STR(why.data, "a location is FILE:LINE, [MODULE.]FUNC(), return [MODULE.]FUNC(), raise "
                        "[TYPE] [in|leaving PATH|own], "
                        "watch EXPR [in TID[/DEPTH]], watch 0xADDR:LEN, breakpoint() or nan "
                        "[MODEL]\n  stop g(x)\n       ^");
    breakpoint_request_deinit(&request);

    text_puts(&lines, "f() if ");
    while (lines.size < 1996)
        text_putc(&lines, 'a');
    read_lines(lines.data, 0, &request, &why); /* "log " is added */
    CHECK_INT(entry(&request, 0)->text_size, 2000);
    breakpoint_request_deinit(&request);
    text_putc(&lines, 'a');
    read_lines(lines.data, -EINVAL, &request, &why);
    CHECK(strstr(why.data, "at most 2000 bytes"));
    breakpoint_request_deinit(&request);

    text_clear(&lines);
    for (int i = 0; i < PROTO_BREAKPOINTS_MAX; i++)
        text_puts(&lines, "f()\n");
    read_lines(lines.data, 0, &request, &why);
    CHECK_INT(request.n, PROTO_BREAKPOINTS_MAX);
    breakpoint_request_deinit(&request);
    text_puts(&lines, "f()\n");
    read_lines(lines.data, -EFBIG, &request, &why);
    breakpoint_request_deinit(&request);
    text_deinit(&why);
    text_deinit(&lines);
}

/* A line that switches brings an entry for each id, of which any may be to blame. */
static void test_switching(void)
{
    struct breakpoint_request request;
    struct text why = TEXT_INIT;

    read_lines("disable 3 40\nenable 7\n", 0, &request, &why);
    CHECK(request.n == 2 && !request.sets && request.changes == 3);
    const struct proto_breakpoint *e = entry(&request, 0);
    CHECK(e->kind == BREAKPOINT_DISABLE && e->id == 3 && !e->where_size && !e->text_size);
    CHECK_INT(request.lines[1].at, 2 * e->size);
    blames(&request, 0, "\n  disable 3 40\n          ^");
    blames(&request, e->size, "\n  disable 3 40\n            ^");
    e = (const struct proto_breakpoint *)((const char *)e + e->size);
    CHECK(e->kind == BREAKPOINT_DISABLE && e->id == 40);
    e = entry(&request, 1);
    CHECK(e->kind == BREAKPOINT_ENABLE && e->id == 7);
    breakpoint_request_deinit(&request);

    struct text lines = TEXT_INIT;
    for (int i = 0; i < PROTO_BREAKPOINTS_MAX / 2 + 1; i++)
        text_puts(&lines, "enable 1 2\n");
    read_lines(lines.data, -EFBIG, &request, &why);
    breakpoint_request_deinit(&request);
    text_deinit(&lines);
    text_deinit(&why);
}

/* It is what it is as the first line only. */
static void test_strict(void)
{
    static const struct {
        const char *lines;
        int want;
        size_t n;
        bool strict;
    } cases[] = {
        {"-- strict\nf()\n", 0, 1, true},
        {"-- strict  ", 0, 0, true},
        {"f()\n", 0, 1, false},
        {"f()\n-- strict\n", -EINVAL, 1, false},
        {"-- stricter\n", -EINVAL, 0, false},
        {"", 0, 0, false},
    };
    struct breakpoint_request request;
    struct text why = TEXT_INIT;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_lines(cases[i].lines, cases[i].want, &request, &why);
        CHECK(request.n == cases[i].n && request.strict == cases[i].strict);
        breakpoint_request_deinit(&request);
    }
    text_deinit(&why);
}

/* Each rank has its own lines, and what is to blame is still known. */
static void test_ranks(void)
{
    struct breakpoint_request request, own;
    struct text why = TEXT_INIT;

    read_lines("on 1 a.py:1\nb.py:2 if x\non 0-1 -c.py:3\n", 0, &request, &why);
    CHECK(request.n == 3 && request.has_ranks && request.sets);
    CHECK_INT(breakpoint_request_for(&request, 0, &own), 0);
    CHECK(own.n == 2 && own.sets && own.lines[0].at == 0);
    CHECK_STR(words(entry(&own, 0), 1), "b.py");
    CHECK(entry(&own, 1)->kind == BREAKPOINT_REMOVE);
    breakpoint_request_blame(&own,
                             sizeof(struct proto_breakpoint) + strlen("log b.py:2 if x") + 1 +
                                 strlen("b.py") + 1,
                             &why);
    CHECK_STR(why.data, "\n  b.py:2 if x\n            ^");
    breakpoint_request_deinit(&own);
    CHECK_INT(breakpoint_request_for(&request, -1, &own), 0);
    CHECK(own.n == 1 && own.text.size == entry(&own, 0)->size);
    breakpoint_request_deinit(&own);
    breakpoint_request_deinit(&request);
    read_lines("on 1 -5\n", 0, &request, &why);
    CHECK_INT(breakpoint_request_for(&request, 2, &own), 0);
    CHECK(!own.n && !own.sets);
    breakpoint_request_deinit(&own);
    breakpoint_request_deinit(&request);
    text_deinit(&why);
}

int main(void)
{
    test_ranks();
    test_entries();
    test_strict();
    test_blame();
    test_switching();
    test_limits();
    return 0;
}
