/* The words of a line, one after the other: what its reader (line.c) and that of its location
 * (location.c) go by. */
#pragma once

#include "fs/breakpoint/line.h"

#include <string.h>

struct reader {
    const char *at, *end;
    struct breakpoint_text *out;
    struct complaint *why;
};

/* Says what is wrong; -EINVAL. */
int reader_complain(struct reader *reader, const char *at, const char *what);

static inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool is_word(struct words words, const char *word)
{
    return words.size == strlen(word) && !memcmp(words.text, word, words.size);
}

/* Adds words, tabs as blanks: where there are tabs they mean the same. */
void words_add(struct text *out, struct words words);

void reader_skip_blanks(struct reader *reader);
/* Whether only a comment follows. */
bool reader_at_end(const struct reader *reader);
/* What follows up to a blank, a brace or a comment. */
struct words reader_peek(const struct reader *reader);
/* Takes that, and the blanks behind it, if it is this word. */
bool reader_take(struct reader *reader, const char *word);
/* Digits only. False: they aren't, or mean more than `most`, which is at most 10^18. */
bool parse_number(struct words words, uint64_t most, uint64_t *out);

/* What ends an expression, besides the line. */
enum ending {
    ENDS_CAPTURE = 1, /* a comma, a bracket that closes */
    ENDS_WATCH = 2,   /* `{`, `if`, `hw=` */
    ENDS_COUNT = 4,   /* `after N`, `every N`, `x COUNT` */
    ENDS_FRAME = 8,   /* `in TID`, `in TID/DEPTH`, where one of those or nothing follows: of Python,
                         no number has anything in it */
};

/* Takes a Python expression; the reader is then at what ends it. */
int reader_expression(struct reader *reader, unsigned endings, struct words *out);
