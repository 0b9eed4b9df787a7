/* What an injection calls in the target's own C library, and where a thread may be borrowed in it.
 * Read from the target's memory: no file, no symbol of ours. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/native/modules.h"

#define LIBC_ENTRIES_MAX 512

/* How a function of libc is left to be: which is what makes it safe to be in. */
enum libc_entry_kind {
    ENTRY_ANYWHERE, /* holds nothing that starting a thread needs, wherever it stands */
    ENTRY_WAITS,    /* the same, and waits for what isn't another thread's to do */
    ENTRY_ASLEEP,   /* only while it waits in futex(2) */
    ENTRY_BASE,     /* what called the program's main(): nothing but that */
};

struct libc_entry {
    uint64_t addr; /* of the function */
    enum libc_entry_kind kind;
};

struct libc_symbols {
    uint64_t base; /* of libc's image; 0: not found yet */
    uint64_t errno_location, dlopen, dlclose, dlerror;
    uint64_t attr_init, attr_setdetachstate, attr_setstacksize, attr_destroy, pthread_create;
    struct libc_entry entries[LIBC_ENTRIES_MAX]; /* ascending */
    size_t nentries;
};

/* Whether a module is the C library or its loader, by name. */
bool libc_is_library(const struct module *module);
bool libc_is_loader(const struct module *module);

/* Finds them; what is found already and still mapped stays. -EOPNOTSUPP: another C library than
 * glibc 2.34 or later, or none (a static executable); why says it. -EAGAIN: it is
 * only being loaded. -ENOMEM. */
int libc_symbols_find(struct modules *modules, struct libc_symbols *out, struct text *why);

/* The entry that begins in [start, end), or NULL: that function is not one to be in. */
const struct libc_entry *libc_entry_find(const struct libc_symbols *symbols, uint64_t start,
                                         uint64_t end);
