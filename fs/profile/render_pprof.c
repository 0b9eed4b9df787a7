/* pprof: perftools.profiles.Profile (github.com/google/pprof, proto/profile.proto) in gzip (RFC
 * 1952). What is in there is a few hundred KiB, of which compressing would save half: it is stored.
 */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

/* Fields of the messages. */
enum {
    SAMPLE_TYPE = 1,
    SAMPLE,
    MAPPING,
    LOCATION,
    FUNCTION,
    STRING_TABLE,
    TIME_NANOS = 9,
    DURATION_NANOS,
    PERIOD_TYPE,
    PERIOD,
    DEFAULT_SAMPLE_TYPE = 14
};

static void add_varint(struct text *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        text_putc(out, (char)(value | 0x80));
    text_putc(out, (char)value);
}

static void add_number(struct text *out, unsigned field, uint64_t value)
{
    if (!value)
        return;
    add_varint(out, field << 3);
    add_varint(out, value);
}

static void add_bytes(struct text *out, unsigned field, const char *bytes, size_t size)
{
    add_varint(out, field << 3 | 2);
    add_varint(out, size);
    if (size)
        text_add(out, bytes, size);
}

static void add_message(struct text *out, unsigned field, const struct text *message)
{
    add_bytes(out, field, message->data, message->size);
    if (message->error)
        out->error = message->error;
}

struct strings {
    struct trie trie; /* of which only the names are used */
};

/* The number of a string. */
static uint64_t string(struct strings *strings, const char *text)
{
    struct profile_frame frame = {.func = text, .file = ""};
    uint32_t id;

    if (trie_frame(&strings->trie, &frame, &id) < 0)
        return 0;
    return strings->trie.frames[id].func;
}

static void add_type(struct strings *strings, struct text *out, unsigned field, const char *type,
                     const char *unit)
{
    _cleanup_(text_deinit) struct text message = TEXT_INIT;

    add_number(&message, 1, string(strings, type));
    add_number(&message, 2, string(strings, unit));
    add_message(out, field, &message);
}

/* A function for each frame's name, place and first line, a location for each frame. A function has
 * no system_name: where it is the name, pprof takes that for C++ and leaves out what is in <>. */
static int add_frames(const struct trie *trie, struct strings *strings, struct text *out)
{
    struct trie functions;

    if (trie_init(&functions, 0, 0) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < trie->nframes; i++) {
        struct profile_frame frame = trie_frame_of(trie, i), function = frame;
        _cleanup_(text_deinit) struct text message = TEXT_INIT, line = TEXT_INIT;
        uint32_t id, known = (uint32_t)functions.nframes;
        function.line = 0;
        if (trie_frame(&functions, &function, &id) < 0) {
            trie_deinit(&functions);
            return -ENOMEM;
        }
        if (id == known) {
            _cleanup_(text_deinit) struct text body = TEXT_INIT;
            add_number(&body, 1, id + 1);
            add_number(&body, 2, string(strings, frame.func));
            add_number(&body, 4, string(strings, frame.file));
            add_number(&body, 5, (uint64_t)frame.first_line);
            add_message(out, FUNCTION, &body);
        }
        add_number(&line, 1, id + 1);
        add_number(&line, 2, (uint64_t)frame.line);
        add_number(&message, 1, i + 1);
        add_message(&message, 4, &line);
        add_message(out, LOCATION, &message);
    }
    trie_deinit(&functions);
    return 0;
}

static void add_label(struct strings *strings, struct text *out, const char *key, const char *text,
                      int64_t number)
{
    _cleanup_(text_deinit) struct text message = TEXT_INIT;

    add_number(&message, 1, string(strings, key));
    if (text)
        add_number(&message, 2, string(strings, text));
    else
        add_number(&message, 3, (uint64_t)number);
    add_message(out, 3, &message);
}

static void add_sample(const struct sum *sum, const struct sum_cell *cell, struct strings *strings,
                       struct text *out)
{
    const struct sum_thread *thread = &sum->threads[cell->thread];
    _cleanup_(text_deinit) struct text message = TEXT_INIT, stack = TEXT_INIT, values = TEXT_INIT;

    for (uint32_t node = cell->node; node; node = sum->trie.nodes[node].parent)
        add_varint(&stack, sum->trie.nodes[node].frame + 1u);
    add_varint(&values, cell->count);
    add_varint(&values, (uint64_t)cell->weight);
    add_message(&message, 1, &stack);
    add_message(&message, 2, &values);
    if (thread->name[0])
        add_label(strings, &message, "thread", thread->name, 0);
    add_label(strings, &message, "tid", NULL, thread->tid);
    add_label(strings, &message, "pid", NULL, thread->pid);
    add_message(out, SAMPLE, &message);
}

static int add_profile(const struct sum *sum, struct text *out)
{
    const char *mode = profile_mode_name(sum->mode), *unit = profile_mode_unit(sum->mode);
    struct strings strings;

    if (trie_init(&strings.trie, 0, 0) < 0)
        return -ENOMEM;
    unit = !strcmp(unit, "ns") ? "nanoseconds" : !strcmp(unit, "pages") ? "count" : unit;
    string(&strings, ""); /* the first one has to be that */
    add_type(&strings, out, SAMPLE_TYPE, "samples", "count");
    add_type(&strings, out, SAMPLE_TYPE, mode, unit);
    for (size_t i = 0; i < sum->ncells; i++)
        add_sample(sum, &sum->cells[i], &strings, out);
    int error = add_frames(&sum->trie, &strings, out);
    add_number(out, TIME_NANOS, sum->wall_zero + sum->from);
    add_number(out, DURATION_NANOS, sum->to - sum->from);
    add_type(&strings, out, PERIOD_TYPE, mode, unit);
    add_number(out, PERIOD, sum->period);
    add_number(out, DEFAULT_SAMPLE_TYPE, string(&strings, mode));
    for (size_t i = 0; i < strings.trie.nnames; i++)
        add_bytes(out, STRING_TABLE, strings.trie.names[i], strlen(strings.trie.names[i]));
    trie_deinit(&strings.trie);
    return error;
}

static uint32_t crc32(const char *bytes, size_t size)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void add_little_endian(struct text *out, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        text_putc(out, (char)(value >> 8 * i));
}

static void add_gzip(const char *bytes, size_t size, struct text *out)
{
    static const char head[] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, (char)0xff};
    size_t at = 0;

    text_add(out, head, sizeof head);
    do { /* blocks without compression (RFC 1951, 3.2.4) */
        size_t n = size - at < 0xffff ? size - at : 0xffff;
        text_putc(out, at + n == size);
        add_little_endian(out, (uint32_t)n, 2);
        add_little_endian(out, (uint32_t)n ^ 0xffff, 2);
        if (n)
            text_add(out, bytes + at, n);
        at += n;
    } while (at < size);
    add_little_endian(out, crc32(bytes, size), 4);
    add_little_endian(out, (uint32_t)size, 4);
}

int render_pprof(const struct sum *sum, struct text *out)
{
    _cleanup_(text_deinit) struct text profile = TEXT_INIT;

    int error = add_profile(sum, &profile);
    if (!error)
        error = profile.error;
    if (!error && profile.cut)
        error = -EFBIG;
    if (!error)
        add_gzip(profile.data, profile.size, out);
    return error;
}
