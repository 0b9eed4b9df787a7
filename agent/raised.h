/* What an exception is called, and what it says: what str() would, as far as that is known without running code
 * of the program's, which may have a __str__ of its own, or arguments of its own types. */
#pragma once

#include "agent/text.h"

#define RAISED_TYPES 256  /* whose names are remembered */
#define RAISED_SLOTS 512u /* for them; a power of two */

/* How str() of a type works. */
enum raised_says {
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
enum raised_ends {
    ENDS_NOTHING,
    ENDS_ITERATION,      /* exactly StopIteration or StopAsyncIteration */
    ENDS_GENERATOR,      /* exactly GeneratorExit */
    ENDS_LIKE_ITERATION, /* a subclass of StopIteration */
};

struct raised_type {
    PyObject *type;        /* NULL: free; all are held */
    PyObject *owner;
    struct ring_text name; /* with its module, but for builtins */
    enum raised_says says;
    enum raised_ends ends;
};

/* What there is of it in an interpreter. */
struct raised {
    unsigned count;
    struct raised_type types[RAISED_SLOTS];
    struct raised_type spare;      /* for one that there is no room for */
    struct attribute module, qualname; /* of type */
    struct attribute args;             /* of BaseException */
    struct attribute error[4];         /* of OSError: errno, strerror, filename, filename2 */
    void *says[SAYS_OTHERWISE];    /* tp_str of the types that have one of their own */
};

/* Gets what it needs in the interpreter. 0, or -EOPNOTSUPP. */
int raised_init(struct raised *raised);
/* The exception's type, good until the next call. Without and with it no exception is set. */
const struct raised_type *raised_type(struct raised *raised, PyObject *exception);
/* Its message; bytes NULL: it is not known. *owner: a new reference to what holds the bytes, or NULL. */
void raised_message(struct raised *raised, const struct raised_type *type, PyObject *exception,
                    struct ring_text *out, PyObject **owner);
void raised_clear(struct raised *raised);
