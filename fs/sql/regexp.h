/* TEXT REGEXP PATTERN, by PCRE2: true where any part of the text matches.
 *
 * A pattern is anybody's who may look, and some take time exponential in the text. So PCRE2 counts
 * its steps and its memory and gives up over a limit, which is an error of the statement, and it
 * asks now and then whether the statement is to end. It compiles nothing to machine code. */
#pragma once

#include <sqlite3.h>

/* regexp(PATTERN, TEXT), for sqlite3_create_function(); its user data is a struct stop. NULL if
 * either is NULL. A constant pattern is compiled once for a statement. Bytes of the text that are
 * no UTF-8 match nothing. */
void regexp_function(sqlite3_context *context, int argc, sqlite3_value **argv);
