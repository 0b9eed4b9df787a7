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
};

/* Adds the place and its lines, or why there are none. */
void source_add(const struct file_context *context, const struct source_place *place,
                struct text *out);
