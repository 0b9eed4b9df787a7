#include "fs/breakpoint/line.h"
#include "tests/unit/check.h"

#include <errno.h>

/* Reads a line that is good, and says how it is written. */
static struct breakpoint_text read_good(const char *line)
{
    struct breakpoint_text b;
    struct complaint why;

    if (breakpoint_text_read(line, strlen(line), &b, &why) != 1) {
        fprintf(stderr, "%s: not taken\n", line);
        exit(1);
    }
    return b;
}

/* What it is written as, which reads as the same. */
static void reads(const char *line, const char *want)
{
    struct text out = TEXT_INIT, again = TEXT_INIT;
    struct breakpoint_text b = read_good(line);

    CHECK(!b.remove);
    breakpoint_text_print(&b, &out);
    CHECK_STR(out.data, want);
    b = read_good(out.data);
    breakpoint_text_print(&b, &again);
    CHECK_STR(again.data, want);
    text_deinit(&again);
    text_deinit(&out);
}

/* It is refused, and the caret is under byte `at`. */
static void refuses(const char *line, int at, const char *what)
{
    struct breakpoint_text b;
    struct complaint why = {0};

    if (breakpoint_text_read(line, strlen(line), &b, &why) != -EINVAL) {
        fprintf(stderr, "%s: taken\n", line);
        exit(1);
    }
    if (!strstr(why.what, what) || why.at - line != at) {
        fprintf(stderr, "%s: \"%s\" at %d\n", line, why.what, (int)(why.at - line));
        exit(1);
    }
}

static void is(struct words words, const char *want)
{
    CHECK(words.size == strlen(want) && !memcmp(words.text, want, words.size));
}

static void test_here(void)
{
    struct breakpoint_text b = read_good("here stop a.py:1");
    CHECK(b.here && b.kind == BREAKPOINT_LINE && !b.id);
    b = read_good("7: here on 1 log f()");
    CHECK(b.here && b.id == 7 && b.ranks.size == 1 && b.kind == BREAKPOINT_FUNCTION);
    b = read_good("here 7: f()");
    CHECK(b.here && b.id == 7);
    b = read_good("here on 1 f()");
    CHECK(b.here && b.ranks.size == 1);
    b = read_good("here:5");
    CHECK(!b.here && b.kind == BREAKPOINT_LINE && b.line == 5);
    b = read_good("here()");
    CHECK(!b.here && b.kind == BREAKPOINT_FUNCTION);
    refuses("here", 4, "a breakpoint");
    refuses("here -3", 0, "what is set");
    refuses("here here a.py:1", 5, "a location");
}

static void test_hook(void)
{
    struct breakpoint_text b = read_good("stop breakpoint() {x} if x x 2");

    CHECK(b.kind == BREAKPOINT_HOOK && b.action == BREAKPOINT_STOP && !b.where.size &&
          b.count == 2);
    reads("breakpoint()", "log breakpoint()");
    CHECK(read_good("-breakpoint()").remove);
    CHECK(read_good("m.breakpoint()").kind == BREAKPOINT_FUNCTION);
    CHECK(read_good("return breakpoint()").kind == BREAKPOINT_RETURN);
}

static void test_switched(void)
{
    uint32_t id;

    struct breakpoint_text b = read_good("disable 3  12 # those");
    is(b.ids, "3  12");
    CHECK(b.disabled && !b.remove && !b.id);
    CHECK(breakpoint_text_next_id(&b.ids, &id) && id == 3);
    CHECK(breakpoint_text_next_id(&b.ids, &id) && id == 12);
    CHECK(!breakpoint_text_next_id(&b.ids, &id));
    b = read_good("on 0 enable 7");
    is(b.ids, "7");
    CHECK(!b.disabled && b.ranks.size == 1);
    b = read_good("3: here disabled stop f()");
    CHECK(b.disabled && b.here && !b.ids.size && b.id == 3 && b.kind == BREAKPOINT_FUNCTION);
    CHECK(!read_good("disable()").disabled && !read_good("enable:3").ids.size);
    refuses("disable", 7, "ids of breakpoints");
    refuses("enable 3 x", 9, "an id");
    refuses("disable 0", 8, "an id");
    refuses("here disable 3", 0, "what is set");
    refuses("disabled -3", 9, "a location");
}

static void test_ranks(void)
{
    struct breakpoint_text b = read_good("on 0,2-3 stop a.py:1");

    is(b.ranks, "0,2-3");
    CHECK(b.action == BREAKPOINT_STOP);
    reads("7: on 1 a.py:1", "log a.py:1");
    b = read_good("on 1 7: a.py:1");
    CHECK(b.id == 7 && b.ranks.size == 1);
    b = read_good("on 1 -7");
    CHECK(b.remove && b.id == 7 && b.ranks.size == 1);
    reads("on:3", "log on:3");
    refuses("on a.py:1", 3, "ranks");
    refuses("on 1-0 a.py:1", 3, "ranks");
    refuses("on 1,", 5, "ranks");
    refuses("on 1", 4, "breakpoint");
    refuses("on 1 on 2 a.py:1", 5, "");
}

static void test_locations(void)
{
    struct breakpoint_text b = read_good("train.py:88");

    CHECK(b.kind == BREAKPOINT_LINE && b.line == 88 && !b.id && b.action == BREAKPOINT_LOG &&
          !b.count);
    is(b.where, "train.py");
    b = read_good("stop pkg.mod.Class.method()");
    CHECK(b.kind == BREAKPOINT_FUNCTION && b.action == BREAKPOINT_STOP && !b.stop_ns);
    is(b.where, "pkg.mod.Class.method");
    b = read_good("return f.<locals>.<lambda>()");
    CHECK(b.kind == BREAKPOINT_RETURN);
    is(b.where, "f.<locals>.<lambda>");
    b = read_good("raise");
    CHECK(b.kind == BREAKPOINT_RAISE && !b.where.size);
    b = read_good("raise json.JSONDecodeError if True");
    is(b.where, "json.JSONDecodeError");
    is(b.condition, "True");
    b = read_good("raise x 3");
    CHECK(b.count == 3 && !b.where.size);
    b = read_good("raise x");
    is(b.where, "x");
    b = read_good("watch model.weight[0, 3] hw=ptrace if new != new");
    CHECK(b.kind == BREAKPOINT_WATCH && b.route == ROUTE_PTRACE);
    is(b.where, "model.weight[0, 3]");
    is(b.condition, "new != new");
    b = read_good("stop watch 0x7fff00001238:8 hw=perf");
    CHECK(b.kind == BREAKPOINT_WATCH_ADDRESS && b.route == ROUTE_PERF && b.length == 8 &&
          b.address == 0x7fff00001238);
    b = read_good("watch x in 1240/2 hw=perf {y} if x in 3");
    CHECK(b.kind == BREAKPOINT_WATCH && b.tid == 1240 && b.depth == 2 && b.route == ROUTE_PERF);
    is(b.where, "x");
    is(b.condition, "x in 3");
    b = read_good("watch a in b"); /* no frame's */
    CHECK(!b.tid && !b.depth);
    is(b.where, "a in b");
    b = read_good("watch [i for i in 5]");
    CHECK(!b.tid);
    b = read_good("watch a in 5 and b");
    CHECK(!b.tid);
    is(b.where, "a in 5 and b");
    b = read_good("nan m in 5");
    CHECK(!b.tid);
    is(b.where, "m in 5");
    b = read_good("nan");
    CHECK(b.kind == BREAKPOINT_NAN && b.action == BREAKPOINT_LOG && !b.where.size && b.count == 1);
    b = read_good("stop nan net.blocks[0] {name} if stage == 'forward' x 5");
    CHECK(b.kind == BREAKPOINT_NAN && b.action == BREAKPOINT_STOP && b.count == 5);
    is(b.where, "net.blocks[0]");
    is(b.captures[0], "name");
    is(b.condition, "stage == 'forward'");
    b = read_good("nan if nan > 3");
    CHECK(b.kind == BREAKPOINT_NAN && !b.where.size);
    is(b.condition, "nan > 3");
    b = read_good("nan after 2 x 1");
    CHECK(!b.where.size && b.after == 2);
    b = read_good("nan.py:3");
    CHECK(b.kind == BREAKPOINT_LINE);
    b = read_good("-nan model");
    CHECK(b.remove && b.kind == BREAKPOINT_NAN);
}

static void test_parts(void)
{
    struct breakpoint_text b = read_good("  17:\tstop for 90s a.py:1{a,{1: 'x, }'}[b] , f(c, d)}"
                                         "if x == \"} if x 3\" x 12 # on");

    CHECK(b.id == 17 && b.action == BREAKPOINT_STOP && b.stop_ns == 90000000000ull &&
          b.count == 12);
    CHECK_INT(b.ncaptures, 3);
    is(b.captures[0], "a");
    is(b.captures[1], "{1: 'x, }'}[b]");
    is(b.captures[2], "f(c, d)");
    is(b.condition, "x == \"} if x 3\"");
    b = read_good("3:train.py:88");
    CHECK(b.id == 3 && b.line == 88);
    b = read_good("3:88");
    CHECK(!b.id && b.line == 88);
    is(b.where, "3");
}

static void test_writes(void)
{
    reads("train.py:88", "log train.py:88");
    reads(" log\t/a/train.py:088  ", "log /a/train.py:88");
    reads("stop f()", "stop f()");
    reads("stop for 60s f() x 1", "stop for 60s f() x 1");
    reads("stop  all for 60s f()", "stop all for 60s f()");
    reads("stop all raise", "stop all raise");
    reads("stop all:3", "stop all:3");
    CHECK(read_good("stop all f()").all && !read_good("stop all()").all);
    reads("stop for 500ms return m.f(){x,y}", "stop for 500ms return m.f() {x, y}");
    reads("raise", "log raise");
    reads("raise{e}", "log raise {e}");
    reads("raise ValueError x 2", "log raise ValueError x 2");
    reads("raise x x 2", "log raise x x 2");
    reads("raise in own", "log raise in own");
    reads("stop raise leaving own", "stop raise leaving own");
    reads("raise m.E  leaving a/b.py if x", "log raise m.E leaving a/b.py if x");
    CHECK(read_good("raise E leaving own").leaving && !read_good("raise E in leaving").leaving);
    refuses("raise leaving", 13, "a file, a directory, or own");
    reads("stop raise  m.E  in a/b.py {e} if a after 1 every  2 x 3",
          "stop raise m.E in a/b.py {e} if a after 1 every 2 x 3");
    reads("raise after 3", "log raise after 3");
    reads("raise after every 3", "log raise after every 3");
    reads("f() if x after 2", "log f() if x after 2");
    reads("watch a.after after 2 every 3", "log watch a.after after 2 every 3");
    refuses("raise E in", 10, "a file, a directory, or own");
    refuses("f() after 0", 10, "at least 1");
    refuses("f() every x", 10, "at least 1");
    refuses("f() every 2 after 1", 12, "in this order");
    reads("watch\ta  [\t1 ] hw=perf {b}  if\told>new x 007#",
          "log watch a  [ 1 ] hw=perf {b} if old>new x 7");
    reads("watch 0x00F0:4", "log watch 0xf0:4");
    reads("watch a.b{c}", "log watch a.b {c}");
    reads("watch a x 5", "log watch a x 5");
    reads("watch a  in\t5 / 0 x 5", "log watch a in 5 x 5");
    reads("stop watch a[b in c] in 7/12{d}after 2", "stop watch a[b in c] in 7/12 {d} after 2");
    reads("watch a in 5 in 6 hw=ptrace", "log watch a in 5 in 6 hw=ptrace");
    reads("watch a in 5/3#", "log watch a in 5/3");
    reads("watch f(x if y else 0)", "log watch f(x if y else 0)");
    reads("a.py:1 if x if y else {'#': 1}[z] # why", "log a.py:1 if x if y else {'#': 1}[z]");
    reads("a.py:1 if x5", "log a.py:1 if x5");
    reads("a.py:1 if s == '''it's x 4''' x 4", "log a.py:1 if s == '''it's x 4''' x 4");
    reads("a.py:1 if s == 'it\\'s # ' ", "log a.py:1 if s == 'it\\'s # '");
    reads("\"my file.py\":3", "log \"my file.py\":3");
    reads("'plain.py':3", "log plain.py:3");
    reads("'my \"file\".py':3", "log 'my \"file\".py':3");
    reads("\"#{'\":3 {a}", "log \"#{'\":3 {a}");
    reads("a'\"b.py:3", "log a'\"b.py:3");
    reads("<ipython-input-3-abc>:2", "log <ipython-input-3-abc>:2");
    reads("stop f\xc3\xbcr.py:3", "stop f\xc3\xbcr.py:3");
    reads("stop.py:1", "log stop.py:1");
    reads("log()", "log log()");
    reads("return raise()", "log return raise()");
}

static void test_removal(void)
{
    struct text out = TEXT_INIT;
    struct breakpoint_text b = read_good("-3 # no more");

    CHECK(b.remove && b.id == 3);
    b = read_good("- train.py:088");
    CHECK(b.remove && !b.id);
    breakpoint_text_location(&b, &out);
    CHECK_STR(out.data, "train.py:88");
    text_clear(&out);
    b = read_good("-watch a\t[0] in 5/1 hw=ptrace");
    breakpoint_text_location(&b, &out);
    CHECK_STR(out.data, "watch a [0] in 5/1 hw=ptrace");
    text_clear(&out);
    b = read_good("-raise");
    breakpoint_text_location(&b, &out);
    CHECK_STR(out.data, "raise");
    text_deinit(&out);
    refuses("-", 1, "a location is");
    refuses("-0", 1, "an id is");
    refuses("-3 4", 3, "nothing follows");
    refuses("-3: stop f()", 3, "number of a line");
    refuses("-stop f()", 1, "a location is");
    refuses("-f() x 3", 5, "nothing follows");
}

static void test_nothing(void)
{
    struct breakpoint_text b;
    struct complaint why;

    CHECK_INT(breakpoint_text_read("", 0, &b, &why), 0);
    CHECK_INT(breakpoint_text_read(" \t", 2, &b, &why), 0);
    CHECK_INT(breakpoint_text_read("  # 1: stop", 10, &b, &why), 0);
}

static void test_refusals(void)
{
    refuses("stop", 4, "a location is");
    refuses("stop train.py", 5, "a location is");
    refuses("stop parse", 5, "a function is written with ()");
    refuses("stp train.py:3", 0, "a location is");
    refuses("my file.py:3", 0, "a location is");
    refuses("train.py:", 9, "number of a line");
    refuses("train.py:3x", 9, "number of a line");
    refuses("train.py:0", 9, "begin with 1");
    refuses("train.py:99999999999", 9, "begin with 1");
    refuses(":3", 0, "a location is");
    refuses("\"a.py:3", 0, "isn't closed");
    refuses("\"a.py\"3", 6, ":LINE");
    refuses("\"\":3", 1, "name of a file");
    refuses("f(x)", 0, "a location is");
    refuses("f.()", 0, "a function's name");
    refuses("()", 0, "a function's name");
    refuses("3f()", 0, "a function's name");
    refuses("a<b()", 0, "a function's name");
    refuses("return f", 7, "FUNC()");
    refuses("return", 6, "FUNC()");
    refuses("raise 3", 6, "a type's name");
    refuses("raise ValueError()", 6, "a type's name");
    refuses("stop for f()", 9, "how long");
    refuses("stop for 3 f()", 9, "how long");
    refuses("stop for 0s f()", 9, "at least 1ms");
    refuses("stop for 8d f()", 9, "at most 7d");
    refuses("stop for 99999999999999999999d f()", 9, "at most 7d");
    refuses("0: f()", 0, "an id is");
    refuses("9999999999: f()", 0, "an id is");
    refuses("watch", 5, "expression");
    refuses("watch if a", 6, "expression");
    refuses("watch a hw=gdb", 8, "hw=perf");
    refuses("watch a in 0", 11, "no thread");
    refuses("watch a in 2147483648", 11, "no thread");
    refuses("watch a in 5e3", 11, "no thread");
    refuses("watch a in 5/4294967296", 13, "so many frames");
    refuses("watch in 5", 6, "expression");
    refuses("watch 0x10:4 in 5", 13, "");
    refuses("watch a[0", 7, "isn't closed");
    refuses("watch a[0)", 9, "another bracket");
    refuses("watch a)", 7, "no bracket is open");
    refuses("watch 0x:8", 8, "hexadecimal");
    refuses("watch 0x12", 10, "0xADDR:LEN");
    refuses("watch 0x12:", 11, "1, 2, 4 or 8");
    refuses("watch 0x10:3", 11, "1, 2, 4 or 8");
    refuses("watch 0x11:2", 6, "multiple");
    refuses("watch 0x11111111111111111:1", 8, "no such address");
    refuses("f() {", 5, "expression");
    refuses("f() {}", 5, "expression");
    refuses("f() {a,}", 7, "expression");
    refuses("f() {a", 4, "isn't closed");
    refuses("f() {a # }", 4, "isn't closed");
    refuses("f() {(a # )}", 5, "isn't closed");
    refuses("f() {a)", 6, "another bracket");
    refuses("f() {a]} b", 6, "another bracket");
    refuses("f() {'a}", 5, "this string isn't closed");
    refuses("f() {'a\tb'}", 7, "\\t");
    refuses("f() if", 6, "expression");
    refuses("f() if x 0", 7, "expression");
    refuses("f() if a x 0", 11, "at least 1");
    refuses("f() x", 5, "at least 1");
    refuses("f() x 3 if a", 8, "in this order");
    refuses("f() if a)", 8, "no bracket is open");
    refuses("f() wen a", 4, "in this order");
    refuses("f()\x01", 3, "control character");
    refuses("f()\xc2\x85", 3, "control character");
    refuses("f\xff()", 1, "UTF-8");
}

static void test_limits(void)
{
    struct text line = TEXT_INIT;
    struct breakpoint_text b;
    struct complaint why;

    text_puts(&line, "f() {a");
    for (int i = 1; i < PROTO_CAPTURES_MAX; i++)
        text_puts(&line, ", a");
    text_putc(&line, '}');
    CHECK_INT(read_good(line.data).ncaptures, PROTO_CAPTURES_MAX);
    text_truncate(&line, line.size - 1);
    text_puts(&line, ", a}");
    CHECK_INT(breakpoint_text_read(line.data, line.size, &b, &why), -EINVAL);
    CHECK(strstr(why.what, "at most 32"));

    text_clear(&line);
    text_puts(&line, "f() if ");
    for (int i = 0; i < 200; i++)
        text_putc(&line, '(');
    CHECK_INT(breakpoint_text_read(line.data, line.size, &b, &why), -EINVAL);
    CHECK(strstr(why.what, "too many brackets"));
    text_deinit(&line);
}

int main(void)
{
    test_locations();
    test_here();
    test_switched();
    test_hook();
    test_ranks();
    test_parts();
    test_writes();
    test_removal();
    test_nothing();
    test_refusals();
    test_limits();
    return 0;
}
