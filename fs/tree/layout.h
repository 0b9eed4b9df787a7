/* The tree, as one table. Everything else asks it: FUSE operations look names up in it, directories
 * are listed from it, `help` prints it. */
#pragma once

#include "fs/tree/file.h"
#include "fs/tree/names.h"

#include <sys/stat.h>

/* One line of the table. */
struct entry {
    const char *path; /* from the root; "" is the root; a part in <> stands for numbers, or words */
    mode_t mode;      /* with its type: directory, regular file or symbolic link */
    file_render *render;         /* a file's content, a link's target; NULL for a directory */
    const struct naming *naming; /* where the last part is dynamic */
    const char *about;           /* one line for `help`; NULL: it isn't in there */
    file_run *run;               /* of a command file: what a write does; else NULL */
    /* whether listings show it; NULL: always. Opening it by its name says why it can't be read */
    bool (*listed)(const struct file_context *context);
    bool looks; /* of a command file: writing only looks, so that who may look may write */
    /* of a command file: what is written takes the place of what was there if it is opened to be
     * truncated; if nothing is written, nothing is there any more */
    bool clears;
    bool streams; /* of a file: not rendered, a read waits for what happens (events/events.h) */
    bool live;    /* ... that is, for what is sampled */
    bool sized;   /* of a file: rendered when it is looked up, so that its size is
                     known before it is opened */
    bool (*is_there)(struct file_context *context); /* NULL: always */
};

extern const struct entry layout[];
extern const size_t layout_size;

#define LAYOUT_ROOT (&layout[0])

/* Whether it is below exited/: its process has ended. */
bool entry_exited(const struct entry *entry);
/* Whether it is a core file's. */
bool entry_core(const struct entry *entry);

/* Whether all that its file says, or all that names its children, is read from the process itself,
 * and nothing that the daemon keeps of it: whoever may read the process can tell. */
bool entry_passive(const struct entry *entry);
/* The same of its names alone: a file may be read with the rights of who asks. */
bool entry_names_passive(const struct entry *entry);

/* Whether what its file says is rows of tables, which whoever reads its process is asked for. */
bool entry_rows(const struct entry *entry);

/* Whether nothing is read of the process for its file, or for the names in it, but what who reads
 * that is asked for (process/examiner.h): the daemon keeps something of it, or the rest is the
 * agent's to do. */
bool entry_asks(const struct entry *entry);

/* The last part of an entry's path: its name, or "<pid>" and the like. */
const char *entry_name(const struct entry *entry);

/* The child after `after` (NULL: the first) of a directory, in the table's order; NULL: no more. */
const struct entry *layout_next(const struct entry *directory, const struct entry *after);
/* The child that may bear `name`: a fixed name, else a dynamic entry if name is a number (then in
 * *value) or where names are words; whether it exists its naming knows. NULL: there is none. */
const struct entry *layout_find(const struct entry *directory, const char *name, unsigned *value);
