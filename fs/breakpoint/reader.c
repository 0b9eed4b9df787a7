#include "fs/breakpoint/reader.h"

#include "fs/base/python_text.h"

#include <errno.h>

void words_add(struct text *out, struct words words)
{
    size_t from = out->size;

    text_add(out, words.text, words.size);
    for (size_t i = from; i < out->size; i++)
        if (out->data[i] == '\t')
            out->data[i] = ' ';
}

int reader_complain(struct reader *reader, const char *at, const char *what)
{
    *reader->why = (struct complaint){at, what};
    return -EINVAL;
}

void reader_skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && is_blank(*reader->at))
        reader->at++;
}

bool reader_at_end(const struct reader *reader)
{
    return reader->at == reader->end || *reader->at == '#';
}

struct words reader_peek(const struct reader *reader)
{
    const char *p = reader->at;

    while (p < reader->end && !is_blank(*p) && *p != '{' && *p != '#')
        p++;
    return (struct words){reader->at, (size_t)(p - reader->at)};
}

bool reader_take(struct reader *reader, const char *word)
{
    if (!is_word(reader_peek(reader), word))
        return false;
    reader->at += strlen(word);
    reader_skip_blanks(reader);
    return true;
}

bool parse_number(struct words words, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < words.size; i++) {
        if (!is_digit(words.text[i]) || value > most)
            return false;
        value = value * 10 + (uint64_t)(words.text[i] - '0');
    }
    *out = value;
    return words.size > 0 && value <= most;
}

/* ---- expressions ---- */

/* Whether the word before is one of `after N`, `every N`, or of `x COUNT` with nothing behind it.
 */
static bool ends_count(struct python_scan scan)
{
    bool is_count = python_is(&scan, "x");

    if (!is_count && !python_is(&scan, "after") && !python_is(&scan, "every"))
        return false;
    return python_next(&scan) == PYTHON_WORD && is_digit(*scan.token) &&
           (!is_count || python_next(&scan) == PYTHON_END);
}

static bool ends_watch(const struct python_scan *scan)
{
    return python_is(scan, "if") ||
           (python_is(scan, "hw") && scan->at < scan->end && *scan->at == '=');
}

static bool ends(const struct python_scan *scan, enum python_token token, unsigned endings);

static bool is_number(struct python_scan *scan)
{
    return python_next(scan) == PYTHON_WORD && is_digit(*scan->token);
}

static bool ends_frame(struct python_scan scan)
{
    struct python_scan behind;

    if (!python_is(&scan, "in") || !is_number(&scan))
        return false;
    behind = scan;
    if (python_next(&behind) == PYTHON_OTHER && *behind.token == '/') {
        if (!is_number(&behind))
            return false;
        scan = behind;
    }
    enum python_token token = python_next(&scan);
    return ends(&scan, token, ENDS_WATCH | ENDS_COUNT);
}

static bool ends(const struct python_scan *scan, enum python_token token, unsigned endings)
{
    if (token == PYTHON_END)
        return true;
    if (token == PYTHON_OPEN)
        return endings & ENDS_WATCH && scan->open == 1 && *scan->token == '{';
    if (scan->open)
        return false;
    if (endings & ENDS_CAPTURE)
        return token == PYTHON_STRAY || (token == PYTHON_OTHER && *scan->token == ',');
    return token == PYTHON_WORD && ((endings & ENDS_WATCH && ends_watch(scan)) ||
                                    (endings & ENDS_COUNT && ends_count(*scan)) ||
                                    (endings & ENDS_FRAME && ends_frame(*scan)));
}

int reader_expression(struct reader *reader, unsigned endings, struct words *out)
{
    struct python_scan scan = {.at = reader->at, .end = reader->end};
    enum python_token token;

    while (token = python_next(&scan), !ends(&scan, token, endings)) {
        if (token == PYTHON_WRONG)
            return reader_complain(reader, scan.token, scan.wrong);
        if (token == PYTHON_STRAY)
            return reader_complain(reader, scan.token, "no bracket is open that this could close");
    }
    python_back(&scan, token);
    const char *begin = reader->at, *end = scan.at;
    while (end > begin && is_blank(end[-1]))
        end--;
    reader->at = scan.at;
    *out = (struct words){begin, (size_t)(end - begin)};
    return end > begin ? 0 : reader_complain(reader, begin, "a Python expression belongs here");
}
