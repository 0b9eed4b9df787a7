/* What a sum reads as, in each format, with names that try to break it. */
#include "agent/base/cleanup.h"
#include "fs/profile/render.h"
#include "tests/unit/check.h"

#define EVIL "a;b\"</script><!--\\\x1b"

static uint32_t node(struct sum *sum, uint32_t parent, struct profile_frame frame)
{
    uint32_t id, made;

    CHECK(!trie_frame(&sum->trie, &frame, &id));
    CHECK(!trie_child(&sum->trie, parent, id, &made));
    return made;
}

static struct profile_frame python(const char *func, int first, int line)
{
    return (struct profile_frame){PROFILE_PYTHON, func, "/w/a.py", first, line};
}

/* main calls itself, then native code; and waits. */
static void make(struct sum *sum)
{
    uint32_t thread, other;

    CHECK(!sum_init(sum, MODE_CPU));
    CHECK(!sum_thread(sum, &(struct sum_thread){7, 7, "MainThread"}, &thread));
    CHECK(!sum_thread(sum, &(struct sum_thread){7, 8, EVIL}, &other));
    uint32_t outer = node(sum, TRIE_ROOT, python("main", 1, 10));
    uint32_t inner = node(sum, outer, python("main", 1, 12));
    uint32_t native = node(sum, inner, (struct profile_frame){PROFILE_NATIVE, "f(int)", "l.so"});
    uint32_t word = node(sum, outer, (struct profile_frame){PROFILE_WORD, "[futex]", ""});
    uint32_t evil = node(sum, TRIE_ROOT, (struct profile_frame){PROFILE_PYTHON, EVIL, EVIL, 3, 4});
    CHECK(!sum_add(sum, thread, inner, 2000000, 0, 2));
    CHECK(!sum_add(sum, thread, native, 3000000, 0, 3));
    CHECK(!sum_add(sum, other, word, 1000000, 0, 1));
    CHECK(!sum_add(sum, other, evil, 400, 0, 1)); /* less than a microsecond */
    sum->from = 1000000000;
    sum->to = 2000000000;
    sum->period = 1000000;
}

static void check_render(sum_render *render, const struct sum *sum, const char *want)
{
    struct text text = TEXT_INIT;

    CHECK(!render(sum, &text));
    CHECK(!text_finish(&text));
    CHECK_STR(text.data, want);
    text_deinit(&text);
}

static void test_text(void)
{
    struct sum sum;

    make(&sum);
    check_render(render_folded, &sum,
                 "main (/w/a.py:10);main (/w/a.py:12);f(int) [native] 3000\n"
                 "main (/w/a.py:10);main (/w/a.py:12) 2000\n"
                 "main (/w/a.py:10);[futex] 1000\n");
    check_render(render_top, &sum,
                 "self% total% self total function place\n"
                 "50.00 50.00 0.003000 0.003000 f(int) l.so\n"
                 "33.33 99.99 0.002000 0.006000 main /w/a.py:1\n" /* once, however often */
                 "16.67 16.67 0.001000 0.001000 [futex]\n"
                 "0.01 0.01 0.000000 0.000000 " EVIL " " EVIL ":3\n");
    check_render(render_lines, &sum,
                 "/w/a.py:12 0.002000 0.005000\n" EVIL ":4 0.000000 0.000000\n"
                 "/w/a.py:10 0.000000 0.006000\n");
    sum_deinit(&sum);
}

/* Where a main thread waits, and a thread that does nothing else; tasks wait as others do. */
static void test_waits(void)
{
    const struct profile_frame futex = {PROFILE_WORD, "[futex]", ""},
                               preempted = {PROFILE_WORD, "[preempted]", ""};
    uint32_t main, feeder, at[8];
    struct sum sum, both;

    CHECK(!sum_init(&sum, MODE_WALL));
    CHECK(!sum_thread(&sum, &(struct sum_thread){7, 7, "MainThread"}, &main));
    CHECK(!sum_thread(&sum, &(struct sum_thread){7, 8, "feeder"}, &feeder));
    at[0] = node(&sum, TRIE_ROOT, python("train", 1, 10));
    at[1] = node(&sum, at[0], python("next", 20, 21));
    at[2] = node(&sum, at[1], python("get", 30, 31));
    at[3] = node(&sum, at[2], python("get", 30, 32)); /* it calls itself */
    at[4] = node(&sum, at[3], python("wait", 40, 41));
    CHECK(!sum_add(&sum, main, node(&sum, at[4], futex), 5000000, 0, 1));
    CHECK(!sum_add(&sum, main, at[4], 500000, 0, 1));
    at[5] = node(&sum, at[0], python("save", 50, 51)); /* too little for who called */
    CHECK(!sum_add(&sum, main, node(&sum, node(&sum, at[5], python("wait", 40, 41)), futex),
                   1000000, 0, 1));
    CHECK(!sum_add(&sum, main, node(&sum, at[0], preempted), 1500000, 0, 1));
    CHECK(!sum_add(&sum, main, at[0], 2000000, 0, 1));
    at[6] = node(&sum, TRIE_ROOT, python("feed", 60, 61));
    CHECK(!sum_add(&sum, feeder, node(&sum, node(&sum, at[6], python("wait", 40, 41)), futex),
                   40000000, 0, 1));
    CHECK(!sum_add(&sum, feeder, at[6], 1000000, 0, 1));
    CHECK(!sum_add(&sum, feeder, node(&sum, at[6], preempted), 9000000, 0, 1));
    check_render(render_top, &sum,
                 "self% total% self total function place\n"
                 "# without 1 thread that hardly ran: 0.041000\n"
                 "# 0.040000 wait /w/a.py:40 [futex] < feed\n"
                 "60.00 60.00 0.006000 0.006000 wait /w/a.py:40 [futex] < get < next < train\n"
                 "20.00 100.00 0.002000 0.010000 train /w/a.py:1\n"
                 "15.00 15.00 0.001500 0.001500 [preempted]\n"
                 "5.00 65.00 0.000500 0.006500 wait /w/a.py:40\n"
                 "0.00 60.00 0.000000 0.006000 [futex]\n"
                 "0.00 55.00 0.000000 0.005500 get /w/a.py:30\n"
                 "0.00 55.00 0.000000 0.005500 next /w/a.py:20\n"
                 "0.00 10.00 0.000000 0.001000 save /w/a.py:50\n");
    check_render(render_lines, &sum,
                 "/w/a.py:41 0.046500 0.046500\n/w/a.py:10 0.002000 0.010000\n"
                 "/w/a.py:61 0.001000 0.050000\n/w/a.py:21 0.000000 0.005500\n"
                 "/w/a.py:31 0.000000 0.005500\n/w/a.py:32 0.000000 0.005500\n"
                 "/w/a.py:51 0.000000 0.001000\n");
    CHECK(!sum_add(&sum, feeder, at[6], 1100000, 0, 1)); /* it did something now */
    struct text text = TEXT_INIT;
    CHECK(!render_top(&sum, &text) && !text_finish(&text));
    CHECK(!strchr(text.data, '#'));
    CHECK(strstr(text.data, " wait /w/a.py:40 [futex] < feed\n"));
    text_clear(&text);
    CHECK(!sum_init(&both, MODE_WALL)); /* a difference, whose waits come by all ways at once */
    both.compares = true;
    CHECK(!sum_merge(&both, &sum, &(struct sum_role){.before = true}));
    CHECK(!render_top(&both, &text) && !text_finish(&text));
    CHECK(strstr(text.data, "-0.046000 -0.046000 wait /w/a.py:40 [futex]\n"));
    text_deinit(&text);
    sum_deinit(&both);
    sum_deinit(&sum);
}

/* A task waits below [awaiting], whatever its thread does; threads without Python wait in nothing.
 */
static void test_awaits(void)
{
    const struct profile_frame awaiting = {PROFILE_WORD, "[awaiting]", ""},
                               none = {PROFILE_WORD, "[no stack]", ""},
                               futex = {PROFILE_WORD, "[futex]", ""},
                               epoll = {PROFILE_WORD, "[epoll]", ""};
    uint32_t main, loop, pool;
    struct sum sum;

    CHECK(!sum_init(&sum, MODE_WALL));
    CHECK(!sum_thread(&sum, &(struct sum_thread){7, 7, "MainThread"}, &main));
    CHECK(!sum_thread(&sum, &(struct sum_thread){7, 8, "loop"}, &loop));
    CHECK(!sum_thread(&sum, &(struct sum_thread){7, 9, "pool"}, &pool));
    uint32_t select = node(&sum, TRIE_ROOT, python("select", 1, 2));
    uint32_t task = node(&sum, TRIE_ROOT, awaiting);
    task = node(&sum, task, (struct profile_frame){PROFILE_WORD, "[task t]", ""});
    CHECK(!sum_add(&sum, main, select, 1000000, 0, 1));
    CHECK(!sum_add(&sum, loop, node(&sum, select, epoll), 1000000, 0, 1));
    CHECK(!sum_add(&sum, loop, node(&sum, task, python("sleep", 3, 4)), 3000000, 0, 1));
    CHECK(!sum_add(&sum, pool, node(&sum, node(&sum, TRIE_ROOT, none), futex), 2000000, 0, 1));
    check_render(render_top, &sum,
                 "self% total% self total function place\n"
                 "# without 2 threads that hardly ran: 0.003000\n"
                 "# 0.002000 [no stack] [futex]\n"
                 "# 0.001000 select /w/a.py:1 [epoll]\n"
                 "75.00 75.00 0.003000 0.003000 sleep /w/a.py:3\n"
                 "25.00 25.00 0.001000 0.001000 select /w/a.py:1\n"
                 "0.00 75.00 0.000000 0.003000 [awaiting]\n"
                 "0.00 75.00 0.000000 0.003000 [task t]\n");
    sum_deinit(&sum);
}

/* A difference says what was before, too. */
static void test_diff(void)
{
    struct sum sum, both;

    make(&sum);
    CHECK(!sum_init(&both, MODE_CPU));
    both.compares = true;
    CHECK(!sum_merge(&both, &sum, &(struct sum_role){.factor = 0.5}));
    CHECK(!sum_merge(&both, &sum, &(struct sum_role){.before = true}));
    check_render(render_folded, &both,
                 "main (/w/a.py:10);main (/w/a.py:12);f(int) [native] 3000 1500\n"
                 "main (/w/a.py:10);main (/w/a.py:12) 2000 1000\n"
                 "main (/w/a.py:10);[futex] 1000 500\n");
    CHECK_INT(sum_whole(&both), -3000200);
    sum_deinit(&both);
    sum_deinit(&sum);
}

/* Whether brackets and strings of a JSON text are closed, and nothing else is in it. */
static void check_json(const char *p, const char *end)
{
    char open[64];
    size_t n = 0;

    do {
        CHECK(p < end);
        if (*p == '"') {
            for (p++; *p != '"'; p++) {
                CHECK(p < end && (unsigned char)*p >= ' ');
                p += *p == '\\';
            }
        } else if (*p == '{' || *p == '[') {
            CHECK(n < sizeof open);
            open[n++] = *p == '{' ? '}' : ']';
        } else if (*p == '}' || *p == ']') {
            CHECK(n && open[--n] == *p);
        } else {
            CHECK(strchr("0123456789-.,:truefalsn\n", *p));
        }
        p++;
    } while (n);
    CHECK(p >= end - 1);
}

static void test_json(void)
{
    struct text text = TEXT_INIT;
    struct sum sum;

    make(&sum);
    CHECK(!render_speedscope(&sum, &text));
    check_json(text.data, text.data + text.size);
    CHECK(strstr(text.data, "\"weights\":[2000000,3000000],\"endValue\":5000000"));
    text_clear(&text);
    sum.moments = calloc(2, sizeof *sum.moments);
    sum.moments[0] = (struct sum_moment){1000000000, 0, 3, 3000000, 3};
    sum.moments[1] = (struct sum_moment){1500000000, 1, 5, 400, 1};
    sum.nmoments = 2;
    CHECK(!render_gecko(&sum, &text));
    check_json(text.data, text.data + text.size);
    CHECK(strstr(text.data, "\"time\":[500.000],\"weight\":[0.000400]"));
    CHECK(strstr(text.data, "\"frame\":[0,1,2],\"prefix\":[null,0,1]"));
    text_clear(&text);
    CHECK(!render_flamegraph(&sum, &text));
    const char *data = strstr(text.data, "id=\"data\">");
    CHECK(data);
    data += strlen("id=\"data\">");
    const char *end = strstr(data, "</script>");
    CHECK(end && !memmem(data, (size_t)(end - data), "<", 1));
    check_json(data, end);
    text_deinit(&text);
    sum_deinit(&sum);
}

/* gzip: header, stored blocks that fit, length. */
static void test_pprof(void)
{
    struct text text = TEXT_INIT;
    struct sum sum;

    make(&sum);
    CHECK(!render_pprof(&sum, &text));
    const unsigned char *p = (const unsigned char *)text.data;
    CHECK(p[0] == 0x1f && p[1] == 0x8b && p[10] == 1);
    size_t size = p[11] | (size_t)p[12] << 8;
    CHECK((p[11] ^ p[13]) == 0xff && (p[12] ^ p[14]) == 0xff);
    CHECK_INT(text.size, 10 + 5 + size + 8);
    CHECK_INT(p[text.size - 4] | p[text.size - 3] << 8, size);
    CHECK(memmem(text.data, text.size, "MainThread", 10) &&
          memmem(text.data, text.size, "f(int)", 6));
    text_deinit(&text);
    sum_deinit(&sum);
}

/* As many nodes as a store has at most, each format. */
static void test_large(void)
{
    sum_render *const formats[] = {render_folded,     render_top,   render_lines, render_flamegraph,
                                   render_speedscope, render_pprof, render_gecko};
    struct sum sum;
    uint32_t thread, at = TRIE_ROOT;

    CHECK(!sum_init(&sum, MODE_CPU));
    CHECK(!sum_thread(&sum, &(struct sum_thread){1, 1, "t"}, &thread));
    for (int i = 0; i < 65000; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i % 3000);
        at = node(&sum, i % 40 ? at : TRIE_ROOT, python(name, i % 3000, i % 7));
        CHECK(!sum_add(&sum, thread, at, 1000 + i, 0, 1));
    }
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        struct text text = TEXT_INIT;
        CHECK(!formats[i](&sum, &text));
        CHECK(text.size && !text.cut);
        text_deinit(&text);
    }
    sum_deinit(&sum);
}

int main(void)
{
    test_text();
    test_waits();
    test_awaits();
    test_diff();
    test_json();
    test_pprof();
    test_large();
    return 0;
}
