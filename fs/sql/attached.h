/* The tables of an SQLite file, in a schema of their own beside the provider's: history.samples.
 *
 * Each is a virtual table over a connection to the file that only reads, and that statements can't
 * name: they get those rows alone whose columns uid and gid are theirs. What bounds a column, and
 * the order that is wanted, is handed on to that connection, so that the file's indexes serve. */
#pragma once

#include "fs/base/text.h"
#include "fs/sql/stop.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <sys/types.h>

/* Which file, and for whom. */
struct attached_file {
    const char *schema; /* its name in statements */
    const char *path;   /* NULL: there is none */
    bool all;           /* all rows; else those of this user and group, who aren't root */
    uid_t uid;
    gid_t gid;
};

struct attached;

/* Adds the schema to a connection, which may attach one and create tables now. stop must outlive
 * it. -EIO: the file can't be read, and why says more; -ENOMEM. *out is to be closed after db,
 * whether or not this failed: what has been added refers to it. */
int attached_open(sqlite3 *db, const struct attached_file *file, const struct stop *stop,
                  struct text *why, struct attached **out);
void attached_close(struct attached *attached); /* NULL is fine */
