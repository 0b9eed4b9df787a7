/* What <pid>/breakpoints and all/breakpoints share. */
#pragma once

#include "fs/breakpoint/request.h"
#include "fs/tree/file.h"

/* Carries out what was written; where context->clears, in place of the set. It may take the request
 * and leave a zero one. 0 or -errno, and the outcome, as file_run. */
typedef int breakpoints_carry(struct file_context *context, struct breakpoint_request *request,
                              struct text *said, struct outcome *outcome);

/* A file_run that reads the lines and has them carried out. */
int breakpoints_feed(struct file_context *context, const struct input *input,
                     breakpoints_carry *carry, struct text *said, struct outcome *outcome);
/* Carries a request out in the one process of context. */
int breakpoints_carry_out(struct file_context *context, const struct breakpoint_request *request,
                          struct text *said, struct outcome *outcome);

/* Adds the set of a process as lines; behind each stands `mark`, in the comment. target: to see
 * which threads it holds, NULL: none. -ENOMEM. */
int breakpoints_lines(struct recording *recording, struct target *target, const char *mark,
                      struct text *out);
/* Adds the last reply to these credentials, as comments, if something failed. */
void breakpoints_reply(struct file_context *context, struct text *out);
