/* The names that one Python frame, or a module, binds, and what to. */
#pragma once

#include "fs/remote/objects/object.h"

#define LOCALS_MAX 4096   /* names of one frame */
#define CO_OPTIMIZED 0x1  /* of co_flags, Include/cpython/code.h: locals are not in a dict */
#define GLOBALS_MAX 65536 /* of one module */

struct local {
    uint64_t name;      /* a str object, or 0 ... */
    const char *text;   /* ... and this; else NULL */
    uint64_t reference; /* for value_add_stackref(); never 0 */
};

typedef int local_visit(void *arg, const struct local *local);

/* Visits what is bound in the frame at addr, which runs the code object at code: arguments, local
 * variables, cells and free variables (what is in them) in the order of the code object; in
 * modules and classes the names of their dict, without those that the import system sets.
 * Returns what visit returned first other than 0; else 0; -EFAULT: something was not readable;
 * -E2BIG: LOCALS_MAX. Sources: Objects/frameobject.c PyFrame_FastToLocalsWithError,
 * Include/internal/pycore_code.h. */
int locals_iterate(struct view *view, const struct offsets *offsets, uint64_t frame, uint64_t code,
                   local_visit *visit, void *arg);

/* Visits in the same way what an entry of sys.modules binds: the names of a module's dict, without
 * those that the import system sets, in the order of the dict; of what is no module the attributes
 * that it holds itself. *left: how many of a dict were not visited. -E2BIG: GLOBALS_MAX. */
int globals_iterate(struct view *view, const struct offsets *offsets, uint64_t module,
                    local_visit *visit, void *arg, uint64_t *left);
/* What an entry of sys.modules binds an ASCII name to, as dict_lookup_again(). -ENOENT: nothing. */
int global_lookup(struct view *view, const struct offsets *offsets, uint64_t module,
                  const char *name, uint64_t *at, uint64_t *value);
