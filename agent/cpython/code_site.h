/* File, line and function of an instruction, from a cache.
 *
 * The cache holds at most CODE_SITE_CODES code objects, each of which is asked for its file and
 * function once, and the lines of recent instructions, in slots by a hash of their addresses. Code
 * objects are released only with the whole cache, so that no lookup runs a destructor of the
 * program. */
#pragma once

#include "agent/cpython/text.h"

#define CODE_SITE_CODES 2048
#define CODE_SITE_SLOTS 4096u /* for them; a power of two */
#define CODE_SITE_LINES 1024u /* a power of two */

enum code_site_kind {
    CODE_SITE_PLAIN = 0,
    CODE_SITE_COROUTINE = 1, /* of an `async def` */
    CODE_SITE_AWAITS = 2,    /* this, or a generator */
    /* threading's and asyncio's own functions that catch what a thread, a task or a
     * callback of a loop fails with */
    CODE_SITE_ENDS = 4,
};

struct code_site_code {
    PyObject *code; /* NULL: free; all are held */
    PyObject *file_owner, *func_owner;
    struct ring_text file, func;
    enum code_site_kind kind;
};

struct code_site_line {
    PyObject *code; /* one of the above */
    int offset;     /* [bytes] of the instruction */
    int line;
    struct code_site_code *entry;
};

struct code_sites {
    unsigned count;
    struct code_site_code codes[CODE_SITE_SLOTS];
    struct code_site_line lines[CODE_SITE_LINES];
};

struct code_site {
    struct ring_text file, func;
    int64_t line; /* RING_NULL_INTEGER: the code has none */
};

/* Looks up PyCode_Addr2Line(). Needed before anything else here. */
bool code_site_bind(void);
/* Looks up the instruction at `offset`, [bytes], of a code object, which the caller holds. The
 * texts live as long as the code object and `sites`. No exception is set before and after. */
void code_site_find(struct code_sites *sites, PyObject *code, int offset, struct code_site *out);
/* The kind of a code object. The same conditions hold. */
enum code_site_kind code_site_kind(struct code_sites *sites, PyObject *code);
/* Releases the code objects and texts. */
void code_sites_clear(struct code_sites *sites);
