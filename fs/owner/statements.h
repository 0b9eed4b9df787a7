/* Who runs statements with -o contain: a process of its own for each text (sql_process.h), which
 * asks for rows, and is ended with it. The next one is made while one runs, and waits.
 *
 * One that crashes, or is stopped, or takes too long, costs whoever waits for it an error, and
 * nobody else anything. */
#pragma once

#include "fs/tree/query.h"

#define STATEMENTS_AFTER_NS 1000000000u /* it has so long to end by itself after its deadline */
#define STATEMENTS_TELL_NS 5000000000u  /* and to tell what came of it, once it has begun to */

struct statements;

/* -ENOMEM. */
int statements_new(struct statements **out);
/* Nobody may be asking any more; NULL is fine. */
void statements_free(struct statements *statements);
/* Whether it is a process that runs statements, or is to. */
bool statements_has(struct statements *statements, pid_t pid);
/* Runs them, for as long as there are statements. */
const struct statement_runner *statements_runner(struct statements *statements);
