#include "agent/record/exceptions_seen.h"

#include <errno.h>
#include <string.h>

int exceptions_seen_init(struct exceptions_seen *all)
{
    PyObject *type = (PyObject *)&PyTraceBack_Type;

    if (attribute_find(type, "tb_next", &all->next) &&
        attribute_find(type, "tb_frame", &all->frame) &&
        attribute_find(type, "tb_lasti", &all->lasti))
        return 0;
    exceptions_seen_clear(all);
    return -EOPNOTSUPP;
}

static size_t hash(const void *object)
{
    return ((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15 >> 40;
}

static struct seen_exception_set *set_of(struct exceptions_seen *all, const PyObject *exception)
{
    return &all->sets[hash(exception) % EXCEPTIONS_SEEN_SETS];
}

struct seen_exception *exceptions_seen_find(struct exceptions_seen *all, const PyObject *exception)
{
    struct seen_exception_set *set = set_of(all, exception);

    for (unsigned i = 0; i < EXCEPTIONS_SEEN_WAYS; i++)
        if (set->exceptions[i] == exception)
            return &set->all[i];
    return NULL;
}

/* The place to be used next: not one of an exception that is under way, unless all are. */
static unsigned choose(struct seen_exception_set *set)
{
    for (unsigned i = 0; i < EXCEPTIONS_SEEN_WAYS; i++) {
        unsigned at = set->turn++ % EXCEPTIONS_SEEN_WAYS;
        if (!set->exceptions[at] || set->all[at].fate != FATE_UNKNOWN)
            return at;
    }
    return set->turn++ % EXCEPTIONS_SEEN_WAYS;
}

struct seen_exception *exceptions_seen_add(struct exceptions_seen *all, const PyObject *exception,
                                           struct seen_exception *there)
{
    if (!there) {
        struct seen_exception_set *set = set_of(all, exception);
        unsigned at = choose(set);
        set->exceptions[at] = exception;
        there = &set->all[at];
    }
    *there = (struct seen_exception){.exception = exception};
    return there;
}

void exceptions_seen_own(struct exceptions_seen *all, const PyObject *traceback,
                         const PyObject *exception)
{
    all->owners[hash(traceback) % EXCEPTIONS_SEEN_OWNERS] =
        (struct seen_exception_owner){traceback, exception};
}

/* Whether an entry is known to have been made for another exception. */
static bool is_anothers(const struct exceptions_seen *all, const PyObject *traceback,
                        const PyObject *exception)
{
    const struct seen_exception_owner *owner =
        &all->owners[hash(traceback) % EXCEPTIONS_SEEN_OWNERS];
    return owner->traceback == traceback && owner->exception != exception;
}

PyObject *exceptions_seen_older(const struct exceptions_seen *all, PyObject *traceback)
{
    PyObject *next = attribute_of(&all->next, traceback);
    Py_DecRef(next);
    return next == Py_None ? NULL : next;
}

/* The code of an entry of a traceback, borrowed from it; NULL: not known. */
static PyObject *code_of(const struct exceptions_seen *all, PyObject *traceback)
{
    _cleanup_unref_ PyObject *frame = attribute_of(&all->frame, traceback);

    if (!frame)
        return NULL;
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    Py_DecRef(code);
    return code;
}

long exceptions_seen_lasti(const struct exceptions_seen *all, PyObject *traceback)
{
    _cleanup_unref_ PyObject *at = attribute_of(&all->lasti, traceback);
    return at ? PyLong_AsLong(at) : -1;
}

/* Whether the entry is of the code and the instruction that were seen. */
static bool is_at(const struct exceptions_seen *all, PyObject *traceback,
                  const struct seen_exception *seen)
{
    return !is_anothers(all, traceback, seen->exception) &&
           exceptions_seen_lasti(all, traceback) == seen->lasti &&
           code_of(all, traceback) == seen->code;
}

bool seen_exception_is(const struct exceptions_seen *all, const struct seen_exception *seen,
                       PyObject *older)
{
    for (int i = 0; i < EXCEPTIONS_SEEN_DEPTH && older; i++) {
        if (older == seen->traceback)
            return is_at(all, older, seen);
        older = exceptions_seen_older(all, older);
    }
    return false;
}

bool exceptions_seen_is_of(const struct exceptions_seen *all, PyObject *traceback, PyObject *code)
{
    return code_of(all, traceback) == code;
}

PyObject *exceptions_seen_origin(const struct exceptions_seen *all, PyObject *traceback,
                                 long *lasti)
{
    PyObject *next;
    int i;

    for (i = 0; i < 100 * EXCEPTIONS_SEEN_DEPTH && (next = exceptions_seen_older(all, traceback));
         i++)
        traceback = next;
    *lasti = exceptions_seen_lasti(all, traceback);
    return code_of(all, traceback);
}

void exceptions_seen_forget(struct exceptions_seen *all)
{
    memset(all->sets, 0, sizeof all->sets);
    memset(all->owners, 0, sizeof all->owners);
}

void exceptions_seen_clear(struct exceptions_seen *all)
{
    exceptions_seen_forget(all);
    attribute_clear(&all->next);
    attribute_clear(&all->frame);
    attribute_clear(&all->lasti);
}
