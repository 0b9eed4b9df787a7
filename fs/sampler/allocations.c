/* The source of alloc and heap: what the agent has sampled of allocations (agent/allocation/), read
 * from outside once a second. It is the agent that samples, and a command that tells it to. */
#include "agent/wire/allocations.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/link/attach.h"
#include "fs/sampler/sampler.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 1000000000u
#define FRAMES_MAX 256 /* of a site */
#define HEAD offsetof(struct allocations, site)

struct allocation_reader {
    pthread_mutex_t lock; /* guards what follows */
    uint64_t at;          /* in the process */
    struct allocations *read;
    struct taken { /* of each site: what the store has of it */
        uint64_t allocated, living, samples;
        uint32_t *frames; /* outermost first */
        size_t n;
    } taken[ALLOCATION_SITES_MAX];
    uint64_t daemon_ns, lost;
};

/* ---- a site's stack ---- */

/* Parses an element, func (file:line), of a text that may be changed. */
static struct profile_frame parse_frame(char *text)
{
    char *file = strstr(text, " ("), *end = text + strlen(text);
    char *line = strrchr(text, ':');

    for (char *next = file; next && (next = strstr(next + 1, " ("));)
        file = next;
    if (!file || !line || line < file || end[-1] != ')')
        return (struct profile_frame){.kind = PROFILE_WORD, .func = "[other]", .file = ""};
    *file = *line = 0;
    return (struct profile_frame){
        .kind = PROFILE_PYTHON,
        .func = text,
        .file = file + 2,
        .line = atoi(line + 1),
    };
}

static int take_stack(struct sampler *sampler, const struct allocation_site *site,
                      struct taken *taken)
{
    char stack[RING_TEXT_MAX + 1] = "[other]", *next = stack;
    size_t alloc = 0,
           size = site->start <= sizeof site->stack ? sizeof site->stack - site->start : 0;

    if (size)
        memcpy(stack, site->stack + site->start, size);
    stack[size ? size : strlen(stack)] = 0;
    for (char *text; (text = strsep(&next, ";")) && taken->n < FRAMES_MAX;) {
        const struct profile_frame frame = parse_frame(text);
        if (ARRAY_GROW(taken->frames, alloc, taken->n + 1) < 0 ||
            store_intern(sampler->store, &frame, &taken->frames[taken->n]) < 0)
            return -ENOMEM;
        taken->n++;
    }
    return 0;
}

/* ---- reading ---- */

static void forget(struct allocation_reader *reader)
{
    for (size_t i = 0; i < ALLOCATION_SITES_MAX; i++)
        free(reader->taken[i].frames);
    memset(reader->taken, 0, sizeof reader->taken);
    reader->lost = 0;
}

static int add(struct sampler *sampler, const struct taken *taken, enum sample_kind kind,
               uint64_t before, uint64_t now, uint64_t samples)
{
    const struct sample sample = {
        .when = monotonic_ns(),
        .tid = sampler->target->pid, /* whose threads they were isn't kept */
        .kind = kind,
        .gil = true,
        .weight = (int64_t)(now - before),
        .count = samples ? samples : 1,
        .frames = taken->frames,
        .n = taken->n,
    };

    return sample.weight ? store_add(sampler->store, &sample) : 0;
}

static int take_site(struct sampler *sampler, const struct allocation_site *site,
                     struct taken *taken)
{
    unsigned modes = sampler->options.modes;
    int r = taken->frames ? 0 : take_stack(sampler, site, taken);

    if (r == 0 && modes & SAMPLER_MODE(MODE_ALLOC))
        r = add(sampler, taken, SAMPLE_ALLOC, taken->allocated, site->allocated,
                site->samples - taken->samples);
    if (r == 0 && modes & SAMPLER_MODE(MODE_HEAP))
        r = add(sampler, taken, SAMPLE_HEAP, taken->living, site->living, 1);
    taken->allocated = site->allocated;
    taken->living = site->living;
    taken->samples = site->samples;
    return r;
}

/* Takes what is new. -ESRCH: the process, or what the agent keeps, has gone. */
static int look(struct sampler *sampler, struct allocation_reader *reader)
{
    const struct memory *memory = &sampler->target->memory;
    struct allocations *read = reader->read;
    double since = read->since;

    if (!target_same_program(sampler->target))
        return -ESRCH;
    int r = memory_read(memory, reader->at, read, HEAD);
    if (r < 0 || read->magic != ALLOCATIONS_MAGIC || read->sites > ALLOCATION_SITES_MAX)
        return -ESRCH;
    if (since != read->since) /* it began anew */
        forget(reader);
    r = memory_read(memory, reader->at + HEAD, read->site, read->sites * sizeof *read->site);
    for (uint32_t i = 0; r == 0 && i < read->sites; i++)
        r = take_site(sampler, &read->site[i], &reader->taken[i]);
    store_lose(sampler->store, read->lost - reader->lost);
    reader->lost = read->lost;
    return r == -EFAULT ? -ESRCH : r;
}

static int look_locked(struct sampler *sampler)
{
    struct allocation_reader *reader = sampler->of;
    _guard_mutex_(&reader->lock);
    uint64_t begin = thread_cpu_ns();
    int r = look(sampler, reader);
    reader->daemon_ns += thread_cpu_ns() - begin;
    return r;
}

/* ---- the source ---- */

static int start(struct sampler *sampler, struct text *why)
{
    struct found_agent found;
    struct allocation_reader *reader = calloc(1, sizeof *reader);

    if (!reader)
        return -ENOMEM;
    reader->read = calloc(1, sizeof *reader->read);
    int r = reader->read ? agent_found(sampler->target, &found) : -ENOMEM;
    if (r == 0 && !found.record.allocations)
        r = -ENOENT;
    if (r < 0) {
        free(reader->read);
        free(reader);
        if (r == -ENOMEM || r == -ESRCH)
            return r;
        text_puts(why, "no agent samples allocations there");
        return -EOPNOTSUPP;
    }
    reader->at = found.record.allocations;
    pthread_mutex_init(&reader->lock, NULL);
    sampler->of = reader;
    return 0;
}

static void stop(struct sampler *sampler)
{
    struct allocation_reader *reader = sampler->of;

    forget(reader);
    pthread_mutex_destroy(&reader->lock);
    free(reader->read);
    free(reader);
}

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    return look_locked(sampler) == -ESRCH ? UINT64_MAX : now + LOOK_NS;
}

static void collect(struct sampler *sampler) { (void)look_locked(sampler); }

static void figures(struct sampler *sampler, struct sampler_figures *out)
{
    struct allocation_reader *reader = sampler->of;
    _guard_mutex_(&reader->lock);

    *out = (struct sampler_figures){
        .daemon_ns = reader->daemon_ns,
        .missing = sampler->options.modes & ~sampler_allocations.modes,
    };
    snprintf(out->note, sizeof out->note,
             "one in %lu bytes is sampled; an allocation takes a few ns more",
             (unsigned long)reader->read->mean);
}

const struct sampler_source sampler_allocations = {
    .name = "agent",
    .modes = SAMPLER_MODE(MODE_ALLOC) | SAMPLER_MODE(MODE_HEAP),
    .start = start,
    .stop = stop,
    .tick = tick,
    .collect = collect,
    .figures = figures,
};
