#include "fs/sampler/request.h"

#include "fs/base/duration.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Rates from here on that are multiples of ten beat with what programs do at such rates. */
#define ROUND_FROM 50

struct word {
    const char *text;
    size_t size;
};

struct reading {
    const char *at, *end;
    struct word word; /* the last one read */
    struct profile_request *out;
    bool has_rate;
    const char **wrong;
    struct text *why;
};

static bool next(struct reading *reading)
{
    const char *at = reading->at;

    while (at < reading->end && isspace((unsigned char)*at))
        at++;
    reading->word.text = at;
    while (at < reading->end && !isspace((unsigned char)*at))
        at++;
    reading->word.size = (size_t)(at - reading->word.text);
    reading->at = at;
    return reading->word.size > 0;
}

static bool is(const struct reading *reading, const char *text)
{
    return reading->word.size == strlen(text) &&
           !memcmp(reading->word.text, text, reading->word.size);
}

static int complain(struct reading *reading, const char *what)
{
    text_puts(reading->why, what);
    *reading->wrong = reading->word.text;
    return -EINVAL;
}

/* Digits at the beginning of the word; how many. A number that is too large becomes UINT32_MAX. */
static size_t number(const struct word *word, unsigned *out)
{
    uint64_t value = 0;
    size_t n = 0;

    for (; n < word->size && isdigit((unsigned char)word->text[n]); n++)
        if (value < UINT32_MAX)
            value = value * 10 + (uint64_t)(word->text[n] - '0');
    *out = value < UINT32_MAX ? (unsigned)value : UINT32_MAX;
    return n;
}

static bool is_hz(const char *text, size_t size)
{
    return size == 2 && tolower((unsigned char)text[0]) == 'h' &&
           tolower((unsigned char)text[1]) == 'z';
}

/* "97hz", or "97 hz". */
static int read_rate(struct reading *reading)
{
    struct word digits = reading->word;
    unsigned hz;
    size_t n = number(&digits, &hz);

    if (n == digits.size && (!next(reading) || !is_hz(reading->word.text, reading->word.size)))
        return complain(reading, "a rate is written as 97hz");
    if (n < digits.size && !is_hz(digits.text + n, digits.size - n))
        return complain(reading, "a rate is written as 97hz, a duration as for 30s");
    reading->word = digits;
    if (reading->has_rate)
        return complain(reading, "there is a rate already");
    if (hz < SAMPLER_HZ_MIN || hz > SAMPLER_HZ_MAX)
        return complain(reading, "a rate is 1hz to 10000hz");
    reading->has_rate = true;
    reading->out->asked = hz;
    reading->out->options.hz = hz >= ROUND_FROM && hz % 10 == 0 ? hz - 3 : hz;
    return 0;
}

static int read_duration(struct reading *reading)
{
    if (!next(reading) ||
        !duration_parse(reading->word.text, reading->word.size, &reading->out->duration))
        return complain(reading, "write how long as 500ms, 30s, 5m or 2h");
    if (reading->out->duration < PROFILE_FOR_MIN_NS || reading->out->duration > PROFILE_FOR_MAX_NS)
        return complain(reading, "a profile lasts 10ms to 30d; without `for` it goes on");
    return 0;
}

static int read_tid(struct reading *reading)
{
    unsigned tid;

    if (!next(reading) || number(&reading->word, &tid) != reading->word.size || !tid ||
        tid > INT32_MAX)
        return complain(reading, "a thread is the number that threads/ has");
    reading->out->options.tid = (pid_t)tid;
    return 0;
}

static int read_mark(struct reading *reading)
{
    uint64_t ns;

    if (!next(reading))
        return complain(reading, "a mark has a name: profile mark NAME");
    const struct word *word = &reading->word;
    if (word->size > STORE_MARK_NAME_MAX)
        return complain(reading, "a mark's name has 63 bytes at most");
    for (size_t i = 0; i < word->size; i++)
        if (word->text[i] == '/' || (unsigned char)word->text[i] < ' ' || word->text[i] == 127)
            return complain(reading, "a mark's name is that of a directory: no / in it");
    if (word->text[0] == '.' || memmem(word->text, word->size, "..", 2))
        return complain(reading, "a mark's name begins with no dot, and has no two of them");
    if (duration_parse(word->text, word->size, &ns))
        return complain(reading, "that is a duration: last/ has those");
    memcpy(reading->out->mark, word->text, word->size);
    return 0;
}

/* The verbs that stand alone. 1: it is none. */
static int read_verb(struct reading *reading)
{
    struct profile_request *out = reading->out;
    int error = 0;

    if (is(reading, "status"))
        out->verb = PROFILE_STATUS;
    else if (is(reading, "clear"))
        out->verb = PROFILE_CLEAR;
    else if (is(reading, "mark"))
        out->verb = PROFILE_MARK;
    else
        return 1;
    if (out->verb == PROFILE_MARK)
        error = read_mark(reading);
    if (!error && next(reading))
        error = complain(reading, "nothing follows that");
    return error;
}

static int read_word(struct reading *reading)
{
    struct sampler_options *options = &reading->out->options;
    enum profile_mode mode = profile_mode_of(reading->word.text, reading->word.size);

    if (is(reading, "off-cpu"))
        mode = MODE_OFF;
    if (mode < MODE_MODES) {
        if (!options->modes)
            options->shown = mode;
        options->modes |= SAMPLER_MODE(mode);
    } else if (isdigit((unsigned char)reading->word.text[0])) {
        return read_rate(reading);
    } else if (is(reading, "for")) {
        return read_duration(reading);
    } else if (is(reading, "tid")) {
        return read_tid(reading);
    } else if (is(reading, "native") || is(reading, "python")) {
        options->native = is(reading, "native");
    } else if (is(reading, "children")) {
        options->children = true;
    } else if (is(reading, "inside")) {
        options->inside = true;
    } else {
        return complain(reading,
                        "write it as: profile [MODE...] [97hz] [for 30s] [native] "
                        "[children] [inside] [tid N], or profile off|clear|mark NAME|status; MODE "
                        "is cpu, gil, nogil, off, wall, faults, alloc or heap");
    }
    return 0;
}

int profile_request_read(const char *text, size_t size, struct profile_request *out,
                         const char **at, struct text *why)
{
    struct profile_request request = {.options = {.hz = SAMPLER_HZ_USUAL},
                                      .asked = SAMPLER_HZ_USUAL};
    struct reading reading = {
        .at = text, .end = text + size, .out = &request, .wrong = at, .why = why};
    bool off = false;
    size_t words = 0;

    for (; next(&reading); words++) {
        int error = words ? 1 : read_verb(&reading);
        if (error <= 0) {
            if (!error)
                *out = request;
            return error;
        }
        off = is(&reading, "off");
        error = read_word(&reading);
        if (error)
            return error;
    }
    if (!request.options.modes)
        request.options.modes = SAMPLER_MODE(request.options.shown = MODE_CPU);
    request.verb = !words ? PROFILE_STATUS : words == 1 && off ? PROFILE_STOP : PROFILE_START;
    *out = request;
    return 0;
}
