#include "agent/record/exceptions_seen.h"

#include <errno.h>
#include <string.h>

int sightings_init(struct sightings *sightings)
{
    PyObject *type = (PyObject *)&PyTraceBack_Type;

    if (attribute_find(type, "tb_next", &sightings->next) &&
        attribute_find(type, "tb_frame", &sightings->frame) &&
        attribute_find(type, "tb_lasti", &sightings->lasti))
        return 0;
    sightings_clear(sightings);
    return -EOPNOTSUPP;
}

static size_t hash(const void *object)
{
    return ((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15 >> 40;
}

static struct sighting_set *set_of(struct sightings *sightings, const PyObject *exception)
{
    return &sightings->sets[hash(exception) % SIGHTING_SETS];
}

struct sighting *sighting_find(struct sightings *sightings, const PyObject *exception)
{
    struct sighting_set *set = set_of(sightings, exception);

    for (unsigned i = 0; i < SIGHTING_WAYS; i++)
        if (set->exceptions[i] == exception)
            return &set->all[i];
    return NULL;
}

/* The place to be used next: not one of an exception that is under way, unless all are. */
static unsigned choose(struct sighting_set *set)
{
    for (unsigned i = 0; i < SIGHTING_WAYS; i++) {
        unsigned at = set->turn++ % SIGHTING_WAYS;
        if (!set->exceptions[at] || set->all[at].fate != FATE_UNKNOWN)
            return at;
    }
    return set->turn++ % SIGHTING_WAYS;
}

struct sighting *sighting_add(struct sightings *sightings, const PyObject *exception,
                              struct sighting *there)
{
    if (!there) {
        struct sighting_set *set = set_of(sightings, exception);
        unsigned at = choose(set);
        set->exceptions[at] = exception;
        there = &set->all[at];
    }
    *there = (struct sighting){.exception = exception};
    return there;
}

void sighting_own(struct sightings *sightings, const PyObject *traceback, const PyObject *exception)
{
    sightings->owners[hash(traceback) % SIGHTING_OWNERS] =
        (struct sighting_owner){traceback, exception};
}

/* Whether an entry is known to have been made for another exception. */
static bool is_anothers(const struct sightings *sightings, const PyObject *traceback,
                        const PyObject *exception)
{
    const struct sighting_owner *owner = &sightings->owners[hash(traceback) % SIGHTING_OWNERS];
    return owner->traceback == traceback && owner->exception != exception;
}

PyObject *sighting_older(const struct sightings *sightings, PyObject *traceback)
{
    PyObject *next = attribute_of(&sightings->next, traceback);
    Py_DecRef(next);
    return next == Py_None ? NULL : next;
}

/* The code of an entry of a traceback, borrowed from it; NULL: not known. */
static PyObject *code_of(const struct sightings *sightings, PyObject *traceback)
{
    _cleanup_unref_ PyObject *frame = attribute_of(&sightings->frame, traceback);

    if (!frame)
        return NULL;
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    Py_DecRef(code);
    return code;
}

long sighting_lasti(const struct sightings *sightings, PyObject *traceback)
{
    _cleanup_unref_ PyObject *at = attribute_of(&sightings->lasti, traceback);
    return at ? PyLong_AsLong(at) : -1;
}

/* Whether the entry is of the code and the instruction that were seen. */
static bool is_at(const struct sightings *sightings, PyObject *traceback,
                  const struct sighting *sighting)
{
    return !is_anothers(sightings, traceback, sighting->exception) &&
           sighting_lasti(sightings, traceback) == sighting->lasti &&
           code_of(sightings, traceback) == sighting->code;
}

bool sighting_is(const struct sightings *sightings, const struct sighting *sighting,
                 PyObject *older)
{
    for (int i = 0; i < SIGHTING_DEPTH && older; i++) {
        if (older == sighting->traceback)
            return is_at(sightings, older, sighting);
        older = sighting_older(sightings, older);
    }
    return false;
}

bool sighting_is_of(const struct sightings *sightings, PyObject *traceback, PyObject *code)
{
    return code_of(sightings, traceback) == code;
}

PyObject *sighting_origin(const struct sightings *sightings, PyObject *traceback, long *lasti)
{
    PyObject *next;
    int i;

    for (i = 0; i < 100 * SIGHTING_DEPTH && (next = sighting_older(sightings, traceback)); i++)
        traceback = next;
    *lasti = sighting_lasti(sightings, traceback);
    return code_of(sightings, traceback);
}

void sightings_forget(struct sightings *sightings)
{
    memset(sightings->sets, 0, sizeof sightings->sets);
    memset(sightings->owners, 0, sizeof sightings->owners);
}

void sightings_clear(struct sightings *sightings)
{
    sightings_forget(sightings);
    attribute_clear(&sightings->next);
    attribute_clear(&sightings->frame);
    attribute_clear(&sightings->lasti);
}
