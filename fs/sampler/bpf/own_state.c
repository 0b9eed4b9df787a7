#include "fs/sampler/bpf/own_state.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

#define BELOW 8192 /* bytes of TLS below the fs base that are looked through, ... */
#define ABOVE 2304 /* ... and above it: struct pthread with the first block of its keys */
#define WORDS ((BELOW + ABOVE) / 8)
#define THREADS_MAX 16 /* that are looked at */
#define TRIES 16       /* of a list of threads that changes */
#define STEP 1024      /* is read at once: what is below may not be mapped */

/* What was seen of a word of the TLS: in how many threads it is their thread state, and in how many
 * it is something else, but NULL. */
struct count {
    unsigned same, other;
};

static void count_thread(const struct target *target, const struct stack *stack,
                         struct count counts[WORDS])
{
    uint64_t words[STEP / 8];

    for (size_t at = 0; at < BELOW + ABOVE; at += STEP) {
        size_t size = BELOW + ABOVE - at < STEP ? BELOW + ABOVE - at : STEP;
        if (memory_read(&target->memory, stack->thread_id - BELOW + at, words, size) < 0)
            continue;
        for (size_t i = 0; i < size / 8; i++) {
            counts[at / 8 + i].same += words[i] == stack->tstate;
            counts[at / 8 + i].other += words[i] && words[i] != stack->tstate;
        }
    }
}

/* A place is the better the more threads have it, and above the fs base: what is below may be an
 * old copy on a thread's stack. */
static bool is_better(const struct count *counts, size_t a, size_t b)
{
    if (counts[a].other != counts[b].other)
        return counts[a].other < counts[b].other;
    if (counts[a].same != counts[b].same)
        return counts[a].same > counts[b].same;
    return a * 8 >= BELOW && b * 8 < BELOW;
}

static int choose(const struct count counts[WORDS], int32_t tls[KERNEL_TLS_MAX])
{
    size_t best[KERNEL_TLS_MAX], n = 0;

    for (size_t i = 0; i < WORDS; i++) {
        if (!counts[i].same || i * 8 == BELOW)
            continue;
        size_t k = n < KERNEL_TLS_MAX ? n++ : KERNEL_TLS_MAX;
        for (; k > 0 && is_better(counts, i, best[k - 1]); k--)
            if (k < KERNEL_TLS_MAX)
                best[k] = best[k - 1];
        if (k < KERNEL_TLS_MAX)
            best[k] = i;
    }
    memset(tls, 0, KERNEL_TLS_MAX * sizeof *tls);
    for (size_t i = 0; i < n; i++)
        tls[i] = (int32_t)(best[i] * 8) - BELOW;
    return n ? 0 : -ENOENT;
}

static int read_threads(struct target *target, struct view *view, struct walk *walk)
{
    int r = -EAGAIN;

    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        view_reset(view);
        r = walk_run(walk, view, &target->runtime, target->codes);
    }
    return r;
}

int own_state_learn(struct target *target, int32_t tls[KERNEL_TLS_MAX], uint64_t *gil)
{
    _cleanup_free_ struct count *counts = calloc(WORDS, sizeof *counts);
    struct walk walk = {.depth = 1};
    struct view *view;
    size_t seen = 0;

    if (!counts || view_new(&target->memory, &view) < 0)
        return -ENOMEM;
    int r = read_threads(target, view, &walk);
    for (size_t i = 0; i < walk.n && r == 0 && seen < THREADS_MAX; i++) {
        if (!walk.stacks[i].thread_id)
            continue;
        count_thread(target, &walk.stacks[i], counts);
        seen++;
    }
    if (r == 0)
        r = seen ? choose(counts, tls) : -EAGAIN;
    if (r == 0)
        *gil = walk.ngils ? walk.gils[0].addr : 0;
    walk_deinit(&walk);
    view_free(view);
    return r;
}
