/* The name of an exception's type, and its message: what str() would return, as far as that can be
 * known without running code of the program, whose types may define __str__, also those of the
 * exception's arguments. */
#pragma once

#include "agent/cpython/text.h"

#define RAISED_TYPES 256  /* whose names are remembered */
#define RAISED_SLOTS 512u /* for them; a power of two */

/* How str() of a type works. */
enum exception_text_says {
    SAYS_ARGS,     /* as BaseException's own: the argument, or all of them */
    SAYS_KEY,      /* KeyError: the argument's repr() */
    SAYS_OS,       /* OSError: errno, its words, the files */
    SAYS_DECODE,   /* UnicodeDecodeError */
    SAYS_ENCODE,   /* UnicodeEncodeError */
    SAYS_SYNTAX,   /* SyntaxError: the message, file and line */
    SAYS_GROUP,    /* ExceptionGroup: the message, and how many */
    SAYS_OTHERWISE /* nobody knows: the first argument, if that is a str */
};

/* Exceptions by which iterators and generators end. */
enum exception_text_ends {
    ENDS_NOTHING,
    ENDS_ITERATION,      /* exactly StopIteration or StopAsyncIteration */
    ENDS_GENERATOR,      /* exactly GeneratorExit */
    ENDS_LIKE_ITERATION, /* a subclass of StopIteration */
};

struct exception_type {
    PyObject *type; /* NULL: free; all are held */
    PyObject *owner;
    struct ring_text name; /* with its module, but for builtins */
    enum exception_text_says says;
    enum exception_text_ends ends;
};

/* The exception types that were seen in an interpreter. */
struct exception_text {
    unsigned count;
    struct exception_type types[RAISED_SLOTS];
    struct exception_type spare;       /* for one that there is no room for */
    struct attribute module, qualname; /* of type */
    struct attribute args;             /* of BaseException */
    struct attribute error[4];         /* of OSError: errno, strerror, filename, filename2 */
    void *says[SAYS_OTHERWISE];        /* tp_str of the types that have one of their own */
};

/* Looks up the attributes of CPython's own types in the current interpreter. 0, or -EOPNOTSUPP. */
int exception_text_init(struct exception_text *raised);
/* The exception's type, valid until the next call. No exception is set before and after. */
const struct exception_type *exception_text_type(struct exception_text *raised,
                                                 PyObject *exception);
/* The message of an exception of that type; its bytes are NULL if it can't be known. *owner: a new
 * reference to the object that holds the bytes, or NULL. */
void exception_text_message(struct exception_text *raised, const struct exception_type *type,
                            PyObject *exception, struct ring_text *out, PyObject **owner);
void exception_text_clear(struct exception_text *raised);
