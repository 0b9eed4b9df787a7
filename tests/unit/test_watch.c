/* Debug registers, by both routes, in a process that handles SIGTRAP as the agent does: who is told
 * of which write, and that nothing else of the target changes. */
#include "agent/base/clock.h"
#include "fs/proc/procfs.h"
#include "fs/trace/claims.h"
#include "fs/trace/tracer.h"
#include "fs/watch/by_perf.h"
#include "fs/watch/by_ptrace.h"
#include "tests/unit/watched.h"

#include <errno.h>

#define CHANGE 6

/* One armed slot of either route. */
struct armed {
    struct by_perf *perf;
    struct by_ptrace *tracer;
};

static struct text why;

static struct watch_place place_of(const struct watched *target, unsigned slot, unsigned offset,
                                   uint32_t length)
{
    return (struct watch_place){(uintptr_t)&target->places[8 * slot] + offset, length,
                                PROTO_WATCH_DATA(slot, CHANGE)};
}

static int arm_place(const struct watched *target, bool perf, unsigned slot,
                     const struct watch_place *place, struct armed *armed)
{
    int r = 0;

    text_clear(&why);
    if (perf)
        return by_perf_arm(target->pid, place, &armed->perf, &why);
    if (!armed->tracer)
        r = by_ptrace_new(target->pid, &armed->tracer, &why);
    return r == 0 ? by_ptrace_set(armed->tracer, slot, place, &why) : r;
}

static int arm(const struct watched *target, bool perf, unsigned slot, struct armed *armed)
{
    struct watch_place place = place_of(target, slot, 0, 8);
    return arm_place(target, perf, slot, &place, armed);
}

static void disarm(struct armed *armed)
{
    by_perf_free(armed->perf);
    by_ptrace_free(armed->tracer);
    *armed = (struct armed){0};
}

static void expect(struct watched *target, char who, unsigned slot, long n, long hits)
{
    long before = target->seen->hits[slot];

    CHECK_INT(watched_do(target, who, slot, n), 0);
    CHECK_INT(target->seen->hits[slot] - before, hits);
    CHECK_INT(target->seen->orphans + target->seen->strange, 0);
    CHECK(watched_lives(target));
}

/* ---- what is seen ---- */

static void test_who(bool perf)
{
    struct watched target;
    struct armed armed = {0};

    watched_start(&target);
    CHECK_INT(arm(&target, perf, 0, &armed), 0);
    expect(&target, 'm', 0, 1000, 1000);
    CHECK_INT((long long)target.seen->data, PROTO_WATCH_DATA(0, CHANGE));
    expect(&target, 'w', 0, 1000, 1000);
    for (int i = 0; i < 50; i++)
        expect(&target, 't', 0, 10, 10);
    expect(&target, 'f', 0, 10, 0);
    expect(&target, 'm', 1, 10, 0);
    disarm(&armed);
    expect(&target, 'm', 0, 10, 0);
    expect(&target, 't', 0, 10, 0);
    watched_end(&target);
}

static void test_lengths(bool perf)
{
    static const uint32_t lengths[] = {1, 2, 4, 8};
    struct watched target;

    watched_start(&target);
    for (size_t i = 0; i < 4; i++) {
        struct watch_place place = place_of(&target, 1, 8, lengths[i]);
        struct armed armed = {0};
        CHECK_INT(arm_place(&target, perf, 1, &place, &armed), 0);
        expect(&target, 'm', 1, 5, 0); /* it writes just before it */
        disarm(&armed);
        place = place_of(&target, 1, 8 - lengths[i], lengths[i]);
        CHECK_INT(arm_place(&target, perf, 1, &place, &armed), 0);
        expect(&target, 'm', 1, 5, 5); /* the last bytes of what it writes */
        disarm(&armed);
    }
    CHECK(!watch_possible(0x1000, 3) && !watch_possible(0x1001, 2) && !watch_possible(0, 8) &&
          !watch_possible(0xffffffff81000000, 8) && watch_possible(0x1004, 4));
    watched_end(&target);
}

/* All four, and who asks for one more. */
static void test_slots(bool perf)
{
    struct watched target;
    struct armed armed[4] = {0}, more = {0};

    watched_start(&target);
    for (unsigned i = 0; i < 4; i++) {
        if (!perf && i)
            armed[i].tracer = armed[0].tracer;
        CHECK_INT(arm(&target, perf, i, &armed[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        expect(&target, i & 1 ? 't' : 'w', i, 10, 10);
    CHECK_INT(arm(&target, true, 0, &more), -EBUSY);
    CHECK(strstr(why.data, "no debug register is free in thread"));
    if (!perf) {
        CHECK(strstr(why.data, "is tracing it"));
        CHECK_INT(by_ptrace_set(armed[0].tracer, 2, NULL, &why), 0);
        for (unsigned i = 0; i < 4; i++)
            expect(&target, 'm', i, 10, i == 2 ? 0 : 10);
    } else {
        CHECK_INT(arm(&target, false, 0, &more), -EBUSY);
        CHECK(strstr(why.data, "no debug register is free in thread"));
        expect(&target, 't', 3, 10, 10);
    }
    disarm(&more);
    disarm(&armed[0]);
    for (unsigned i = 1; i < 4; i++)
        by_perf_free(armed[i].perf);
    expect(&target, 'm', 1, 10, 0);
    watched_end(&target);
}

static void test_both(void)
{
    struct watched target;
    struct armed one = {0}, two = {0};

    watched_start(&target);
    CHECK_INT(arm(&target, false, 0, &one), 0);
    CHECK_INT(arm(&target, true, 1, &two), 0);
    for (int i = 0; i < 10; i++) {
        expect(&target, i & 1 ? 'm' : 't', 0, 10, 10);
        expect(&target, i & 1 ? 't' : 'm', 1, 10, 10);
    }
    disarm(&two);
    expect(&target, 'm', 0, 10, 10);
    disarm(&one);
    watched_end(&target);
}

/* ---- what it does to the target ---- */

static void test_exec(bool perf)
{
    struct watched target;
    struct armed armed = {0};
    uint64_t hits;

    watched_start(&target);
    CHECK_INT(arm(&target, perf, 0, &armed), 0);
    watched_tell(&target, 'e', 0, 0);
    for (int i = 0; !perf && i < 3000 && by_ptrace_attend(armed.tracer, &hits) == 0; i++)
        usleep(10000);
    for (int i = 0; i < 3000 && proc_tracer(target.pid); i++)
        usleep(10000);
    CHECK(watched_lives(&target));
    CHECK_INT(proc_tracer(target.pid), 0);
    disarm(&armed);
    watched_end(&target);
}

static void test_signals(bool perf)
{
    struct watched target;
    struct armed armed = {0};

    watched_start(&target);
    CHECK_INT(arm(&target, perf, 0, &armed), 0);
    for (int i = 0; i < 20; i++) {
        kill(target.pid, SIGUSR1);
        expect(&target, 'm', 0, 10, 10);
    }
    CHECK(target.seen->usr1 > 0);
    kill(target.pid, SIGSTOP);
    for (int i = 0; i < 3000 && watched_state(&target) != 'T' && watched_state(&target) != 't'; i++)
        usleep(10000);
    struct armed second = {.tracer = armed.tracer};
    CHECK_INT(arm(&target, perf, 1, &second), 0);
    usleep(20000);
    CHECK(watched_state(&target) == 'T' || watched_state(&target) == 't');
    kill(target.pid, SIGCONT);
    expect(&target, 'm', 1, 10, 10);
    expect(&target, 'w', 0, 10, 10);
    by_perf_free(second.perf);
    disarm(&armed);
    watched_end(&target);
}

/* A thread that sleeps where a stop would show. */
static void test_sleep(bool perf)
{
    struct watched target;
    struct armed armed = {0};

    watched_start(&target);
    watched_do(&target, 's', 0, 0);
    while (!target.seen->sleeps)
        usleep(1000);
    usleep(20000);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(arm(&target, perf, 0, &armed), 0);
        expect(&target, 'm', 0, 10, 10);
        disarm(&armed);
    }
    CHECK_INT(target.seen->eintr, 0);
    watched_end(&target);
}

/* What the agent does when a daemon has gone touches nothing else, either. */
static void test_clearing(void)
{
    struct watched target;

    watched_start(&target);
    watched_do(&target, 's', 0, 0);
    watched_do(&target, 'h', 0, 0);
    while (!target.seen->sleeps)
        usleep(1000);
    usleep(20000);
    for (int i = 0; i < 50; i++)
        expect(&target, 'c', 0, 0, 0);
    CHECK_INT(target.seen->eintr, 0);
    watched_end(&target);
}

/* A thread that doesn't stop in time is waited for again. */
static void test_clearing_late(void)
{
    struct watched target;

    watched_start(&target);
    watched_do(&target, 'v', 0, 0);
    while (!target.seen->sleeps)
        usleep(1000);
    usleep(50000);
    expect(&target, 'c', 0, 0, 0);
    watched_end(&target);
}

static void test_blocked(bool perf)
{
    struct watched target;
    struct armed armed = {0};

    watched_start(&target);
    CHECK_INT(arm(&target, perf, 0, &armed), 0);
    watched_do(&target, 'b', 0, 10);
    CHECK(watched_lives(&target));
    for (int i = 0; i < 100; i++)
        watched_do(&target, i & 1 ? 'm' : 't', 0, 10);
    CHECK(watched_lives(&target));
    disarm(&armed);
    watched_do(&target, 'i', 0, 0);
    CHECK_INT(arm(&target, perf, 0, &armed), 0);
    expect(&target, 'm', 0, 10, 10);
    disarm(&armed);
    watched_end(&target);
}

static void test_unhandled(void)
{
    struct watched target;
    struct armed armed = {0};
    uint64_t hits;

    watched_start(&target);
    watched_do(&target, 'd', 0, 0);
    CHECK_INT(arm(&target, false, 0, &armed), -ECANCELED);
    watched_do(&target, 'm', 0, 10);
    watched_do(&target, 'i', 0, 0);
    CHECK_INT(arm(&target, false, 0, &armed), 0);
    expect(&target, 'm', 0, 10, 10);
    watched_do(&target, 'd', 0, 0);
    watched_do(&target, 'm', 0, 10);
    CHECK(watched_lives(&target));
    CHECK_INT(by_ptrace_attend(armed.tracer, &hits), -ECANCELED);
    watched_do(&target, 't', 0, 10);
    CHECK(watched_lives(&target));
    disarm(&armed);
    watched_end(&target);
}

/* ---- others who trace ---- */

/* On a busy machine a thread, or who traces it, may take longer than anybody is made to wait. */
static int stop_patiently(struct tracer *tracer, pid_t tid)
{
    int r = tracer_stop(tracer, tid);
    while (r == -ETIMEDOUT || r == -EBUSY)
        r = tracer_stop(tracer, tid);
    return r;
}

static int stop_and_see(struct tracer *tracer, void *arg)
{
    const struct watched *target = arg;
    struct registers regs;
    uint64_t ns;

    CHECK_INT(stop_patiently(tracer, target->seen->tid), 0);
    long hits = target->seen->hits[0], written = target->places[0];
    CHECK_INT(tracer_registers(tracer, target->seen->tid, &regs), 0);
    CHECK(registers_pc(&regs) && registers_sp(&regs));
    usleep(2000);
    CHECK_INT(target->seen->hits[0], hits);
    CHECK_INT((long long)target->places[0], written);
    CHECK_INT(tracer_resume(tracer, &ns), 0);
    CHECK(ns > 0);
    return 0;
}

static int pause_patiently(pid_t pid)
{
    int r = claim_pause(pid);
    while (r == -ETIMEDOUT)
        r = claim_pause(pid);
    return r;
}

/* Meanwhile what was on its way to the thread that writes all the time has come. */
static void wait_written(const struct watched *target, long times)
{
    long last = target->seen->written + times;

    while (target->seen->written < last) {
        CHECK(watched_lives(target));
        usleep(1000);
    }
}

static void test_others(void)
{
    struct watched target;
    struct armed armed = {0}, second = {0};

    watched_start(&target);
    CHECK_INT(arm(&target, false, 0, &armed), 0);
    CHECK_INT(arm(&target, false, 0, &second), -EBUSY);
    CHECK(strstr(why.data, "is tracing it"));
    watched_do(&target, 'h', 0, 0);
    while (target.seen->hits[0] < 10)
        usleep(1000);
    for (int i = 0; i < 50; i++)
        CHECK_INT(tracer_run(stop_and_see, &target), 0);
    long hits = target.seen->hits[0];
    for (int i = 0; i < 20; i++) {
        CHECK_INT(pause_patiently(target.pid), 0);
        CHECK_INT(proc_tracer(target.pid), 0);
        wait_written(&target, 2);
        hits = target.seen->hits[0];
        wait_written(&target, 1000);
        CHECK_INT(target.seen->hits[0], hits);
        claim_go_on(target.pid);
        for (int k = 0; k < 30000 && target.seen->hits[0] == hits; k++)
            usleep(1000);
        CHECK(target.seen->hits[0] > hits);
    }
    CHECK(watched_lives(&target));
    CHECK_INT(target.seen->orphans + target.seen->strange, 0);
    disarm(&armed);
    watched_end(&target);
}

int main(void)
{
    struct watched target;
    struct armed armed = {0};

    watched_start(&target);
    int r = arm(&target, true, 0, &armed);
    disarm(&armed);
    watched_end(&target);
    bool perf = r == 0;
    if (!perf)
        printf("without perf: %s\n", why.data);
    for (int route = perf; route >= 0; route--) {
        test_who(route);
        test_lengths(route);
        test_slots(route);
        test_exec(route);
        test_signals(route);
        test_sleep(route);
        test_blocked(route);
    }
    test_clearing();
    test_clearing_late();
    test_unhandled();
    test_others();
    if (perf)
        test_both();
    text_deinit(&why);
    return 0;
}
