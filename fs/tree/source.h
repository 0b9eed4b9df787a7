/* The lines of source around a place in a program, as two files show them. */
#pragma once

#include "fs/remote/objects/linetable.h"
#include "fs/tree/file.h"

struct source_place {
    const char *func, *file; /* as shown */
    const char *path;        /* as the target's file system knows it; "": unreadable */
    int line;                /* -1: none */
    int first_line;          /* of the function; shown where there is no line; 0: not known */
    const struct position *position; /* what of the line is executed; NULL: not known */
    bool near;                       /* it is near that line (raw_frame.jit) */
};

/* Adds the place and its lines, or why there are none. */
void source_add(const struct file_context *context, const struct source_place *place,
                struct text *out);

/* Whether it is a name such as <string>, which no file has. */
bool source_is_pseudo(const char *path);
/* A path as a line that no filter of texts changes (owner/message.h), and back: at most cap - 1
 * bytes. -EIO: it is no such line, or more follows. */
void source_path_say(const char *path, struct text *out);
int source_path_read(const char *text, char *path, size_t cap);
/* Reads lines of a file of the process as who opened the file here may, first to last of them, at
 * most SOURCE_LINES_MAX; *n: how many there were. Errors as source_read(). */
int source_read_lines(const struct file_context *context, const char *path, int first, int last,
                      struct text *out, int *n);
/* Reads all of one so. -EFBIG: it has more than SOURCE_TEXT_BYTES. */
int source_read_whole(const struct file_context *context, const char *path, struct text *out);
/* Adds a line of a source file. Tabs stay, since they matter in Python; whatever else could drive a
 * terminal is escaped. */
void source_add_text(struct text *out, const char *line, size_t size);
