/* The files that the code of a process comes from.
 *
 * They are what the modules of its main interpreter have for their __file__, what the code on its
 * stacks was compiled from, and what the module linecache keeps the text of: of code that lies in
 * no file (exec, -c, notebooks, archives) it may be the only one that has it. Extension modules and
 * compiled files aren't listed, and <string> and the like where linecache hasn't them. */
#pragma once

#include "fs/remote/moment/target.h"

#define SOURCES_MAX 16384              /* files */
#define SOURCE_PATH_MAX 255            /* bytes of a path; of longer ones none is listed */
#define SOURCE_KEPT_BYTES (512u << 10) /* of a text that linecache has; nothing is begun beyond */
#define SOURCES_KEPT_NS 30000000000u   /* how long one is found after it was listed, or found */

struct source_list {
    char **paths; /* as the process's file system knows them; not escaped */
    size_t n, alloc;
};

void source_list_deinit(struct source_list *list);

/* Lists all that are there now, ascending, each once. -EOPNOTSUPP; -ESRCH, -EPERM, -ENOMEM,
 * -ETIMEDOUT. The caller owns the list. */
int sources_list(struct target *target, struct source_list *out);

/* Finds the file whose path is the wanted one. It is looked for among those that were listed last,
 * if somebody has listed or found one in the last SOURCES_KEPT_NS, and else, or if it isn't there,
 * among those that are there now. -ENOENT; errors of sources_list(). */
typedef bool source_is(const char *path, const char *wanted);
int sources_find(struct target *target, source_is *is, const char *wanted,
                 char path[SOURCE_PATH_MAX + 1]);

/* Adds the text that linecache has of a file. Line ends and tabs are as they are, all else is
 * escaped (text_add_escaped()). -ENOENT: it has none; else as sources_list(). */
int sources_kept_text(struct target *target, const char *path, struct text *out);
