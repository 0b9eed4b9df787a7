/* What is kept of processes that have ended: by age, by size, by number. */
#include "agent/base/cleanup.h"
#include "fs/process/exited.h"
#include "fs/process/facts.h"
#include "tests/unit/check.h"

#define SECOND 1000000000ull

/* In MiB; what is kept no more is forgotten there as well. */
static size_t sizes[8];
static struct recording *recordings[8];

static size_t size_of(struct recording *recording)
{
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        if (recordings[i] == recording)
            return sizes[i];
    return 0;
}

static const struct exited_limits limits = {
    .age = 100 * SECOND, .bytes = 10, .n = 4, .size = size_of};

static struct process *process_of(pid_t pid, size_t slot, size_t size)
{
    struct process *process = calloc(1, sizeof *process);

    CHECK(process);
    atomic_init(&process->refs, 1);
    pthread_mutex_init(&process->lock, NULL);
    replies_init(&process->replies);
    process->pid = pid;
    CHECK_INT(recording_new(&process->recording), 0);
    recordings[slot] = process->recording;
    sizes[slot] = size;
    return process;
}

/* Which pids are kept, as one number: 312 is 1, 2 and 3, in whatever order. */
static int kept(struct exited *exited, uint64_t now)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    int all = 0;

    CHECK_INT(exited_list(exited, now, &list), 0);
    for (size_t i = 0; i < list.n; i++)
        all = all * 10 + list.items[i]->pid;
    return all;
}

static struct exited *make(struct process **one, struct process **two, struct process **three)
{
    struct exited *exited;

    CHECK_INT(exited_new(&limits, &exited), 0);
    *one = process_of(1, 0, 4);
    *two = process_of(2, 1, 4);
    *three = process_of(3, 2, 2);
    exited_add(exited, *two, 10 * SECOND);
    exited_add(exited, *one, 20 * SECOND);
    exited_add(exited, *three, 30 * SECOND);
    return exited;
}

static void unref(struct process *one, struct process *two, struct process *three)
{
    process_unref(one);
    process_unref(two);
    process_unref(three);
}

static void test_age(void)
{
    struct process *one, *two, *three;
    struct exited *exited = make(&one, &two, &three);

    CHECK_INT(kept(exited, 30 * SECOND), 123);
    CHECK_INT(exited_sweep(exited, 30 * SECOND), 80 * SECOND);
    CHECK_INT(kept(exited, 110 * SECOND - 1), 123);
    CHECK_INT(exited_sweep(exited, 110 * SECOND), 10 * SECOND);
    CHECK_INT(kept(exited, 110 * SECOND), 13);
    CHECK(!exited_find(exited, 1, 120 * SECOND));
    CHECK_INT(kept(exited, 125 * SECOND), 3);
    CHECK_INT(kept(exited, 0), 3); /* who asks may have taken the time earlier */
    CHECK(exited_sweep(exited, 130 * SECOND) == UINT64_MAX);
    CHECK(!exited_has(exited, three));
    exited_free(exited);
    unref(one, two, three);
}

static void test_size(void)
{
    struct process *one, *two, *three;
    struct exited *exited = make(&one, &two, &three); /* 10 in all */
    struct process *four = process_of(4, 3, 1), *five = process_of(5, 4, 10),
                   *six = process_of(6, 5, 11);

    exited_add(exited, four, 40 * SECOND); /* the oldest gives way */
    CHECK_INT(kept(exited, 40 * SECOND), 134);
    exited_add(exited, five, 50 * SECOND);
    CHECK_INT(kept(exited, 50 * SECOND), 5);
    exited_add(exited, six, 60 * SECOND); /* too large by itself: its rings go, not the others */
    sizes[5] = 0;
    CHECK_INT(kept(exited, 60 * SECOND), 56);
    exited_free(exited);
    unref(one, two, three);
    unref(four, five, six);
}

static void test_number(void)
{
    struct process *one, *two, *three;
    struct exited *exited = make(&one, &two, &three);
    struct process *four = process_of(4, 3, 0), *five = process_of(5, 4, 0),
                   *again = process_of(1, 5, 0);

    exited_add(exited, four, 40 * SECOND);
    exited_add(exited, five, 50 * SECOND);
    CHECK_INT(kept(exited, 50 * SECOND), 1345);

    exited_add(exited, again, 60 * SECOND); /* a pid that was used twice */
    CHECK_INT(kept(exited, 60 * SECOND), 1345);
    CHECK(!exited_has(exited, one) && exited_has(exited, again));
    CHECK(!exited_drop(exited, one));
    CHECK(exited_drop(exited, again) && !exited_drop(exited, again));
    CHECK_INT(kept(exited, 60 * SECOND), 345);
    struct process *found = exited_find(exited, 4, 60 * SECOND);
    CHECK(found == four);
    process_unref(found);
    exited_free(exited);
    unref(one, two, three);
    unref(four, five, again);
}

static void give_to(struct process *process, uid_t uid)
{
    struct facts *facts = calloc(1, sizeof *facts);

    CHECK(facts);
    facts->access = (struct access_target){.uid = {uid, uid, uid}, .dumpable = true};
    process->facts = facts;
    process->ended = true;
}

/* Who leaves much, or many, loses their own. */
static void test_users(void)
{
    struct process *one, *two, *three;
    struct exited *exited = make(&one, &two, &three); /* 10 in all, of root */
    struct process *four = process_of(4, 3, 9), *five = process_of(5, 4, 3),
                   *six = process_of(6, 5, 0);

    give_to(four, 1000);
    give_to(five, 1000);
    give_to(six, 1000);
    CHECK(exited_drop(exited, two)); /* 6 of root */
    exited_add(exited, four, 40 * SECOND);
    CHECK_INT(kept(exited, 40 * SECOND), 134);
    exited_add(exited, five, 50 * SECOND); /* there is room: nothing is left of the 9 */
    CHECK_INT(kept(exited, 50 * SECOND), 1345);
    exited_add(exited, six, 60 * SECOND); /* one process too many */
    CHECK_INT(kept(exited, 60 * SECOND), 1356);
    exited_free(exited);
    unref(one, two, three);
    unref(four, five, six);
}

int main(void)
{
    test_age();
    test_size();
    test_number();
    test_users();
    return 0;
}
