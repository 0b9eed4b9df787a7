/* What was written to <pid>/breakpoints, as the text of a BREAKPOINTS. */
#pragma once

#include "fs/breakpoint/line.h"

struct breakpoint_request {
    struct text text; /* of struct proto_breakpoint, with a thread's number for its pthread_t */
    char *source;     /* what was read */
    struct breakpoint_line {
        const char *line;
        size_t size;
        size_t at;          /* where in the text it begins */
        bool sets;          /* and doesn't take out or switch */
        struct words ranks; /* of a job, that it is for; size 0: any process */
    } * lines;              /* those that say something, in their order; they point to the source */
    size_t n, alloc;
    size_t changes; /* that they bring: one each, or one for each id of `disable` and `enable` */
    bool sets;      /* one of them sets something */
    bool here;      /* one of them lives as long as the file that it was written to is open */
    bool has_ranks; /* one of them is for some ranks only */
    bool strict;    /* the first line of all is `-- strict`: in all processes, or it has failed */
};

/* Reads whole lines. -EINVAL: one is wrong, as *why says, with a caret; -EFBIG: there are too many;
 * -ENOMEM. To be released in any case. */
int breakpoint_request_read(const char *lines, size_t size, struct breakpoint_request *out,
                            struct text *why);
void breakpoint_request_deinit(struct breakpoint_request *request);

/* Whether a line is for that rank; -1: for a process that is none. */
bool breakpoint_line_is_for(const struct breakpoint_line *line, int64_t rank);
/* The lines of a request that are for a rank; they stay the request's own. -ENOMEM. To be released
 * in any case. */
int breakpoint_request_for(const struct breakpoint_request *request, int64_t rank,
                           struct breakpoint_request *out);

/* Shows the line that is to blame, with a caret: the one of that byte of the text. */
void breakpoint_request_blame(const struct breakpoint_request *request, uint64_t byte,
                              struct text *why);
