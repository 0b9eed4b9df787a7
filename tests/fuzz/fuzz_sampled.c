/* The messages of a process that samples another one, and that somebody has taken over: what they
 * bring into the store stays within all limits, and no name drives a terminal. */
#include "fs/owner/sampled.h"
#include "tests/fuzz/fuzz.h"

#include "agent/base/clock.h"

#include <stdlib.h>
#include <string.h>

static void check_shown(const char *text)
{
    if (strpbrk(text, "\x1b\r\x7f\x01"))
        abort();
}

static int check_frame(void *arg, uint32_t node, size_t depth, struct profile_frame frame)
{
    check_shown(frame.func);
    check_shown(frame.file);
    if (frame.line < 0 || frame.first_line < 0 || frame.kind > PROFILE_WORD)
        abort();
    return 0;
}

static int check_thread(void *arg, pid_t tid, const char *name)
{
    check_shown(name);
    return tid <= 0 ? abort(), 0 : 0;
}

/* A message of the size that the byte before it says, in units of 8. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct store_budget budget;
    struct sampled sampled = {.since = monotonic_ns(), .modes = ~0u, .why = TEXT_INIT};
    struct store_stats stats;
    int r = store_new(1, &budget, &sampled.store);

    for (size_t at = 0; r == 0 && at < size; at += 1 + (size_t)data[at] * 8) {
        size_t n = (size_t)data[at] * 8 < size - at - 1 ? (size_t)data[at] * 8 : size - at - 1;
        char *message = malloc(n ? n : 1); /* no more, for the sanitizer */
        memcpy(message, data + at + 1, n);
        r = sampled_take(&sampled, message, n);
        free(message);
    }
    store_stacks(sampled.store, check_frame, NULL);
    store_threads(sampled.store, check_thread, NULL);
    store_stats(sampled.store, &stats);
    if (stats.first && stats.first < sampled.since)
        abort();
    check_shown(sampled.figures.note);
    if (sampled.why.size && memchr(sampled.why.data, 0x1b, sampled.why.size))
        abort();
    store_unref(sampled.store);
    sampled_deinit(&sampled);
    return 0;
}
