/* Processes that run statements, each one text for one caller (statements.h): they have no rights,
 * no files, no other process that they could see, and nothing in their memory but that text and the
 * rows that they were given. Whatever a statement, or a text in a row, does to one, comes to one
 * wrong reply to that caller.
 *
 * One process, which never sees a text, makes them: to begin the program anew for each would take
 * longer than most statements do. */
#pragma once

#include <stdint.h>

#define SQL_PROCESS_NAME "probefs-sql" /* the argv[0] that makes the program that one */

/* What it says first, and whenever it was sent a descriptor: one end of the socket of a new
 * process, which is a child of the one that asked. */
struct sql_started {
    int32_t error; /* -errno */
    int32_t pid;
};

/* What it does. The exit status. */
int sql_process_main(void);
