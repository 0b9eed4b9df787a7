#include "fs/base/python_text.h"

#include <string.h>

bool python_in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static enum python_token wrong(struct python_scan *scan, const char *at, const char *why)
{
    scan->token = at;
    scan->wrong = why;
    return PYTHON_WRONG;
}

/* Reads a string to its end. In raw strings, too, a backslash takes the quote after it along. */
static enum python_token read_string(struct python_scan *scan)
{
    const char *p = scan->at, quote = *p;
    size_t quotes = scan->end - p >= 3 && p[1] == quote && p[2] == quote ? 3 : 1;

    for (p += quotes; p < scan->end; p++) {
        if (*p == '\t')
            return wrong(scan, p, "write \\t for a tab in a string");
        if (*p == '\\' && p + 1 < scan->end) {
            p++;
        } else if (*p == quote &&
                   (quotes == 1 || (scan->end - p >= 3 && p[1] == quote && p[2] == quote))) {
            scan->at = p + quotes;
            return PYTHON_STRING;
        }
    }
    return wrong(scan, scan->token, "this string isn't closed");
}

static enum python_token read_open(struct python_scan *scan)
{
    if (scan->open == PYTHON_BRACKETS_MAX)
        return wrong(scan, scan->at, "too many brackets in one another");
    scan->brackets[scan->open++] = scan->at++;
    return PYTHON_OPEN;
}

static enum python_token read_close(struct python_scan *scan)
{
    if (!scan->open) {
        scan->at++;
        return PYTHON_STRAY;
    }
    char open = *scan->brackets[scan->open - 1];
    if (*scan->at != (open == '(' ? ')' : open == '[' ? ']' : '}'))
        return wrong(scan, scan->at, "another bracket is open here");
    scan->open--;
    scan->at++;
    return PYTHON_CLOSE;
}

enum python_token python_next(struct python_scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t'))
        scan->at++;
    scan->token = scan->at;
    if (scan->at == scan->end || *scan->at == '#')
        return scan->open ? wrong(scan, scan->brackets[scan->open - 1], "this bracket isn't closed")
                          : PYTHON_END;
    if (*scan->at == '\'' || *scan->at == '"')
        return read_string(scan);
    if (strchr("([{", *scan->at))
        return read_open(scan);
    if (strchr(")]}", *scan->at))
        return read_close(scan);
    if (!python_in_word(*scan->at)) {
        scan->at++;
        return PYTHON_OTHER;
    }
    while (scan->at < scan->end && python_in_word(*scan->at))
        scan->at++;
    return PYTHON_WORD;
}

void python_back(struct python_scan *scan, enum python_token token)
{
    scan->at = scan->token;
    scan->open -= token == PYTHON_OPEN;
}

bool python_is(const struct python_scan *scan, const char *word)
{
    size_t size = (size_t)(scan->at - scan->token);
    return size == strlen(word) && !memcmp(scan->token, word, size);
}
