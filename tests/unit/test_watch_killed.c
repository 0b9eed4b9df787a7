/* A daemon that watches memory that is written all the time is killed at any moment: the target
 * lives, and the next one can watch it. */
#include "fs/watch/by_perf.h"
#include "fs/watch/by_ptrace.h"
#include "tests/unit/watched.h"

#include <poll.h>

#define KILLS 15
#define KILLS_FULL 300

/* In a process of its own: arms, says so, and goes on until it is killed. */
static void watch(const struct watched *target, bool perf, int report)
{
    struct watch_place place = {(uintptr_t)&target->places[0], 8, PROTO_WATCH_DATA(0, 2)};
    struct by_ptrace *tracer;
    struct by_perf *event;
    struct text why = TEXT_INIT;
    uint64_t hits;

    int r = perf ? by_perf_arm(target->pid, &place, &event, &why)
                 : by_ptrace_new(target->pid, &tracer, &why);
    if (r == 0 && !perf)
        r = by_ptrace_set(tracer, 0, &place, &why);
    if (r < 0)
        fprintf(stderr, "%d: %s\n", r, why.data ? why.data : "");
    CHECK(write(report, &r, sizeof r) == sizeof r);
    for (;; usleep(1000))
        if (perf)
            by_perf_follow(event);
        else
            by_ptrace_attend(tracer, &hits);
}

static pid_t start(const struct watched *target, bool perf, int *report)
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        watch(target, perf, ends[1]);
    }
    close(ends[1]);
    *report = ends[0];
    return child;
}

static void kill_once(struct watched *target, bool perf, unsigned *seed)
{
    bool early = rand_r(seed) % 4 == 0; /* while it arms */
    struct pollfd p;
    int armed;

    pid_t daemon = start(target, perf, &p.fd);
    p.events = POLLIN;
    if (!early) {
        CHECK(poll(&p, 1, -1) == 1);
        CHECK(read(p.fd, &armed, sizeof armed) == sizeof armed);
        CHECK_INT(armed, 0);
    }
    usleep((useconds_t)(rand_r(seed) % (early ? 1000 : 5000)));
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    close(p.fd);
    CHECK(watched_lives(target));
    long written = target->seen->written, made = target->seen->made;
    while (target->seen->written == written || target->seen->made == made) {
        usleep(1000);
        CHECK(watched_lives(target));
    }
}

/* What an agent does when its daemon has gone. */
static void clear(struct watched *target)
{
    CHECK_INT(watched_do(target, 'c', 0, 0), 0);
    long orphans = target->seen->orphans, written = target->seen->written,
         made = target->seen->made;
    while (target->seen->written < written + 10 || target->seen->made < made + 3)
        usleep(1000);
    CHECK(target->seen->orphans <= orphans + 1); /* one may have been on its way */
    CHECK(watched_lives(target));
}

static void test(bool perf, int kills)
{
    struct watched target;
    unsigned seed = 1;

    watched_start(&target);
    watched_do(&target, 'h', 0, 0);
    watched_do(&target, 'n', 0, 0);
    for (int i = 0; i < kills; i++) {
        kill_once(&target, perf, &seed);
        if (!perf && i % 2)
            clear(&target);
    }
    CHECK(target.seen->hits[0] > kills);
    CHECK_INT(target.seen->strange, 0);
    if (perf)
        CHECK_INT(target.seen->orphans, 0);
    printf("%s: killed %d times, %ld hits, %ld orphans\n", perf ? "perf" : "ptrace", kills,
           target.seen->hits[0], target.seen->orphans);
    watched_end(&target);
}

static bool has_perf(void)
{
    struct watch_place place = {0, 8, 0};
    static uint64_t word;
    struct by_perf *event;
    struct text why = TEXT_INIT;

    place.address = (uintptr_t)&word;
    int r = by_perf_arm(getpid(), &place, &event, &why);
    if (r < 0)
        printf("without perf: %s\n", why.data ? why.data : "");
    else
        by_perf_free(event);
    text_deinit(&why);
    return r == 0;
}

int main(void)
{
    int kills = getenv("PROBEFS_TEST_FULL") ? KILLS_FULL : KILLS;

    if (has_perf())
        test(true, kills);
    test(false, kills);
    return 0;
}
