/* The table profile: single samples of what `profile` in ctl has started. */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/process/process.h"
#include "fs/sampler/profile.h"
#include "schema/schema.h"

static const char *const modes[SAMPLE_KINDS] = {
    [SAMPLE_CPU] = "cpu",      [SAMPLE_OFF] = "off",     [SAMPLE_PREEMPTED] = "preempted",
    [SAMPLE_FAULT] = "faults", [SAMPLE_ALLOC] = "alloc", [SAMPLE_HEAP] = "heap",
};

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    struct store *store = scene->process ? profile_store(scene->process->profile) : NULL;
    _cleanup_free_ struct store_recent *samples = NULL;
    uint64_t zero = realtime_ns() - monotonic_ns();
    size_t n = 0;

    int error = store ? store_recent(store, &samples, &n) : 0;
    store_unref(store);
    for (size_t i = 0; i < n && !rows->error; i++) {
        rows_add(rows);
        rows_real(rows, PROFILE_TS, (double)(zero + samples[i].when) / 1e9);
        rows_integer(rows, PROFILE_TID, samples[i].tid);
        rows_text(rows, PROFILE_MODE, modes[samples[i].kind]);
        rows_integer(rows, PROFILE_GIL, samples[i].gil);
        rows_integer(rows, PROFILE_WEIGHT, samples[i].weight);
        rows_integer(rows, PROFILE_STACK, samples[i].node);
    }
    return error;
}

const struct row_source profile_rows = {.fill = fill, .lasting = true};
