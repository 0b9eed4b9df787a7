/* LIKE and GLOB, and trim() of given characters. SQLite's own may take the product of their
 * arguments' sizes, in one step of its machine; these ask whether the statement is to end. */
#pragma once

#include <sqlite3.h>

/* like(PATTERN, TEXT), like(PATTERN, TEXT, ESCAPE): user data is a struct stop. */
void like_function(sqlite3_context *context, int argc, sqlite3_value **argv);
/* glob(PATTERN, TEXT). */
void glob_function(sqlite3_context *context, int argc, sqlite3_value **argv);
/* trim(TEXT, CHARACTERS), of the beginning, of the end, or of both. */
void ltrim_function(sqlite3_context *context, int argc, sqlite3_value **argv);
void rtrim_function(sqlite3_context *context, int argc, sqlite3_value **argv);
void trim_function(sqlite3_context *context, int argc, sqlite3_value **argv);
