/* The files of page/, which the build puts into the program. */
#pragma once

struct page {
    const char *name; /* below page/: "views/stacks.js"; NULL: the end of the table */
    const char *data, *end;
};

extern const struct page pages[];
