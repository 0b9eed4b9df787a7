/* A profile's store: what was put in comes out, however old, and nothing grows for ever. */
#include "fs/profile/store.h"
#include "tests/unit/check.h"

#include <errno.h>

#define S STORE_SLICE
#define START (5 * S + 500)

static struct store_budget budget;

static struct store *make(void)
{
    struct store *store;

    CHECK(!store_new(77, &budget, &store));
    return store;
}

static uint32_t intern(struct store *store, const char *func, int line)
{
    struct profile_frame frame = {PROFILE_PYTHON, func, "/a.py", 1, line};
    uint32_t id;

    CHECK(!store_intern(store, &frame, &id));
    return id;
}

static void add(struct store *store, uint64_t when, pid_t tid, enum sample_kind kind, bool gil,
                int64_t weight, const uint32_t *frames, size_t n)
{
    struct sample sample = {.when = when,
                            .tid = tid,
                            .kind = kind,
                            .gil = gil,
                            .weight = weight,
                            .frames = frames,
                            .n = n};

    CHECK(!store_add(store, &sample));
}

/* The weight of everything that a view has, and how many samples. */
static int64_t weigh(struct store *store, struct store_view view, uint64_t *count)
{
    struct sum sum;
    int64_t weight = 0;

    CHECK(!sum_init(&sum, view.mode));
    CHECK(!store_sum(store, &view, &sum));
    if (count)
        *count = 0;
    for (size_t i = 0; i < sum.ncells; i++) {
        weight += sum.cells[i].weight;
        if (count)
            *count += sum.cells[i].count;
    }
    sum_deinit(&sum);
    return weight;
}

static void test_views(void)
{
    struct store *store = make();
    uint32_t stack[] = {intern(store, "main", 3), intern(store, "leaf", 8)};
    uint64_t count;

    CHECK_INT(intern(store, "leaf", 8), stack[1]);
    CHECK(intern(store, "leaf", 9) != stack[1]);
    add(store, START, 10, SAMPLE_CPU, true, 5, stack, 2);
    add(store, START + 1, 10, SAMPLE_CPU, false, 7, stack, 2);
    add(store, START + 2, 11, SAMPLE_OFF, false, 100, stack, 1);
    add(store, START + 3, 11, SAMPLE_PREEMPTED, false, 1000, stack, 1);
    add(store, START + 4, 11, SAMPLE_HEAP, false, 40, stack, 2);
    add(store, START + 5 * S, 11, SAMPLE_HEAP, false, -30, stack, 2);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_CPU}, &count), 12);
    CHECK_INT(count, 2);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_GIL}, NULL), 5);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_NOGIL}, NULL), 7);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_OFF}, NULL), 100);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_WALL}, NULL), 1112);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_WALL, .tid = 11}, NULL), 1100);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_WALL, .tid = 12}, NULL), 0);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_HEAP}, NULL), 10);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_HEAP, .to = START + S}, NULL), 40);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_HEAP, .from = START + S}, NULL), -30);
    store_clear(store, START);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_WALL}, &count), 0);
    CHECK_INT(count, 0);
    add(store, START - 1, 10, SAMPLE_CPU, true, 7, stack, 2); /* from before it was cleared */
    add(store, START, 10, SAMPLE_CPU, true, 5, stack, 2);     /* frames are as good as before */
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_CPU}, NULL), 5);
    store_unref(store);
}

static void check_path(const struct sum *sum, uint32_t node, const char *const *names)
{
    for (; *names; names++) {
        CHECK(node != TRIE_ROOT);
        CHECK_STR(trie_frame_of(&sum->trie, sum->trie.nodes[node].frame).func, *names);
        node = sum->trie.nodes[node].parent;
    }
    CHECK_INT(node, TRIE_ROOT);
}

static void test_stacks(void)
{
    struct store *store = make();
    uint32_t stack[] = {intern(store, "main", 3), intern(store, "leaf", 8)}, unknown = 999;
    struct sample torn = {
        .when = START, .tid = 1, .weight = 1, .torn = true, .frames = stack, .n = 1};
    struct sample wrong = {.when = START, .tid = 1, .frames = &unknown, .n = 1};
    struct store_stats stats;
    struct sum sum;

    add(store, START, 1, SAMPLE_CPU, false, 1, stack, 2);
    CHECK(!store_add(store, &torn));
    add(store, START, 1, SAMPLE_CPU, false, 1, NULL, 0);
    CHECK_INT(store_add(store, &wrong), -EINVAL);
    store_thread_name(store, 1, "MainThread");
    CHECK(!sum_init(&sum, MODE_CPU));
    CHECK(!store_sum(store, &(struct store_view){.mode = MODE_CPU, .moments = true}, &sum));
    CHECK_INT(sum.ncells, 3);
    check_path(&sum, sum.cells[0].node, (const char *const[]){"leaf", "main", NULL});
    check_path(&sum, sum.cells[1].node, (const char *const[]){"?? (torn)", "main", NULL});
    check_path(&sum, sum.cells[2].node, (const char *const[]){"[no stack]", NULL});
    CHECK_INT(sum.nthreads, 1);
    CHECK_STR(sum.threads[0].name, "MainThread");
    CHECK_INT(sum.threads[0].pid, 77);
    CHECK_INT(sum.nmoments, 3);
    CHECK_INT(sum.from, START);

    int64_t *self, *total;
    CHECK(!sum_weights(&sum, 0, false, &self, &total));
    CHECK_INT(total[TRIE_ROOT], 3);
    CHECK_INT(total[sum.trie.nodes[sum.cells[0].node].parent], 2);
    free(self);
    free(total);
    sum_deinit(&sum);
    store_stats(store, &stats);
    CHECK_INT(stats.samples, 3);
    CHECK_INT(stats.torn, 1);
    CHECK_INT(stats.no_stack, 1);
    CHECK_INT(stats.lost, 1);
    store_unref(store);
}

/* Slices become longer, and what they have stays. */
static void test_merging(void)
{
    struct store *store = make();
    uint32_t stack[] = {intern(store, "main", 3), 0};
    uint32_t leaves[] = {intern(store, "a", 1), intern(store, "b", 2)};
    uint64_t seconds = 2 * 3600, count, when;
    struct store_stats stats;

    for (uint64_t i = 0; i < seconds; i++) {
        if (i == 100)
            CHECK(!store_mark(store, "epoch", START + i * S));
        stack[1] = leaves[i % 2];
        add(store, START + i * S, (pid_t)(1 + i % 3), SAMPLE_CPU, i % 2, (int64_t)i, stack, 2);
    }
    int64_t all = (int64_t)(seconds * (seconds - 1) / 2);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_CPU}, &count), all);
    CHECK_INT(count, seconds);
    CHECK(store_marked(store, "epoch", &when));
    CHECK(!store_marked(store, "other", &when));
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_CPU, .from = when}, NULL),
              all - 100 * 99 / 2);
    CHECK_INT(weigh(store, (struct store_view){.mode = MODE_CPU, .to = when}, &count),
              100 * 99 / 2);
    CHECK_INT(count, 100);
    store_stats(store, &stats);
    /* A minute's each for an hour, ten seconds' for 50 minutes, and 600 of a second. */
    CHECK(stats.slices < 60 + 300 + 600 + 15);
    CHECK_INT(stats.samples, seconds);

    /* A mark that is set again moves. */
    CHECK(!store_mark(store, "epoch", START + seconds * S));
    CHECK(store_marked(store, "epoch", &when));
    CHECK_INT(when, START + seconds * S);
    char name[STORE_MARK_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_INT(store_mark(store, name, 1), -ENAMETOOLONG);
    for (unsigned i = 1; i < STORE_MARKS_MAX; i++) {
        snprintf(name, sizeof name, "m%u", i);
        CHECK(!store_mark(store, name, START + seconds * S));
    }
    CHECK_INT(store_mark(store, "one more", START), -ENOSPC);
    store_unref(store);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

#ifdef __SANITIZE_ADDRESS__
#define DAYS 3 /* five times as slow */
#else
#define DAYS 10
#endif

/* Ten days of 19 Hz: after the first one its memory doesn't grow. */
static void test_ten_days(void)
{
    struct store *store = make();
    struct store_stats stats;
    uint64_t state = 1, day = 24 * 3600 * S, period = S / 19;
    size_t most = 0;
    uint32_t frames[200];

    for (unsigned i = 0; i < 200; i++)
        frames[i] = intern(store, "f", (int)i);
    for (uint64_t t = 0; t < DAYS * day; t += period) {
        uint32_t stack[20], n = 3 + random_next(&state) % 5;
        uint64_t kind = random_next(&state) % 40; /* 40 stacks, most of them rare */
        for (uint32_t i = 0; i < n; i++)
            stack[i] = frames[(kind * kind + i) % 200];
        add(store, START + t, 1 + (pid_t)(t / (60 * S)), SAMPLE_CPU, kind & 1, 1, stack, n);
        if (t / day != (t + period) / day) {
            store_stats(store, &stats);
            if (t > day)
                CHECK(stats.bytes < most + (256 << 10));
            most = stats.bytes > most ? stats.bytes : most;
        }
    }
    CHECK(most < STORE_BYTES_MAX / 2);
    CHECK_INT(stats.dropped_slices, 0);
    CHECK(stats.last - stats.first <= STORE_KEPT + 61 * S);
    CHECK(stats.last - stats.first > STORE_KEPT - 61 * S);
    int64_t kept = weigh(store, (struct store_view){.mode = MODE_CPU}, NULL);
    CHECK(kept > 19 * 24 * 3600 - 2000 && kept < 19 * 24 * 3600 + 2000);
    store_unref(store);
}

/* A program that makes new code, and new threads, all the time. */
static void test_limits(void)
{
    struct store *store = make();
    struct store_stats stats;
    uint64_t t = START, count;
    uint32_t root = intern(store, "main", 1);

    for (int i = 0; i < 300000; i++, t += S / 1000) {
        char name[32];
        snprintf(name, sizeof name, "made_%d", i);
        uint32_t stack[] = {root, intern(store, name, 1), intern(store, name, i % 7)};
        add(store, t, 100 + i % 5000, SAMPLE_CPU, false, 1, stack, 3);
    }
    store_stats(store, &stats);
    CHECK(stats.nodes <= STORE_NODES_MAX);
    CHECK(stats.frames <= STORE_FRAMES_MAX);
    CHECK(stats.threads < STORE_THREADS_MAX);
    CHECK(stats.bytes <= STORE_BYTES_MAX + (1 << 20));
    CHECK(weigh(store, (struct store_view){.mode = MODE_CPU}, &count) == 300000 ||
          stats.dropped_slices);
    CHECK_INT(stats.samples, 300000);

    /* Deeper than any stack may be: it ends in [other]. */
    uint64_t folded = stats.folded;
    static uint32_t deep[STORE_DEPTH_MAX + 10];
    for (size_t i = 0; i < STORE_DEPTH_MAX + 10; i++)
        deep[i] = root;
    add(store, t, 1, SAMPLE_CPU, false, 1, deep, STORE_DEPTH_MAX + 10);
    store_stats(store, &stats);
    CHECK_INT(stats.folded, folded + 1);
    store_unref(store);
}

/* What nothing has any more makes room for what is new. */
static void test_tidy(void)
{
    struct store *store = make();
    struct store_stats stats;
    uint64_t t = START;
    uint32_t lines[300];

    for (unsigned i = 0; i < 300; i++)
        lines[i] = intern(store, "f", (int)i);
    /* Each stack is another one; there is room for those of a day, not for all. */
    for (uint32_t i = 0; i < 120000; i++, t += STORE_KEPT / 15000) {
        uint32_t stack[] = {lines[i % 300], lines[i / 300 % 300], lines[i / 90000]};
        add(store, t, 1, SAMPLE_CPU, false, 1, stack, 3);
    }
    store_stats(store, &stats);
    CHECK_INT(stats.folded, 0);
    CHECK(stats.nodes < STORE_NODES_MAX);
    store_unref(store);
}

/* Who remembers where a stack is finds it there, also when nodes have got other numbers. */
static void test_places(void)
{
    struct store *store = make();
    uint32_t stack[] = {intern(store, "main", 3), intern(store, "leaf", 8)}, lines[300];
    struct store_place place = {0};
    struct sample sample = {
        .when = START, .tid = 1, .weight = 1, .frames = stack, .n = 2, .place = &place};
    struct sum sum;

    for (unsigned i = 0; i < 300; i++)
        lines[i] = intern(store, "f", (int)i);
    for (uint32_t i = 0; i < 32000; i++, sample.when += STORE_KEPT / 15000) {
        uint32_t others[] = {lines[i % 300], lines[i / 300 % 300], lines[i / 90000]};
        add(store, sample.when, 1, SAMPLE_OFF, false, 1, others, 3);
        CHECK(!store_add(store, &sample));
        if (i == 100)
            store_clear(store, 0);
    }
    CHECK(!sum_init(&sum, MODE_CPU));
    CHECK(!store_sum(store, &(struct store_view){.mode = MODE_CPU}, &sum));
    CHECK_INT(sum.ncells, 1);
    check_path(&sum, sum.cells[0].node, (const char *const[]){"leaf", "main", NULL});
    sum_deinit(&sum);
    store_unref(store);
}

static void test_merge_sums(void)
{
    struct store *one = make(), *two = make();
    uint32_t a[] = {intern(one, "main", 3), intern(one, "x", 1)};
    uint32_t b[] = {intern(two, "y", 9), intern(two, "main", 3)};
    struct sum sums[2], all;
    int64_t *self, *total;

    add(one, START, 1, SAMPLE_CPU, false, 10, a, 2);
    add(two, START, 1, SAMPLE_CPU, false, 4, &b[1], 1);
    for (int i = 0; i < 2; i++) {
        CHECK(!sum_init(&sums[i], MODE_CPU));
        CHECK(!store_sum(i ? two : one, &(struct store_view){.mode = MODE_CPU}, &sums[i]));
    }
    CHECK(!sum_init(&all, MODE_CPU));
    struct profile_frame root = {PROFILE_WORD, "rank 3", "", 0, 0};
    CHECK(!sum_merge(&all, &sums[0], &(struct sum_role){.root = &root}));
    CHECK(!sum_merge(&all, &sums[1], &(struct sum_role){.root = &root}));
    CHECK_INT(all.trie.nnodes, 4);
    CHECK(!sum_weights(&all, 0, false, &self, &total));
    CHECK_INT(total[1], 14);
    CHECK_INT(self[2], 4);
    CHECK_INT(self[3], 10);
    free(self);
    free(total);
    sum_deinit(&all);

    CHECK(!sum_init(&all, MODE_CPU));
    CHECK(!sum_merge(&all, &sums[0], &(struct sum_role){0}));
    CHECK(!sum_merge(&all, &sums[1], &(struct sum_role){.before = true, .factor = 2.5}));
    CHECK(all.compares);
    CHECK(!sum_weights(&all, 0, true, &self, &total));
    CHECK_INT(total[TRIE_ROOT], 10);
    free(self);
    free(total);
    sum_deinit(&all);
    sum_deinit(&sums[0]);
    sum_deinit(&sums[1]);
    store_unref(one);
    store_unref(two);
}

int main(void)
{
    test_views();
    test_stacks();
    test_merging();
    test_ten_days();
    test_limits();
    test_tidy();
    test_places();
    test_merge_sums();
    CHECK_INT(budget.used, 0);
    return 0;
}
