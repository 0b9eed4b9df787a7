/* Where the value of a watched expression is kept (evaluate/watching.py), and
 * how it can be looked at. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/watch/trap.h"

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

/* An expression, compiled: new. NULL with an exception set. With the GIL, as all here. */
PyObject *storage_watched(struct interpreter *interpreter, const char *text);
/* Where its value is now. memory: it is to be at an address, if that can be. 0, or -EIO with an
 * exception set: it has none. */
int storage_find(struct interpreter *interpreter, PyObject *watched, bool memory,
                 struct storage *out);
/* Memory without an expression. -EFAULT: it isn't there; -EINVAL: it isn't aligned. */
int storage_at(uint64_t address, uint32_t length, struct storage *out);
void storage_clear(struct storage *storage);
/* Whether it is the same place. */
bool storage_is_same(const struct storage *a, const struct storage *b);

/* What these bytes of its memory are, which hold no object: new. NULL: with an exception set. */
PyObject *storage_number(struct interpreter *interpreter, const struct storage *storage,
                         uint64_t bytes);
/* The object that is there now: new; NULL: none, and no exception. */
PyObject *storage_object(const struct storage *storage);
/* Whether it makes no difference that this one is there now; each NULL: unbound.
 * No exception after it. */
bool storage_is_same_value(struct interpreter *interpreter, PyObject *old_value,
                           PyObject *new_value);
