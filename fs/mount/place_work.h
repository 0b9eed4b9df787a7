/* What files and directories of a process need it to be read for: done where it can be left behind
 * (proc/may_hang.h), each with a context of its own. -ETIMEDOUT: the process hangs; -EINTR: so it
 * does, and the caller got a signal; else what the layout's functions return. */
#pragma once

#include "fs/mount/call.h"

/* Renders the file or link at a place into out, which the caller deinits; of a file in the name of
 * who. why says more on failure. */
int place_render(struct call *call, const struct place *place, struct credentials *who,
                 struct text *out, struct text *why);
/* Whether the directory at a place has the entry now (entry->is_there). -ENOENT: it hasn't. */
int place_has(struct call *call, const struct place *place, const struct entry *entry);
/* Lists a directory. The caller owns *out. */
int place_list(struct call *call, const struct place *place, struct listing **out);
/* Finds what the dynamic entry has by the name `value`, or `word` where names are words, in the
 * directory at a place. *out: the process that it belongs to, with a reference; may be NULL. */
int place_find(struct call *call, const struct place *place, const struct entry *entry,
               unsigned value, const char *word, struct process **out);
