/* Names of the tree that are found at run time: numbers of processes, threads, frames, ranks; and
 * words, the names of modules and jobs. */
#pragma once

#include "fs/tree/file.h"

#include <limits.h>

/* One of the names in a directory: a decimal number, or a word. */
struct number {
    unsigned value;
    char *word;              /* owned; NULL: it is a number */
    struct process *process; /* where the name is that of a process: a reference, else NULL */
};

struct numbers {
    struct number *items;
    size_t n, alloc;
};

/* -ENOMEM. Takes over the reference to process, also on failure. */
int numbers_add(struct numbers *numbers, unsigned value, struct process *process);
/* A word of at most NAME_MAX bytes, which is copied. -ENOMEM. Takes over the reference to process,
 * as above. */
int numbers_add_word(struct numbers *numbers, const char *word, struct process *process);
/* Puts them in the order of their words. */
void numbers_sort_words(struct numbers *numbers);
void numbers_deinit(struct numbers *numbers);

/* What the number in a dynamic name is; of a word it is none, but context->word, of a part of a
 * profile context->part. A worker's is
 * "3.0", the first of rank 3: both in one number (names_worker()). */
enum number_kind {
    NUMBER_PID,
    NUMBER_TID,
    NUMBER_DEPTH,
    NUMBER_RANK,
    NUMBER_WORKER,
    WORD_MODULE,
    WORD_JOB,
    WORD_PROFILE, /* which part of a profile */
    WORD_CORE,
};

static inline bool name_is_word(enum number_kind kind) { return kind >= WORD_MODULE; }

#define WORKERS_MAX 1000 /* of one rank that have a name */
/* False: the rank is too high for a number, or it has too many. */
bool names_worker(int64_t rank, unsigned worker, unsigned *value);

/* Reads a name as one of this kind of number, and writes it. */
bool name_parse(enum number_kind kind, const char *name, unsigned *value);
void name_format(enum number_kind kind, unsigned value, char name[16]);

/* How the names of one dynamic entry come about. context is that of the directory. */
struct naming {
    enum number_kind kind;
    /* All that exist now, ascending, each once. 0 or -errno. */
    int (*list)(struct file_context *context, struct numbers *out);
    /* Whether there is `value`, or context->word or part: 0 or -ENOENT. Where the name stands for a
     * process it is put into context, with a reference. */
    int (*find)(struct file_context *context, unsigned value);
};
