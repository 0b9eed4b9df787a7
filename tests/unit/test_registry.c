#include "fs/proc/last_look.h"
#include "fs/process/registry.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <unistd.h>

#define MIB (1u << 20)

static void test_sighting(void)
{
    struct proc_stat stat = {.start_time = 1, .start_code = 2, .start_stack = 3, .vsize = 10 * MIB};
    struct proc_statm statm = {.size = 10 * MIB / 4096, .text = 100};
    struct last_look s = {0};
    uint64_t now = 1000;

    last_look_update(&s, &stat, false, now);
    CHECK(last_look_same(&s, &stat));
    CHECK(!last_look_holds(&s, &statm, 4096)); /* the size of its code was never seen */
    s.text = statm.text;
    CHECK(last_look_holds(&s, &statm, 4096));
    CHECK(!last_look_grown(&s, stat.vsize, now, true));
    CHECK(!last_look_grown(&s, stat.vsize + MIB - 1, now, false));

    /* a library came: at once for whoever asks, later for a listing */
    CHECK(last_look_grown(&s, stat.vsize + MIB, now, false));
    CHECK(!last_look_grown(&s, stat.vsize + MIB, now, true));
    CHECK(last_look_grown(&s, stat.vsize + MIB, now + LAST_LOOK_WAIT_MIN, true));
    statm.size += MIB / 4096;
    CHECK(!last_look_holds(&s, &statm, 4096));

    /* growth counts from the least that was seen, so that memory given back doesn't hide it */
    CHECK(!last_look_grown(&s, 2 * MIB, now, false));
    CHECK(last_look_grown(&s, 3 * MIB, now, false));

    /* each look in vain makes the next wait longer, up to a limit */
    uint64_t last = s.wait;
    for (int i = 0; i < 20; i++) {
        last_look_update(&s, &stat, false, now);
        CHECK(s.wait == last * 2 || s.wait == LAST_LOOK_WAIT_MAX);
        last = s.wait;
    }
    CHECK_INT(s.until, now + LAST_LOOK_WAIT_MAX);

    /* an exec starts afresh, in each of the ways it shows */
    struct proc_stat other = stat;
    other.start_stack++;
    CHECK(!last_look_same(&s, &other));
    other = stat;
    other.start_code++;
    CHECK(!last_look_same(&s, &other));
    other = stat;
    other.start_time++; /* the pid was used again */
    CHECK(!last_look_same(&s, &other));
    last_look_update(&s, &other, true, now);
    CHECK_INT(s.wait, LAST_LOOK_WAIT_MIN);
    s.text = statm.text;

    /* what was found stays found however it grows, until its code changes */
    CHECK(last_look_holds(&s, &statm, 4096));
    statm.size *= 100;
    CHECK(last_look_holds(&s, &statm, 4096));
    CHECK(!last_look_grown(&s, UINT64_MAX, now, false));
    statm.text++;
    CHECK(!last_look_holds(&s, &statm, 4096));
}

static void test_error_ring(void)
{
    _Atomic(struct error_ring *) ring = NULL;
    struct credentials mine = {.refs = 1, .known = true},
                       other = {.refs = 1, .known = true, .uid = {1}};
    struct text out = TEXT_INIT;
    char file[32];

    error_ring_render(ring, &mine, &out);
    CHECK_INT(out.size, 0);
    for (int i = 0; i < 11; i++) {
        snprintf(file, sizeof file, "file-%d", i);
        error_ring_add(&ring, &mine, file, -ESRCH, i % 2 ? "gone\nforged line" : NULL);
    }
    error_ring_render(ring, &other, &out); /* they are nobody else's to see */
    CHECK_INT(out.size, 0);
    error_ring_render(ring, &mine, &out);
    size_t lines = 0;
    for (const char *p = out.data; *p; p++)
        lines += *p == '\n';
    CHECK_INT(lines, ERROR_RING_LINES);
    CHECK(!strstr(out.data, "file-2 ")); /* the oldest went */
    CHECK(strstr(out.data, " file-3 ESRCH gone\\nforged line\n"));
    CHECK(strstr(out.data, " file-10 ESRCH No such process\n"));
    CHECK(strstr(out.data, "file-3 ") < strstr(out.data, "file-10 "));
    text_deinit(&out);
    error_ring_free(ring);
    CHECK_INT(mine.refs, 1);
}

/* This program is no Python; nor is a pid that can't be. */
static void test_lookup(void)
{
    struct registry *registry;
    struct process *process = NULL;

    CHECK_INT(registry_new(&registry), 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(registry_lookup(registry, getpid(), &process), -ENOENT);
    CHECK_INT(registry_lookup(registry, 0, &process), -ENOENT);
    CHECK_INT(registry_lookup(registry, 0x7fffffff, &process), -ENOENT);
    CHECK(!process);
    registry_free(registry);
}

int main(void)
{
    test_sighting();
    test_error_ring();
    test_lookup();
    return 0;
}
