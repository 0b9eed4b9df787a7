/* The code objects of an interpreter: of its functions, of what runs or waits in a frame or a generator, and whatever is
 * defined in those. */
#pragma once

#include "agent/python.h"

#include <stddef.h>

#define CODES_MAX (1u << 22)

struct code_entry {
    PyObject *code;          /* a reference */
    PyObject *qualname;      /* of a function of it, before 3.11; a reference. NULL: not known */
    int parent;              /* in whose constants it is: an index; -1: of none that is of interest */
};

struct codes {
    struct code_entry *all;
    size_t count, room;
    uint32_t *slots;         /* a hash: index + 1, 0: free */
    size_t nslots;           /* a power of two */
    bool cut;                /* there was no room for all of them */
};

/* The attributes of code objects that are needed here and by location.h. False: this interpreter lacks one. */
bool codes_bind(void);
/* Whether this is one. */
bool codes_is_code(const PyObject *object);
/* One of them; new. */
enum code_attribute { CODE_FILE, CODE_NAME, CODE_QUALNAME, CODE_FIRST_LINE, CODE_FLAGS, CODE_CONSTANTS, CODE_ATTRIBUTES };
PyObject *codes_get(PyObject *code, enum code_attribute attribute);
/* The same of FILE, NAME and CONSTANTS, borrowed from the code object. Fast. */
PyObject *codes_peek(PyObject *code, enum code_attribute attribute);
long codes_number(PyObject *code, enum code_attribute attribute);
/* An int in a tuple, as iterators of code have them; -1: None, or none. */
int codes_number_in(PyObject *tuple, Py_ssize_t at);

/* What is of interest: of a file, with a name; both borrowed. Runs nothing of the program's. */
struct codes_wanted {
    bool (*file)(void *arg, PyObject *file); /* NULL: none */
    bool (*name)(void *arg, PyObject *name); /* NULL: none */
    void *arg;
};

/* Those of the interpreter that the calling thread is in that are of interest. Runs nothing of the program's. With its GIL;
 * no exception is set afterwards. */
void codes_gather(struct codes *out, const struct codes_wanted *wanted);
/* One, and all that is defined in it. */
void codes_gather_tree(struct codes *out, PyObject *code);
/* The qualified name of one, which before 3.11 is known as far as what it is defined in is; new. */
PyObject *codes_qualname(const struct codes *codes, long index);
/* Whether one is among them: its index, else -1. */
long codes_index(const struct codes *codes, const PyObject *code);
void codes_clear(struct codes *codes);

#define _cleanup_codes_ _cleanup_(codes_clear)
