#include "fs/breakpoint/location.h"

#include "fs/base/python_text.h"

#define LOCATIONS                                                                              \
 "a location is FILE:LINE, [MODULE.]FUNC(), return [MODULE.]FUNC(), raise [TYPE] [in|leaving " \
 "PATH|own], "                                                                                 \
 "watch EXPR [in TID[/DEPTH]], watch 0xADDR:LEN, breakpoint() or nan [MODEL]"

/* Names joined by dots, of which some may be <locals>, <lambda> and the like. */
static bool is_dotted(struct words name)
{
    bool begins = true;
    char before = 0;

    for (size_t i = 0; i < name.size; before = name.text[i++]) {
        char c = name.text[i];
        if (c == '.'   ? begins
            : c == '<' ? !begins
            : c == '>' ? begins || before == '<'
                       : !python_in_word(c))
            return false;
        if (begins && is_digit(c))
            return false;
        begins = c == '.';
    }
    return name.size > 0 && !begins;
}

static int read_function(struct reader *reader, struct words token, enum breakpoint_kind kind)
{
    struct words name = {token.text, token.size - 2};

    if (token.size < 2 || memcmp(token.text + name.size, "()", 2))
        return reader_complain(reader, token.text, "a function is written FUNC() or MODULE.FUNC()");
    if (!is_dotted(name))
        return reader_complain(reader, token.text,
                               "a function's name is NAME, CLASS.NAME or MODULE.NAME");
    reader->at = token.text + token.size;
    reader->out->kind = kind;
    reader->out->where = name;
    return 0;
}

static int read_line_number(struct reader *reader, struct words file, const char *at)
{
    struct words number = {at, 0};
    uint64_t line;

    while (at + number.size < reader->end && is_digit(at[number.size]))
        number.size++;
    reader->at = at + number.size;
    if (!number.size || reader_peek(reader).size)
        return reader_complain(reader, at, "the number of a line belongs here");
    if (!parse_number(number, INT32_MAX, &line) || line == 0)
        return reader_complain(reader, at, "no file has that line: they begin with 1");
    reader->out->kind = BREAKPOINT_LINE;
    reader->out->where = file;
    reader->out->line = (uint32_t)line;
    return 0;
}

static int read_quoted(struct reader *reader)
{
    const char *begin = reader->at + 1;
    const char *end = memchr(begin, *reader->at, (size_t)(reader->end - begin));

    if (!end)
        return reader_complain(reader, reader->at, "this quote isn't closed");
    if (end == begin)
        return reader_complain(reader, begin, "the name of a file belongs here");
    if (memchr(begin, '\t', (size_t)(end - begin)))
        return reader_complain(reader, reader->at,
                               "no tab may stand here: name the file by what is behind it");
    if (end + 1 == reader->end || end[1] != ':')
        return reader_complain(reader, end + 1, ":LINE belongs here");
    return read_line_number(reader, (struct words){begin, (size_t)(end - begin)}, end + 2);
}

/* `in PATH`, `leaving own` or the like, or nothing. */
static int read_within(struct reader *reader)
{
    reader_skip_blanks(reader);
    reader->out->leaving = reader_take(reader, "leaving");
    if (!reader->out->leaving && !reader_take(reader, "in"))
        return 0;
    reader->out->within = reader_peek(reader);
    if (!reader->out->within.size)
        return reader_complain(reader, reader->at, "a file, a directory, or own belongs here");
    reader->at += reader->out->within.size;
    return 0;
}

/* Whether a word of a count stands there, and no class of that name. */
static bool is_count(const struct reader *reader)
{
    static const char *const words[] = {"after", "every", "x"};
    uint64_t count;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct reader behind = *reader;
        if (reader_take(&behind, words[i]))
            return parse_number(reader_peek(&behind), UINT64_MAX / 16, &count);
    }
    return false;
}

static int read_raise(struct reader *reader)
{
    struct words type = reader_peek(reader);

    reader->out->kind = BREAKPOINT_RAISE;
    if (!type.size || is_word(type, "if") || is_count(reader))
        return 0;
    if (!is_word(type, "in") && !is_word(type, "leaving")) {
        if (!is_dotted(type))
            return reader_complain(reader, type.text,
                                   "a type's name belongs here, or nothing for all");
        reader->out->where = type;
        reader->at += type.size;
    }
    return read_within(reader);
}

/* -1: it is none. */
static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int read_hex(struct reader *reader, const char **p, uint64_t *out)
{
    const char *begin = *p;
    uint64_t value = 0;

    for (; *p < reader->end; ++*p) {
        char c = **p;
        int digit = hex_digit(c);
        if (digit < 0)
            break;
        if (value >> 60)
            return reader_complain(reader, begin, "there is no such address");
        value = value << 4 | (unsigned)digit;
    }
    *out = value;
    return *p > begin
               ? 0
               : reader_complain(reader, begin, "an address in hexadecimal digits belongs here");
}

static int read_address(struct reader *reader)
{
    struct breakpoint_text *out = reader->out;
    const char *begin = reader->at, *p = begin + 2;
    uint64_t length;

    int r = read_hex(reader, &p, &out->address);
    if (r < 0)
        return r;
    if (p == reader->end || *p != ':')
        return reader_complain(reader, p, "write 0xADDR:LEN, the length in bytes");
    reader->at = ++p;
    if (!parse_number(reader_peek(reader), 8, &length) || !length || length & (length - 1))
        return reader_complain(reader, p, "what can be watched has 1, 2, 4 or 8 bytes");
    if (out->address % length)
        return reader_complain(reader, begin, "the address has to be a multiple of the length");
    reader->at += reader_peek(reader).size;
    out->kind = BREAKPOINT_WATCH_ADDRESS;
    out->length = (uint32_t)length;
    return 0;
}

/* A number, and the blanks behind it; no: what is wrong if it is too large, or none. */
static int read_number(struct reader *reader, uint64_t most, const char *no, uint64_t *out)
{
    struct words number = {reader->at, 0};

    while (number.text + number.size < reader->end && python_in_word(number.text[number.size]))
        number.size++;
    reader->at += number.size;
    reader_skip_blanks(reader);
    return parse_number(number, most, out) ? 0 : reader_complain(reader, number.text, no);
}

/* `in TID` or `in TID/DEPTH`, or nothing. */
static int read_frame(struct reader *reader)
{
    static const char no_thread[] = "no thread has that number";
    uint64_t tid, depth = 0;

    reader_skip_blanks(reader);
    if (!reader_take(reader, "in"))
        return 0;
    const char *at = reader->at;
    int r = read_number(reader, INT32_MAX, no_thread, &tid);
    if (r == 0 && !tid)
        r = reader_complain(reader, at, no_thread);
    if (r == 0 && reader->at < reader->end && *reader->at == '/') {
        reader->at++;
        reader_skip_blanks(reader);
        r = read_number(reader, UINT32_MAX, "no thread has so many frames", &depth);
    }
    if (r < 0)
        return r;
    reader->out->tid = (uint32_t)tid;
    reader->out->depth = (uint32_t)depth;
    return 0;
}

static int read_watch(struct reader *reader)
{
    const char *p = reader->at;
    int r;

    reader->out->kind = BREAKPOINT_WATCH;
    if (reader->end - p >= 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        r = read_address(reader);
    else
        r = reader_expression(reader, ENDS_WATCH | ENDS_COUNT | ENDS_FRAME, &reader->out->where);
    if (r == 0 && reader->out->kind == BREAKPOINT_WATCH)
        r = read_frame(reader);
    reader_skip_blanks(reader);
    struct words route = reader_peek(reader);
    if (r < 0 || route.size < 3 || memcmp(route.text, "hw=", 3))
        return r;
    if (!is_word(route, "hw=perf") && !is_word(route, "hw=ptrace"))
        return reader_complain(reader, route.text, "write hw=perf or hw=ptrace, or neither");
    reader->out->route = is_word(route, "hw=perf") ? ROUTE_PERF : ROUTE_PTRACE;
    reader->at += route.size;
    return 0;
}

/* An expression for a model, or nothing for all there are. */
static int read_nan(struct reader *reader)
{
    reader->out->kind = BREAKPOINT_NAN;
    if (reader_at_end(reader) || *reader->at == '{' || is_word(reader_peek(reader), "if") ||
        is_count(reader))
        return 0;
    return reader_expression(reader, ENDS_WATCH | ENDS_COUNT, &reader->out->where);
}

int reader_location(struct reader *reader)
{
    if (reader_at_end(reader))
        return reader_complain(reader, reader->at, LOCATIONS);
    if (reader_take(reader, "raise"))
        return read_raise(reader);
    if (reader_take(reader, "watch"))
        return read_watch(reader);
    if (reader_take(reader, "nan"))
        return read_nan(reader);
    if (reader_take(reader, "return"))
        return read_function(reader, reader_peek(reader), BREAKPOINT_RETURN);
    if (*reader->at == '"' || *reader->at == '\'')
        return read_quoted(reader);

    struct words token = reader_peek(reader);
    if (is_word(token, "breakpoint()")) {
        reader->at += token.size;
        reader->out->kind = BREAKPOINT_HOOK;
        return 0;
    }
    if (token.size >= 2 && !memcmp(token.text + token.size - 2, "()", 2))
        return read_function(reader, token, BREAKPOINT_FUNCTION);
    const char *colon = memrchr(token.text, ':', token.size);
    if (!colon || colon == token.text)
        return reader_complain(reader, token.text,
                               is_dotted(token)
                                   ? "a function is written with () behind it: " LOCATIONS
                                   : LOCATIONS);
    return read_line_number(reader, (struct words){token.text, (size_t)(colon - token.text)},
                            colon + 1);
}
