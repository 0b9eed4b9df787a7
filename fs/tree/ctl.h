/* The verbs of <pid>/ctl and threads/<tid>/ctl: one a line. */
#pragma once

#include "fs/tree/file.h"

#define CTL_WORDS_MAX 8 /* of a line */

/* A line of ctl: the verb, then its arguments. */
struct ctl_line {
    struct file_context *context;
    const char *text; /* without the newline */
    size_t size;
    struct ctl_word {
        const char *text;
        size_t size;
    } words[CTL_WORDS_MAX];
    size_t nwords;
    bool here; /* it is to live as long as the file is open */
    struct text *said;
};

bool ctl_word_is(const struct ctl_word *word, const char *text);
/* The number that a word is (number_parse()). */
bool ctl_word_number(const struct ctl_word *word, unsigned *out);
/* Says what is wrong with the line, and where; -EINVAL. */
int ctl_complain(struct ctl_line *line, const char *at, const char *what);

struct ctl_verb {
    const char *name;
    const char *usage;
    size_t least, most; /* words, with the verb itself */
    int (*run)(struct ctl_line *line);
    bool here; /* `here` may stand in front of it */
};

/* What a file of such verbs is told: file_run (fs/tree/file.h). */
int ctl_run_verbs(const struct ctl_verb *verbs, size_t n, struct file_context *context,
                  const struct input *input, struct text *said, struct outcome *outcome);

/* Verbs with a file of their own. 0 or -errno. */
int ctl_on_crash(struct ctl_line *line);
int ctl_heap(struct ctl_line *line);
int ctl_record(struct ctl_line *line);
int ctl_profile_torch(struct ctl_line *line);
int ctl_pause(struct ctl_line *line);
/* `for TIME` behind the verb, or nothing: *ns stays as it is. */
int ctl_pause_duration(struct ctl_line *line, uint64_t *ns);
/* Adds which threads are held, or how many; see format/held.h. -errno, with words. */
int ctl_add_held(struct file_context *context, bool many, struct text *out);
/* Whether all threads that run Python are held, but for the agent's own; also if the process, which
 * is read here, has ended. */
bool ctl_all_held(struct file_context *context);
/* Adds for how long those wait at most that torch.distributed lets wait for the process, which is
 * read here: "Timeouts: 60 s of group 1, 1800 s of groups 0, 2", the shortest first; nothing where
 * none is known. */
void ctl_add_timeouts(struct file_context *context, struct text *out);
int ctl_profile(struct ctl_line *line);
int ctl_continue(struct ctl_line *line);
