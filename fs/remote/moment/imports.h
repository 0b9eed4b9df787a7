/* The modules of a process: what sys.modules of its main interpreter has, and what they bind.
 *
 * Each module is read as it was at one instant, one after the other: twice, and if that differs in
 * a moment (moment.h), which ends after a few milliseconds, for a thread may stand still in it. */
#pragma once

#include "fs/remote/moment/target.h"

#define IMPORTS_MAX 65536            /* entries of sys.modules that are looked at */
#define IMPORT_NAME_MAX 1024         /* code points of a name; of a longer one these are kept */
#define IMPORTS_KEPT_NS 30000000000u /* how long one that has gone is found after the last look */

struct import {
    char *name;           /* its key in sys.modules, escaped; belongs to the list */
    uint64_t key, object; /* that str; what it stands for */
    size_t index;         /* among the entries of sys.modules, when it was listed */
    uint64_t used_ns;     /* CLOCK_MONOTONIC, when it was listed or found last */
};

struct import_list {
    struct import *items;
    size_t n, alloc;
    size_t bytes;     /* that the names take */
    uint64_t interp;  /* PyInterpreterState, when they were listed; 0: none */
    uint64_t used_ns; /* CLOCK_MONOTONIC, when any of them was listed or found last */
};

void import_list_deinit(struct import_list *list);

/* Lists all that are there now, ascending by name, each name once; keys that are no str are left
 * out. An interpreter that begins or ends has none. -EOPNOTSUPP; -ESRCH, -EPERM, -ENOMEM,
 * -ETIMEDOUT. The caller owns the list. */
int imports_list(struct target *target, struct import_list *out);

/* Whether a module of this name is the one that is wanted. */
typedef bool import_is(const char *name, const char *wanted);

/* Whether there is a module that is wanted, or was when they were listed last, and since then
 * somebody looked for one every IMPORTS_KEPT_NS: who goes through a listing finds what it names. 0,
 * and it alone is in *out; -ENOENT; errors of imports_list(). */
int imports_find(struct target *target, import_is *is, const char *wanted, struct import_list *out);

/* Whether there was a module that is wanted when they were listed last; nothing is read. */
bool imports_knew(struct target *target, import_is *is, const char *wanted);

/* What is done with modules that are read. */
struct import_reader {
    /* Takes down what is wanted of one, within a moment. 0; below 0: that ends it. */
    int (*read)(void *arg, struct view *view, const struct import *module);
    /* What was taken down since the last call of either is good; or it is void, and comes again. 0;
     * below 0: that ends it; above 0: it is enough. NULL: nothing has to be done. The module
     * that came with it is still there. */
    int (*keep)(void *arg);
    void (*again)(void *arg);
};

/* Reads all modules. 0 or -errno, as imports_list(). */
int imports_read(struct target *target, const struct import_reader *reader, void *arg);
/* Reads the one that is wanted, and lists them only where it isn't, or was not, there. How many
 * were read: 1, or 0 if it has gone since it was found; errors of imports_find(). */
int imports_read_one(struct target *target, import_is *is, const char *wanted,
                     const struct import_reader *reader, void *arg);

/* Gives up what is kept of the last listing. The caller holds target->lock. */
void imports_forget(struct target *target);
/* Bytes of that. */
size_t imports_size(const struct target *target);
