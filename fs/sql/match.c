#include "fs/sql/match.h"

#include "fs/sql/stop.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PATTERN_MAX 1000  /* bytes, as SQLITE_MAX_LIKE_PATTERN_LENGTH */
#define STOP_EVERY 100000 /* bytes that were looked at */
#define NONE UINT32_MAX   /* no character */

struct characters {
    const char *at;
    size_t size;
};

/* False: NULL, or no memory. */
static bool characters_of(sqlite3_value *value, struct characters *out)
{
    out->at = (const char *)sqlite3_value_text(value);
    out->size = (size_t)sqlite3_value_bytes(value);
    return out->at;
}

/* What a function has looked at since it asked whether the statement is to end. */
struct work {
    const struct stop *stop;
    size_t done;
};

static bool is_to_end(struct work *work, size_t bytes)
{
    work->done += bytes;
    if (work->done < STOP_EVERY)
        return false;
    work->done = 0;
    return stop_reason(work->stop) < 0;
}

/* ---- LIKE, GLOB ---- */

struct wildcards {
    uint32_t any, one, set, escape; /* characters, or NONE */
    bool folded;                    /* a is A; as SQLite's, of ASCII alone */
};

static bool is_within_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Takes one character of UTF-8 off, or NONE at the end. */
static uint32_t take(struct characters *s)
{
    if (!s->size)
        return NONE;
    uint32_t c = (unsigned char)*s->at++;
    s->size--;
    if (c >= 0xc0) {
        c &= c < 0xe0 ? 0x1f : c < 0xf0 ? 0x0f : 0x07;
        for (; s->size && is_within_character(*s->at); s->at++, s->size--)
            c = c << 6 | ((unsigned char)*s->at & 0x3f);
    }
    return c;
}

static uint32_t fold(uint32_t c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; }

/* Takes the rest of "[^a-z]" off the pattern. */
static bool set_has(struct characters *pattern, uint32_t c)
{
    uint32_t before = NONE, p = take(pattern);
    bool inverted = p == '^', found = false;

    if (inverted)
        p = take(pattern);
    if (p == ']') { /* stands for itself there, and begins no range */
        found = c == ']';
        p = take(pattern);
    }
    for (; p != NONE && p != ']'; p = take(pattern)) {
        if (p == '-' && before != NONE && pattern->size && *pattern->at != ']') {
            p = take(pattern);
            found |= c >= before && c <= p;
            before = NONE;
        } else {
            found |= c == p;
            before = p;
        }
    }
    return p == ']' && found != inverted;
}

/* Takes one item off the pattern. */
static bool item_matches(struct characters *pattern, const struct wildcards *w, uint32_t c)
{
    uint32_t p = take(pattern);

    if (p == NONE)
        return false;
    if (p == w->escape)
        p = take(pattern);
    else if (p == w->one)
        return true;
    else if (p == w->set)
        return set_has(pattern, c);
    return p == c || (w->folded && fold(p) == fold(c));
}

/* 1, 0, or -1: the statement is to end. */
static int matches(struct characters pattern, struct characters text, const struct wildcards *w,
                   struct work *work)
{
    struct characters behind = {0}, from = {0}; /* the last `any`, and the text that it goes to */

    for (;;) {
        struct characters rest = pattern;
        uint32_t first = take(&rest);
        if (first == w->any && first != NONE) {
            pattern = behind = rest;
            from = text;
            continue;
        }
        if (!text.size)
            return !pattern.size;
        rest = pattern;
        if (item_matches(&rest, w, take(&text))) {
            if (is_to_end(work, pattern.size - rest.size))
                return -1;
            pattern = rest;
            continue;
        }
        if (is_to_end(work, pattern.size - rest.size + 1))
            return -1;
        if (!behind.at)
            return 0;
        take(&from);
        pattern = behind;
        text = from;
    }
}

static void match(sqlite3_context *context, sqlite3_value **argv, const struct wildcards *w)
{
    struct work work = {.stop = sqlite3_user_data(context)};
    struct characters pattern, text;

    if (!characters_of(argv[0], &pattern) || !characters_of(argv[1], &text))
        return; /* NULL */
    if (pattern.size > PATTERN_MAX) {
        sqlite3_result_error(context, "LIKE or GLOB pattern too complex", -1);
        return;
    }
    int found = matches(pattern, text, w, &work);
    if (found < 0)
        sqlite3_result_error_code(context, SQLITE_INTERRUPT);
    else
        sqlite3_result_int(context, found);
}

void like_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    struct wildcards w = {.any = '%', .one = '_', .set = NONE, .escape = NONE, .folded = true};
    struct characters escape;

    if (argc > 2) {
        if (!characters_of(argv[2], &escape))
            return; /* NULL */
        w.escape = take(&escape);
        if (w.escape == NONE || escape.size) {
            sqlite3_result_error(context, "ESCAPE expression must be a single character", -1);
            return;
        }
        w.any = w.escape == w.any ? NONE : w.any;
    }
    match(context, argv, &w);
}

void glob_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    static const struct wildcards w = {.any = '*', .one = '?', .set = '[', .escape = NONE};

    match(context, argv, &w);
}

/* ---- trim ---- */

/* Bytes of the first, or last, character. */
static size_t edge(const struct characters *s, bool last)
{
    size_t n = 1;

    while (n < s->size && is_within_character(last ? s->at[s->size - n] : s->at[n]))
        n++;
    return n;
}

/* Takes characters off one end. False: the statement is to end. */
static bool trim_end(struct characters *s, const struct characters *characters, bool last,
                     struct work *work)
{
    while (s->size) {
        size_t n = edge(s, last);
        const char *c = last ? s->at + s->size - n : s->at;
        if (is_to_end(work, characters->size))
            return false;
        if (!memmem(characters->at, characters->size, c, n))
            break;
        s->size -= n;
        s->at += last ? 0 : n;
    }
    return true;
}

static void trim(sqlite3_context *context, sqlite3_value **argv, bool first, bool last)
{
    struct work work = {.stop = sqlite3_user_data(context)};
    struct characters s, characters;

    if (!characters_of(argv[0], &s) || !characters_of(argv[1], &characters))
        return; /* NULL */
    if ((first && !trim_end(&s, &characters, false, &work)) ||
        (last && !trim_end(&s, &characters, true, &work)))
        sqlite3_result_error_code(context, SQLITE_INTERRUPT);
    else
        sqlite3_result_text(context, s.at, (int)s.size, SQLITE_TRANSIENT);
}

void ltrim_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    trim(context, argv, true, false);
}

void rtrim_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    trim(context, argv, false, true);
}

void trim_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    trim(context, argv, true, true);
}
