#include "fs/breakpoint/line.h"

#include "fs/base/duration.h"
#include "fs/base/ranges.h"
#include "fs/breakpoint/location.h"
#include "fs/breakpoint/reader.h"

#include <errno.h>

#define ID_MAX 999999999u
#define COUNT_MAX 1000000000000000000u

/* What reads back as it was written, and is one line. */
static int check_bytes(struct reader *reader)
{
    const unsigned char *s = (const unsigned char *)reader->at;

    for (size_t i = 0, n, size = (size_t)(reader->end - reader->at); i < size; i += n) {
        n = utf8_length(s + i, size - i);
        if (n == 0)
            return reader_complain(reader, reader->at + i, "this isn't UTF-8");
        if ((s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f || (s[i] == 0xc2 && s[i + 1] < 0xa0))
            return reader_complain(reader, reader->at + i, "a control character can't stand here");
    }
    return 0;
}

/* `ID:`, but not FILE:LINE with a number for its file. */
static int read_id(struct reader *reader)
{
    const char *p = reader->at;
    uint64_t id;

    while (p < reader->end && is_digit(*p))
        p++;
    if (p == reader->at || p == reader->end || *p != ':' || (p + 1 < reader->end && is_digit(p[1])))
        return 0;
    if (!parse_number((struct words){reader->at, (size_t)(p - reader->at)}, ID_MAX, &id) || id == 0)
        return reader_complain(reader, reader->at, "an id is a number from 1 to 999999999");
    reader->out->id = (uint32_t)id;
    reader->at = p + 1;
    reader_skip_blanks(reader);
    return 0;
}

/* `on RANKS`. A FILE of that name has a colon behind it. */
static int read_on(struct reader *reader)
{
    struct ranges ranges;
    const char *wrong;

    if (reader->out->ranks.size || !reader_take(reader, "on"))
        return 0;
    reader->out->ranks = reader_peek(reader);
    if (!ranges_parse(reader->at, reader->out->ranks.size, &ranges, &wrong))
        return reader_complain(reader, wrong, "ranks belong here: 0,2-3");
    reader->at += reader->out->ranks.size;
    reader_skip_blanks(reader);
    return 0;
}

static int read_action(struct reader *reader)
{
    if (reader_take(reader, "log"))
        return 0;
    if (!reader_take(reader, "stop"))
        return 0;
    reader->out->action = BREAKPOINT_STOP;
    reader->out->all = reader_take(reader, "all");
    if (!reader_take(reader, "for"))
        return 0;
    reader->out->hold = reader_peek(reader);
    if (!duration_parse(reader->at, reader->out->hold.size, &reader->out->stop_ns))
        return reader_complain(reader, reader->at,
                               "how long belongs here: 500ms, 60s, 5m, 2h or 7d");
    if (reader->out->stop_ns == 0 || reader->out->stop_ns > PROTO_STOP_MAX_NS)
        return reader_complain(reader, reader->at,
                               "a thread is held for at least 1ms and at most 7d");
    reader->at += reader->out->hold.size;
    reader_skip_blanks(reader);
    return 0;
}

static int read_captures(struct reader *reader)
{
    struct breakpoint_text *out = reader->out;
    const char *open = reader->at;

    if (reader_at_end(reader) || *open != '{')
        return 0;
    do {
        reader->at++;
        reader_skip_blanks(reader);
        if (out->ncaptures == PROTO_CAPTURES_MAX)
            return reader_complain(reader, reader->at, "at most 32 expressions stand in one {}");
        int r = reader_expression(reader, ENDS_CAPTURE, &out->captures[out->ncaptures++]);
        if (r < 0)
            return r;
    } while (!reader_at_end(reader) && *reader->at == ',');
    if (reader_at_end(reader))
        return reader_complain(reader, open, "this bracket isn't closed");
    if (*reader->at != '}')
        return reader_complain(reader, reader->at, "another bracket is open here");
    reader->at++;
    reader_skip_blanks(reader);
    return 0;
}

/* `WORD NUMBER`, or nothing. */
static int read_number(struct reader *reader, const char *word, uint64_t *out, const char *what)
{
    if (!reader_take(reader, word))
        return 0;
    if (!parse_number(reader_peek(reader), COUNT_MAX, out) || *out == 0)
        return reader_complain(reader, reader->at, what);
    reader->at += reader_peek(reader).size;
    reader_skip_blanks(reader);
    return 0;
}

static int read_conditions(struct reader *reader)
{
    int r = 0;

    if (reader_take(reader, "if"))
        r = reader_expression(reader, ENDS_COUNT, &reader->out->condition);
    if (r == 0)
        r = read_number(reader, "after", &reader->out->after,
                        "how often it is passed before belongs here, at least 1");
    if (r == 0)
        r = read_number(reader, "every", &reader->out->every,
                        "each how many-th time it is to hit belongs here, at least 1");
    if (r == 0)
        r = read_number(reader, "x", &reader->out->count,
                        "how often it is to hit belongs here, at least 1");
    return r;
}

static int check_end(struct reader *reader)
{
    return reader_at_end(reader) ? 0
                                 : reader_complain(reader, reader->at,
                                                   "only {EXPR, ...}, if EXPR, after N, every N "
                                                   "and x COUNT follow, in this order");
}

/* Behind the minus: an id, or a location. */
static int read_removal(struct reader *reader)
{
    struct breakpoint_text *out = reader->out;
    struct words token = reader_peek(reader);
    uint64_t id;

    out->remove = true;
    if (!parse_number(token, ID_MAX, &id))
        return reader_location(reader);
    if (id == 0)
        return reader_complain(reader, token.text, "an id is a number from 1 to 999999999");
    out->id = (uint32_t)id;
    reader->at += token.size;
    return 0;
}

bool breakpoint_text_next_id(struct words *ids, uint32_t *id)
{
    struct reader reader = {.at = ids->text, .end = ids->text + ids->size};
    uint64_t number;

    if (!ids->size || !parse_number(reader_peek(&reader), ID_MAX, &number) || !number)
        return false;
    reader.at += reader_peek(&reader).size;
    reader_skip_blanks(&reader);
    *ids = (struct words){reader.at, (size_t)(reader.end - reader.at)};
    *id = (uint32_t)number;
    return true;
}

/* Behind `disable` or `enable`. */
static int read_ids(struct reader *reader)
{
    const char *begin = reader->at, *end = begin;
    uint64_t id;

    while (!reader_at_end(reader)) {
        struct words token = reader_peek(reader);
        if (!parse_number(token, ID_MAX, &id) || !id)
            return reader_complain(reader, reader->at, "an id is a number from 1 to 999999999");
        reader->at = end = token.text + token.size;
        reader_skip_blanks(reader);
    }
    reader->out->ids = (struct words){begin, (size_t)(end - begin)};
    return end > begin ? 0
                       : reader_complain(reader, reader->at,
                                         "the ids of breakpoints belong here: disable 3 4");
}

/* `here`. A FILE of that name has a colon behind it. */
static void read_here(struct reader *reader)
{
    reader->out->here = reader->out->here || reader_take(reader, "here");
}

static int read_setting(struct reader *reader)
{
    int r = read_id(reader);
    read_here(reader);
    reader->out->disabled = reader_take(reader, "disabled");
    if (r == 0)
        r = read_on(reader);
    if (r == 0)
        r = read_action(reader);
    if (r == 0)
        r = reader_location(reader);
    reader_skip_blanks(reader);
    if (r == 0)
        r = read_captures(reader);
    if (r == 0)
        r = read_conditions(reader);
    if (reader->out->kind == BREAKPOINT_NAN && !reader->out->count)
        reader->out->count = 1; /* what isn't finite makes all that follows so */
    return r;
}

int breakpoint_text_read(const char *line, size_t size, struct breakpoint_text *out,
                         struct complaint *why)
{
    struct reader reader = {line, line + size, out, why};

    *out = (struct breakpoint_text){0};
    int r = check_bytes(&reader);
    reader_skip_blanks(&reader);
    if (r < 0 || reader_at_end(&reader))
        return r;
    read_here(&reader);
    r = read_on(&reader);
    if (r < 0)
        return r;
    if (reader_at_end(&reader))
        return reader_complain(&reader, reader.at, "a breakpoint belongs here");
    if (*reader.at == '-') {
        reader.at++;
        reader_skip_blanks(&reader);
        r = read_removal(&reader);
        reader_skip_blanks(&reader);
        if (r == 0 && !reader_at_end(&reader))
            r = reader_complain(&reader, reader.at, "only -ID or -LOCATION: nothing follows that");
    } else if (reader_take(&reader, "disable")) {
        out->disabled = true;
        r = read_ids(&reader);
    } else if (reader_take(&reader, "enable")) {
        r = read_ids(&reader);
    } else {
        r = read_setting(&reader);
        if (r == 0)
            r = check_end(&reader);
    }
    if (r == 0 && out->here && (out->remove || out->ids.size))
        r = reader_complain(&reader, line,
                            "`here` belongs to what is set, not to what is taken out or switched");
    return r < 0 ? r : 1;
}
