/* Regular expressions that take time linear in the text, whatever the pattern: it is run as a set of
 * places in it, one step for each character (Thompson's construction), so that nobody can make the
 * daemon spin with one.
 *
 *   .  [abc] [^a-z]  ( )  |  * + ? {m,n}  ^ $  \d \w \s \b and \D \W \S \B  \n \t \. ...
 *
 * (?i) at the start ignores the case of ASCII letters. A text matches where any part of it does. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define REGEXP_NODES_MAX 4096 /* of one pattern, after {m,n} is written out */

struct regexp;

/* -EINVAL: *why says what is wrong with it; static. -E2BIG: it is too large; -ENOMEM. */
int regexp_new(const char *pattern, size_t size, struct regexp **out, const char **why);
void regexp_free(struct regexp *regexp);

/* Whether a part of the text matches. stop, which may be NULL, is asked now and then; once it says
 * yes the answer is false. */
bool regexp_search(struct regexp *regexp, const char *text, size_t size,
                   bool (*stop)(void *arg), void *arg);
