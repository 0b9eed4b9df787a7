#include "fs/owner/sampled.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/owner/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define FRAMES_KNOWN (STORE_NO_STACK + 1u) /* that every store has */

/* ---- who tells ---- */

/* The caller holds the lock, here as below. */
static void flush(struct sampled_writer *writer)
{
    size_t size = writer->size;

    writer->size = 0;
    if (size && !writer->failed)
        writer->failed = send(writer->fd, writer->bytes, size, MSG_NOSIGNAL) < 0;
}

/* Adds an item of a struct and what follows it, which fits into one message. */
static void add(struct sampled_writer *writer, enum item_kind kind, const void *of, size_t size,
                const void *more, size_t nmore, const void *last, size_t nlast)
{
    size_t whole = (sizeof(struct item) + size + nmore + nlast + 7) & ~(size_t)7;
    const struct item item = {.kind = kind, .size = (uint32_t)whole};

    if (writer->size + whole > SAMPLED_PIECE)
        flush(writer);
    char *at = writer->bytes + writer->size;
    memset(at, 0, whole);
    memcpy(at, &item, sizeof item);
    memcpy(at += sizeof item, of, size);
    if (nmore)
        memcpy(at + size, more, nmore);
    if (nlast)
        memcpy(at + size + nmore, last, nlast);
    writer->size += whole;
}

static uint32_t bounded(size_t size, uint32_t most) { return size < most ? (uint32_t)size : most; }

static void tell_frame(void *arg, uint32_t id, const struct profile_frame *frame)
{
    struct sampled_writer *writer = arg;
    const struct item_frame of = {.kind = frame->kind,
                                  .first_line = frame->first_line,
                                  .line = frame->line,
                                  .func = bounded(strlen(frame->func), SAMPLED_NAME_MAX),
                                  .file = bounded(strlen(frame->file), SAMPLED_NAME_MAX)};

    _guard_mutex_(&writer->lock);
    add(writer, ITEM_FRAME, &of, sizeof of, frame->func, of.func, frame->file, of.file);
}

static void tell_sample(void *arg, const struct sample *sample)
{
    struct sampled_writer *writer = arg;
    const struct item_sample of = {.when = sample->when,
                                   .count = sample->count,
                                   .weight = sample->weight,
                                   .tid = sample->tid,
                                   .kind = sample->kind,
                                   .gil = sample->gil,
                                   .torn = sample->torn,
                                   .n = bounded(sample->n, SAMPLED_FRAMES_MAX)};

    _guard_mutex_(&writer->lock);
    add(writer, ITEM_SAMPLE, &of, sizeof of, sample->frames, of.n * sizeof *sample->frames, NULL,
        0);
}

static void tell_lost(void *arg, uint64_t n)
{
    struct sampled_writer *writer = arg;

    _guard_mutex_(&writer->lock);
    add(writer, ITEM_LOST, &n, sizeof n, NULL, 0, NULL, 0);
}

static void tell_name(void *arg, pid_t tid, const char *name)
{
    struct sampled_writer *writer = arg;
    const struct item_name of = {.tid = tid, .size = bounded(strlen(name), SAMPLED_NAME_MAX)};

    _guard_mutex_(&writer->lock);
    add(writer, ITEM_NAME, &of, sizeof of, name, of.size, NULL, 0);
}

int sampled_writer_init(struct sampled_writer *writer, int fd, struct store *store)
{
    *writer = (struct sampled_writer){.fd = fd, .bytes = malloc(SAMPLED_PIECE)};
    if (!writer->bytes)
        return -ENOMEM;
    pthread_mutex_init(&writer->lock, NULL);
    writer->relay = (struct store_relay){.arg = writer,
                                         .frame = tell_frame,
                                         .sample = tell_sample,
                                         .lose = tell_lost,
                                         .thread_name = tell_name};
    store_relay(store, &writer->relay);
    return 0;
}

void sampled_write_begun(struct sampled_writer *writer, int error, const struct text *why)
{
    const struct item_begun of = {.error = error, .size = bounded(why->size, SAMPLED_NAME_MAX)};

    _guard_mutex_(&writer->lock);
    add(writer, ITEM_BEGUN, &of, sizeof of, why->data, of.size, NULL, 0);
}

void sampled_write_figures(struct sampled_writer *writer, const struct sampler_figures *figures,
                           bool over)
{
    struct item_figures of = {.target_ns = figures->target_ns,
                              .daemon_ns = figures->daemon_ns,
                              .native = figures->native,
                              .missing = figures->missing,
                              .over = over};

    memcpy(of.note, figures->note, sizeof of.note);
    _guard_mutex_(&writer->lock);
    add(writer, ITEM_FIGURES, &of, sizeof of, NULL, 0, NULL, 0);
}

void sampled_write_collected(struct sampled_writer *writer, uint32_t number)
{
    _guard_mutex_(&writer->lock);
    add(writer, ITEM_COLLECTED, &number, sizeof number, NULL, 0, NULL, 0);
}

bool sampled_flush(struct sampled_writer *writer)
{
    _guard_mutex_(&writer->lock);
    flush(writer);
    return !writer->failed;
}

/* ---- who is told ---- */

/* What is behind an item's head. */
struct reading {
    const char *at;
    size_t left;
};

static bool read_struct(struct reading *reading, void *out, size_t size)
{
    if (size > reading->left)
        return false;
    memcpy(out, reading->at, size);
    reading->at += size;
    reading->left -= size;
    return true;
}

/* Reads bytes of a name; no terminal obeys what comes of it. */
static bool read_name(struct reading *reading, uint32_t size, struct text *out)
{
    if (size > SAMPLED_NAME_MAX || size > reading->left || memchr(reading->at, 0, size))
        return false;
    text_add(out, reading->at, size);
    owner_drop_controls(out, -1);
    reading->at += size;
    reading->left -= size;
    return true;
}

static int take_frame(struct sampled *s, struct reading *reading)
{
    _cleanup_(text_deinit) struct text func = TEXT_INIT, file = TEXT_INIT;
    struct item_frame of;

    if (s->n >= STORE_FRAMES_MAX || !read_struct(reading, &of, sizeof of) ||
        of.kind > PROFILE_WORD || of.first_line < 0 || of.line < 0 ||
        !read_name(reading, of.func, &func) || !read_name(reading, of.file, &file))
        return -EPROTO;
    if (text_finish(&func) < 0 || text_finish(&file) < 0 ||
        ARRAY_GROW(s->ids, s->alloc, s->n + 1) < 0)
        return -ENOMEM;
    const struct profile_frame frame = {.kind = (enum profile_frame_kind)of.kind,
                                        .func = func.size ? func.data : "",
                                        .file = file.size ? file.data : "",
                                        .first_line = of.first_line,
                                        .line = of.line};
    int r = store_intern(s->store, &frame, &s->ids[s->n]);
    s->n += r == 0;
    return r;
}

/* Makes numbers of frames of the store's of the other's. */
static bool translate(const struct sampled *s, uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < FRAMES_KNOWN)
            continue;
        if (ids[i] - FRAMES_KNOWN >= s->n)
            return false;
        ids[i] = s->ids[ids[i] - FRAMES_KNOWN];
    }
    return true;
}

/* Counts it in, if it fits. */
static bool weigh(struct sampled *s, const struct item_sample *of)
{
    uint64_t weight = of->weight < 0 ? -(uint64_t)of->weight : (uint64_t)of->weight;
    uint64_t left = SAMPLED_WEIGHT_MAX - s->weight;

    if (weight > left || of->count > left - weight)
        return false;
    s->weight += weight + of->count;
    return true;
}

static int take_sample(struct sampled *s, struct reading *reading)
{
    uint32_t ids[SAMPLED_FRAMES_MAX];
    struct item_sample of;
    uint64_t now = monotonic_ns();

    if (!read_struct(reading, &of, sizeof of) || of.kind >= SAMPLE_KINDS || of.tid <= 0 ||
        of.gil > 1 || of.torn > 1 || of.n > SAMPLED_FRAMES_MAX ||
        !read_struct(reading, ids, of.n * sizeof *ids) || !translate(s, ids, of.n) ||
        !weigh(s, &of))
        return -EPROTO;
    const struct sample sample = {
        .when = of.when < s->since ? s->since
                : of.when > now    ? now
                                   : of.when,
        .tid = of.tid,
        .kind = (enum sample_kind)of.kind,
        .gil = of.gil,
        .torn = of.torn,
        .weight = of.weight,
        .count = of.count,
        .frames = ids,
        .n = of.n,
    };
    store_add(s->store, &sample); /* what there is no memory for counts as lost */
    return 0;
}

static int take_lost(struct sampled *s, struct reading *reading)
{
    uint64_t n;

    if (!read_struct(reading, &n, sizeof n) || n > SAMPLED_WEIGHT_MAX - s->weight)
        return -EPROTO;
    s->weight += n;
    store_lose(s->store, n);
    return 0;
}

static int take_name(struct sampled *s, struct reading *reading)
{
    _cleanup_(text_deinit) struct text name = TEXT_INIT;
    struct item_name of;

    if (!read_struct(reading, &of, sizeof of) || of.tid <= 0 || !read_name(reading, of.size, &name))
        return -EPROTO;
    if (text_finish(&name) < 0)
        return -ENOMEM;
    store_thread_name(s->store, of.tid, name.size ? name.data : "");
    return 0;
}

static int take_begun(struct sampled *s, struct reading *reading)
{
    struct item_begun of;

    if (s->begun || !read_struct(reading, &of, sizeof of) || of.error > 0 || of.error < -4095 ||
        !read_name(reading, of.size, &s->why))
        return -EPROTO;
    s->begun = true;
    s->error = of.error;
    return 0;
}

static int take_figures(struct sampled *s, struct reading *reading)
{
    _cleanup_(text_deinit) struct text note = TEXT_INIT;
    struct item_figures of;

    if (!read_struct(reading, &of, sizeof of) || of.native > 1 || of.over > 1 ||
        strnlen(of.note, sizeof of.note) == sizeof of.note)
        return -EPROTO;
    text_puts(&note, of.note);
    owner_drop_controls(&note, -1);
    if (text_finish(&note) < 0)
        return -ENOMEM;
    s->figures = (struct sampler_figures){.target_ns = of.target_ns,
                                          .daemon_ns = of.daemon_ns,
                                          .native = of.native,
                                          .missing = of.missing & s->modes};
    if (note.size)
        snprintf(s->figures.note, sizeof s->figures.note, "%.*s", (int)strcspn(note.data, "\n"),
                 note.data);
    s->over |= of.over;
    return 0;
}

static int take_collected(struct sampled *s, struct reading *reading)
{
    return read_struct(reading, &s->collected, sizeof s->collected) ? 0 : -EPROTO;
}

static int take_item(struct sampled *s, enum item_kind kind, struct reading *reading)
{
    switch (kind) {
    case ITEM_FRAME: return take_frame(s, reading);
    case ITEM_SAMPLE: return take_sample(s, reading);
    case ITEM_LOST: return take_lost(s, reading);
    case ITEM_NAME: return take_name(s, reading);
    case ITEM_BEGUN: return take_begun(s, reading);
    case ITEM_FIGURES: return take_figures(s, reading);
    case ITEM_COLLECTED: return take_collected(s, reading);
    }
    return -EPROTO;
}

int sampled_take(struct sampled *s, const char *message, size_t size)
{
    int r = 0;

    for (size_t at = 0; r == 0 && at < size;) {
        struct item item;
        if (size - at < sizeof item)
            return -EPROTO;
        memcpy(&item, message + at, sizeof item);
        if (item.size < sizeof item || item.size > size - at)
            return -EPROTO;
        struct reading reading = {message + at + sizeof item, item.size - sizeof item};
        r = take_item(s, (enum item_kind)item.kind, &reading);
        at += item.size;
    }
    return r;
}

void sampled_deinit(struct sampled *s)
{
    free(s->ids);
    text_deinit(&s->why);
    *s = (struct sampled){.why = TEXT_INIT};
}
