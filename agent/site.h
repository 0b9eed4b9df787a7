/* Where code is: file, line and function of an instruction, remembered.
 *
 * What is remembered is kept for as long as this is: at most SITE_CODES code objects, which are asked for
 * their texts once; and the line of many of their instructions, by chance of their addresses. Nothing is dropped
 * before the end, so that no destructor of the program's runs where a place is looked up. */
#pragma once

#include "agent/text.h"

#define SITE_CODES 2048
#define SITE_SLOTS 4096u    /* for them; a power of two */
#define SITE_LINES 1024u    /* a power of two */

enum site_kind {
    SITE_PLAIN = 0,
    SITE_COROUTINE = 1, /* of an `async def` */
    SITE_AWAITS = 2,    /* this, or a generator */
    SITE_ENDS = 4,      /* threading's and asyncio's own functions that catch what a thread, a task or a callback
                           of a loop fails with */
};

struct site_code {
    PyObject *code;          /* NULL: free; all are held */
    PyObject *file_owner, *func_owner;
    struct ring_text file, func;
    enum site_kind kind;
};

struct site_line {
    PyObject *code;          /* one of the above */
    int offset;              /* [bytes] of the instruction */
    int line;
    struct site_code *entry;
};

struct sites {
    unsigned count;
    struct site_code codes[SITE_SLOTS];
    struct site_line lines[SITE_LINES];
};

struct site {
    struct ring_text file, func;
    int64_t line;            /* RING_NULL_INTEGER: the code has none */
};

/* Finds the functions of CPython that this needs. */
bool site_bind(void);
/* The place of an instruction of a code object, which the caller holds. The texts are good for as long as
 * that and `sites` are there. No exception is set before and after. */
void site_find(struct sites *sites, PyObject *code, int offset, struct site *out);
/* What a code object is, with the same conditions. */
enum site_kind site_kind(struct sites *sites, PyObject *code);
/* Gives up what it holds. */
void sites_clear(struct sites *sites);
