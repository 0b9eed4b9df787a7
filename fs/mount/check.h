/* probefs --check: what this machine lets this user do, and what to change where it refuses. */
#pragma once

#include "fs/base/text.h"

/* The exit status of --check. */
enum check_result {
    CHECK_ALL = 0,
    CHECK_NOTHING = 1,   /* the mount can't work, or nothing could be read */
    CHECK_READS_ONLY = 3 /* all that is written fails; 2 is a wrong command line */
};

/* Tries each thing and writes one `Name: yes|no, WORDS` a line. -errno: it couldn't be tried. */
int check_run(struct text *out, enum check_result *result);
