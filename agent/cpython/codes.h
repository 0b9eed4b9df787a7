/* The code objects of an interpreter: those of its functions, of frames, generators and coroutines,
 * and of whatever is defined in these. */
#pragma once

#include "agent/cpython/python.h"

#include <stddef.h>

#define CODES_MAX (1u << 22)

struct code_entry {
    PyObject *code;     /* a reference */
    PyObject *qualname; /* of a function of it, before 3.11; a reference. NULL: not known */
    int parent;         /* in whose constants it is: an index; -1: of none that is of interest */
};

struct codes {
    struct code_entry *all;
    size_t count, room;
    uint32_t *slots; /* a hash: index + 1, 0: free */
    size_t nslots;   /* a power of two */
    bool cut;        /* there was no room for all of them */
};

/* Looks up the attributes of code objects. False: this interpreter lacks one of them. */
bool codes_bind(void);
/* Whether an object is a code object. */
bool codes_is_code(const PyObject *object);
enum code_attribute {
    CODE_FILE,
    CODE_NAME,
    CODE_QUALNAME,
    CODE_FIRST_LINE,
    CODE_FLAGS,
    CODE_CONSTANTS,
    CODE_ATTRIBUTES
};
/* An attribute of a code object; a new reference. */
PyObject *codes_get(PyObject *code, enum code_attribute attribute);
/* codes_get() of FILE, NAME and CONSTANTS: borrowed from the code object, and fast. */
PyObject *codes_peek(PyObject *code, enum code_attribute attribute);
/* codes_get() of attributes that are ints. */
long codes_number(PyObject *code, enum code_attribute attribute);
/* The int at a position of a tuple, as co_lines() and co_positions() yield them; -1: None, or there
 * is none. */
int codes_number_in(PyObject *tuple, Py_ssize_t at);

/* Which code objects are wanted: those whose file or whose name one of these functions accepts. The
 * objects are borrowed. The functions run no code of the program. */
struct codes_wanted {
    bool (*file)(void *arg, PyObject *file); /* NULL: none */
    bool (*name)(void *arg, PyObject *name); /* NULL: none */
    void *arg;
};

/* Collects the wanted code objects of the current interpreter. Runs no code of the program. With
 * the GIL; no exception is set afterwards. */
void codes_gather(struct codes *out, const struct codes_wanted *wanted);
/* Collects a code object and all that is defined in it. */
void codes_gather_tree(struct codes *out, PyObject *code);
/* The qualified name of the code object at an index; new. Before 3.11 it is complete only where the
 * code around it was collected, too. */
PyObject *codes_qualname(const struct codes *codes, long index);
/* The index of a code object; -1: it wasn't collected. */
long codes_index(const struct codes *codes, const PyObject *code);
void codes_clear(struct codes *codes);

#define _cleanup_codes_ _cleanup_(codes_clear)
