#include "agent/breakpoint/set.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/breakpoint/places.h"
#include "agent/record/recorder.h"
#include "agent/stop/hold.h"
#include "agent/wire/channel.h"

#include <stdio.h>
#include <string.h>

#define SPENT_IDS 65536u

static struct breakpoint_set set;
/* Ids that had hits when the set was replaced: each of the low ones, and the highest. */
static uint64_t spent[SPENT_IDS / 64];
static uint32_t spent_most;
static uint64_t appended; /* bytes of rows since all of them were appended */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double last_change; /* breakpoint.changed */

#define ROW_LEAST 144      /* bytes of one without its words, and a little more */
#define CHANGES_APART 1e-6 /* [s] at least, so that each is another number */
#define _guard_rows_ _guard_mutex_(&lock)

/* ---- rows; with the lock ---- */

static struct ring_text text_or_null(const char *text)
{
    return text && text[0] ? (struct ring_text){text, strlen(text)} : (struct ring_text){0};
}

/* About, for a row of a breakpoint. */
static uint64_t row_size(const struct breakpoint *breakpoint)
{
    return ROW_LEAST + strlen(breakpoint->text) + strlen(breakpoint->note) +
           strlen(breakpoint->raised);
}

static uint64_t ring_size(const struct ring *ring)
{
    return (uint64_t)ring->blocks * ring->block_size;
}

void breakpoint_words(const struct breakpoint *breakpoint, char out[BREAKPOINT_WORDS_MAX])
{
    snprintf(out, BREAKPOINT_WORDS_MAX, "%s%s%s", breakpoint->here ? "here " : "",
             breakpoint->disabled ? "disabled " : "", breakpoint->text);
}

static void append(struct ring *ring, struct breakpoint *breakpoint)
{
    char words[BREAKPOINT_WORDS_MAX],
        note[sizeof breakpoint->note + sizeof breakpoint->raised + 40];

    snprintf(note, sizeof note, "%s%s%s%s", breakpoint->note,
             breakpoint->note[0] && breakpoint->raised[0] ? "; " : "",
             breakpoint->raised[0] ? "its condition raised " : "", breakpoint->raised);
    breakpoint_words(breakpoint, words);
    const struct breakpoints_row row = {
        .id = breakpoint->id,
        .breakpoint = text_or_null(words),
        .state = text_or_null(breakpoint->state),
        .note = text_or_null(note),
        .places = __atomic_load_n(&breakpoint->places, __ATOMIC_RELAXED),
        .hits = (int64_t)__atomic_load_n(&breakpoint->hits, __ATOMIC_RELAXED),
        .dropped = (int64_t)__atomic_load_n(&breakpoint->dropped, __ATOMIC_RELAXED),
        .errors = (int64_t)__atomic_load_n(&breakpoint->errors, __ATOMIC_RELAXED),
        .ts = breakpoint->set_at,
        .lineno = breakpoint->lineno ? breakpoint->lineno : RING_NULL_INTEGER,
        .changed = breakpoint->changed,
    };

    breakpoints_append(ring, &row, &breakpoint->ticket);
    appended += row_size(breakpoint);
}

/* Before the oldest of what counts is overwritten. */
static void append_all_in_time(struct ring *ring)
{
    if (appended < ring_size(ring) / 2)
        return;
    appended = 0;
    for (unsigned i = 0; i < set.count; i++)
        if (set.all[i]->state)
            append(ring, set.all[i]);
}

static void publish(struct breakpoint *breakpoint, const char *state, const char *note)
{
    struct ring *ring = recorder_first_use(RECORDED_BREAKPOINTS);
    double now = realtime_s();

    breakpoint->changed = last_change = now > last_change ? now : last_change + CHANGES_APART;
    breakpoint->state = state;
    snprintf(breakpoint->note, sizeof breakpoint->note, "%s", note ? note : "");
    if (!ring)
        return;
    append_all_in_time(ring);
    append(ring, breakpoint);
    channel_tell_happened();
}

static void patch(const struct breakpoint *breakpoint)
{
    struct ring *ring = recorder_ring(RECORDED_BREAKPOINTS);
    const uint64_t numbers[] = {__atomic_load_n(&breakpoint->places, __ATOMIC_RELAXED),
                                __atomic_load_n(&breakpoint->hits, __ATOMIC_RELAXED),
                                __atomic_load_n(&breakpoint->dropped, __ATOMIC_RELAXED),
                                __atomic_load_n(&breakpoint->errors, __ATOMIC_RELAXED)};

    if (ring && breakpoint->state)
        ring_patch_words(ring, &breakpoint->ticket, 4, numbers, ARRAY_SIZE(numbers));
}

/* Appends the row of a breakpoint anew, as it was last published. */
static void publish_again(struct breakpoint *breakpoint)
{
    char note[PROTO_WORDS_MAX];

    memcpy(note, breakpoint->note, sizeof note);
    if (breakpoint->state && !breakpoint_is_removed(breakpoint))
        publish(breakpoint, breakpoint->state, note);
}

void breakpoints_publish(struct breakpoint *breakpoint, const char *state, const char *note)
{
    _guard_rows_;
    publish(breakpoint, state, note);
}

bool breakpoints_raised(struct breakpoint *breakpoint, const char *words)
{
    _guard_rows_;
    if (breakpoint->raised[0])
        return false;
    snprintf(breakpoint->raised, sizeof breakpoint->raised, "%s", words);
    publish_again(breakpoint);
    return true;
}

void breakpoints_count(struct breakpoint *breakpoint)
{
    _guard_rows_;
    if (!breakpoint->removed)
        patch(breakpoint);
}

void breakpoints_done(struct breakpoint *breakpoint)
{
    char note[PROTO_WORDS_MAX];

    _guard_rows_;
    __atomic_store_n(&breakpoint->done, true, __ATOMIC_RELAXED);
    memcpy(note, breakpoint->note, sizeof note);
    if (!breakpoint->removed)
        publish(breakpoint, breakpoint->disabled ? breakpoint->state : "done", note);
}

void breakpoints_over(struct breakpoint *breakpoint, const char *words)
{
    _guard_rows_;
    if (__atomic_exchange_n(&breakpoint->done, true, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&breakpoint->places, 0, __ATOMIC_RELAXED);
    if (!breakpoint->removed)
        publish(breakpoint, breakpoint->disabled ? breakpoint->state : "done", words);
}

static void place_at(struct breakpoint *breakpoint, const struct place_report *report)
{
    if (breakpoint->kind == BREAKPOINT_LINE && report->places)
        breakpoint->lineno = report->line ? (uint32_t)report->line : breakpoint->line;
}

void breakpoints_armed(struct breakpoint *breakpoint, const struct place_report *report,
                       const char *note)
{
    _guard_rows_;
    place_at(breakpoint, report);
    publish(breakpoint, place_report_found(report, breakpoint) ? "armed" : "pending", note);
}

void breakpoints_found(struct breakpoint *breakpoint, const struct place_report *report)
{
    char note[PROTO_WORDS_MAX] = "";

    if (report->line)
        snprintf(note, sizeof note, "line %d is used, the next one with code", report->line);
    _guard_rows_;
    if (breakpoint->removed || !breakpoint->state)
        return;
    place_at(breakpoint, report);
    if (strcmp(breakpoint->state, "pending") == 0)
        publish(breakpoint, "armed", note);
    else
        patch(breakpoint);
}

/* ---- the set ---- */

const struct breakpoint_set *breakpoint_set(void) { return &set; }

unsigned breakpoint_set_find(const struct breakpoint_set *self, uint32_t id)
{
    unsigned low = 0, high = self->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (self->all[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void breakpoint_set_insert(struct breakpoint_set *self, struct breakpoint *breakpoint)
{
    unsigned at = breakpoint_set_find(self, breakpoint->id);

    memmove(&self->all[at + 1], &self->all[at], (self->count - at) * sizeof self->all[0]);
    self->all[at] = breakpoint;
    self->count++;
}

struct breakpoint *breakpoint_set_take(struct breakpoint_set *self, unsigned at)
{
    struct breakpoint *breakpoint = self->all[at];

    self->count--;
    memmove(&self->all[at], &self->all[at + 1], (self->count - at) * sizeof self->all[0]);
    return breakpoint;
}

void breakpoint_set_clear(struct breakpoint_set *self)
{
    while (self->count)
        breakpoint_unref(self->all[--self->count]);
}

bool breakpoint_set_fits(const struct breakpoint_set *self)
{
    uint64_t size = 0;

    for (unsigned i = 0; i < self->count; i++)
        size += row_size(self->all[i]);
    struct ring *ring = recorder_first_use(RECORDED_BREAKPOINTS);
    return !ring || size <= ring_size(ring) / 4;
}

/* Whether there may be rows of hits with its id. */
static bool has_hits(const struct breakpoint *breakpoint)
{
    return __atomic_load_n(&breakpoint->hits, __ATOMIC_RELAXED) ||
           __atomic_load_n(&breakpoint->errors, __ATOMIC_RELAXED);
}

static bool was_spent(uint32_t id)
{
    return id < SPENT_IDS ? spent[id / 64] >> id % 64 & 1 : id <= spent_most;
}

bool breakpoint_id_is_spent(uint32_t id)
{
    unsigned at = breakpoint_set_find(&set, id);
    bool here = at < set.count && set.all[at]->id == id;
    return was_spent(id) || (here && has_hits(set.all[at]));
}

uint32_t breakpoint_ids_spent(void)
{
    uint32_t most = spent_most;

    for (unsigned i = 0; i < set.count; i++)
        if (has_hits(set.all[i]) && set.all[i]->id > most)
            most = set.all[i]->id;
    return most;
}

static void spend(void)
{
    spent_most = breakpoint_ids_spent();
    for (unsigned i = 0; i < set.count; i++)
        if (has_hits(set.all[i]) && set.all[i]->id < SPENT_IDS)
            spent[set.all[i]->id / 64] |= 1ull << set.all[i]->id % 64;
}

/* A breakpoint that has its id in the next set needs no row that says that it is gone. */
static void retire(struct breakpoint *breakpoint, const struct breakpoint_set *next)
{
    unsigned at = breakpoint_set_find(next, breakpoint->id);
    bool has_id = at < next->count && next->all[at]->id == breakpoint->id;

    if (has_id && next->all[at] == breakpoint)
        return;
    __atomic_store_n(&breakpoint->removed, true, __ATOMIC_RELAXED);
    if (!has_id)
        publish(breakpoint, "removed", NULL);
}

void breakpoint_set_replace(struct breakpoint_set *next)
{
    _guard_rows_;
    spend();
    for (unsigned i = 0; i < set.count; i++)
        retire(set.all[i], next);
    breakpoint_set_clear(&set);
    memcpy(set.all, next->all, next->count * sizeof set.all[0]);
    set.count = next->count;
    next->count = 0;
}

bool breakpoints_release(uint64_t here)
{
    bool any = false;

    _guard_rows_;
    for (unsigned i = 0; i < set.count; i++) {
        struct breakpoint *breakpoint = set.all[i];
        if (!breakpoint->here || (here && breakpoint->here != here))
            continue;
        __atomic_store_n(&breakpoint->removed, true, __ATOMIC_RELAXED);
        hold_removed(breakpoint->id, "closed");
        any = true;
    }
    return any;
}

void breakpoints_keep(struct breakpoint *breakpoint, uint64_t here)
{
    _guard_rows_;
    breakpoint->here = here;
    publish_again(breakpoint);
}

void breakpoints_end(void)
{
    _guard_rows_;
    for (unsigned i = 0; i < set.count; i++)
        __atomic_store_n(&set.all[i]->removed, true, __ATOMIC_RELAXED);
    breakpoint_set_clear(&set);
    appended = 0;
}

void breakpoints_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    breakpoint_set_clear(&set);
    appended = 0;
}
