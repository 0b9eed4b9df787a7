/* The CPython runtime of a process: where it is, of which version, and how its structures lie. */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/proc/maps.h"
#include "fs/remote/memory/memory.h"

struct runtime {
    uint64_t addr;       /* of _PyRuntime */
    uint64_t image_base; /* of the ELF image that holds it */
    uint64_t code_type;  /* PyCode_Type, 0 if that is not exported */
    uint32_t version;    /* as PY_VERSION_HEX: 0x030d05f0 is 3.13.5; the patch level is 0 where
                            only the minor is known from outside (3.8 to 3.10) */
    bool free_threaded;
    bool exported;  /* its image exports _PyRuntime, and Python's functions with it */
    bool supported; /* offsets are valid */
    char why[160];  /* if not supported: what is missing, in words */
    struct offsets offsets;
};

/* Finds the runtime by the _PyRuntime symbol that an image exports, or by the .PyRuntime section
 * of its file; never by a name. -ENOENT: no CPython (before 3.7, or none at all); -ESRCH, -EPERM.
 * An unknown version is found and not `supported`. Where nothing is exported, .symtab tells the
 * version, else the layouts of those that it can be are tried, and believed if sys.hexversion is
 * found by one and says that it is this version. */
int runtime_find(const struct memory *m, const struct maps *maps, struct runtime *out);
