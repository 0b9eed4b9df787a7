/* Where the value of a watched expression is kept (evaluate/watching.py), and
 * how it can be looked at. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/watch/trap.h"

struct breakpoint;

enum storage_kind {
    STORAGE_VALUE,  /* nowhere that is known */
    STORAGE_LOCAL,  /* a variable of a function */
    STORAGE_DICT,   /* under a key of a dict */
    STORAGE_MEMORY, /* at an address */
};

struct storage {
    enum storage_kind kind;
    /* what it is kept in: a dict, or a code object of LOCAL, or what owns the memory */
    PyObject *owner;
    PyObject *key;             /* in the dict, name of the variable */
    PyObject *format;          /* of memory that holds no object: as evaluate/watching.py has it */
    struct trap_memory memory; /* of MEMORY */
};

/* The functions that evaluate/watching.py needs, into its _probe. */
int storage_add_functions(struct guest *guest);

/* Compiles an expression, whose names are looked up in a frame, which is kept until it is left;
 * NULL: as an eval sees them. A new reference; NULL with an exception set. All of these functions
 * want the GIL. */
PyObject *storage_watched(struct interpreter *interpreter, const char *text, PyFrameObject *frame);
/* Finds the frame of a watch, in its thread as that is now. A new reference; NULL with words, and
 * *error: -ESRCH: the thread has ended, or runs no Python; -ENOENT: it has no such frame; others.
 */
PyFrameObject *storage_frame(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                             char words[PROTO_WORDS_MAX], int *error);
/* What has become of the frame that a compiled expression keeps, in words; NULL: it is there. */
const char *storage_frame_gone(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                               PyObject *watched);
/* Finds where the value of a compiled expression is kept now. memory: an address is wanted, if the
 * value has one that stays. 0, or -EIO with an exception set: the expression has no value. */
int storage_find(struct interpreter *interpreter, PyObject *watched, bool memory,
                 struct storage *out);
/* Describes `length` bytes at an address. -EFAULT: there is no memory; -EINVAL: the address isn't
 * aligned. */
int storage_at(uint64_t address, uint32_t length, struct storage *out);
/* Gives up the references that a storage holds. */
void storage_clear(struct storage *storage);
/* Whether two storages are the same dict entry, variable or memory. */
bool storage_is_same(const struct storage *a, const struct storage *b);

/* Makes a Python value of bytes that were read from a storage whose memory holds no object. Of a
 * version: hit is what was seen, NULL if nothing was; what the tensor's values come to is read, if
 * nothing was written since. A new reference; NULL with an exception set. */
PyObject *storage_number(struct interpreter *interpreter, const struct storage *storage,
                         uint64_t bytes, const struct trap_hit *hit);
/* The object that a storage holds now. A new reference; NULL: none, and no exception is set. */
PyObject *storage_object(const struct storage *storage);
/* Whether two values count as the same, so that a change from one to the other is no hit. NULL:
 * unbound. Leaves no exception. */
bool storage_is_same_value(struct interpreter *interpreter, PyObject *old_value,
                           PyObject *new_value);
