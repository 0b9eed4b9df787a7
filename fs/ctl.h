/* The verbs of <pid>/ctl: one a line. */
#pragma once

#include "fs/file.h"

#define CTL_WORDS_MAX 8 /* of a line */

/* One line: the verb, then its arguments. */
struct ctl_line {
    struct file_context *context;
    const char *text;      /* without the newline */
    size_t size;
    struct ctl_word {
        const char *text;
        size_t size;
    } words[CTL_WORDS_MAX];
    size_t nwords;
    struct text *said;
};

bool ctl_word_is(const struct ctl_word *word, const char *text);
/* Says what is wrong with the line, and where; -EINVAL. */
int ctl_complain(struct ctl_line *line, const char *at, const char *what);

/* Verbs with a file of their own. 0 or -errno. */
int ctl_on_crash(struct ctl_line *line);
int ctl_record(struct ctl_line *line);
