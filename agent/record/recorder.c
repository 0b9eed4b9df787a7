#include "agent/record/recorder.h"

#include "agent/cpython/exception_words.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/rings.h"
#include "agent/wire/record.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

PyObject *recorders_keep[INTERPRETERS_MAX][RECORDED_TABLES];

/* ---- requests ---- */

struct ring_text recorder_text(PyObject *value)
{
    struct ring_text text = {0};
    Py_ssize_t size;

    if (value == Py_None)
        return text;
    text.bytes = PyUnicode_AsUTF8AndSize(value, &size);
    if (text.bytes)
        text.size = (size_t)size;
    else
        PyErr_Clear();
    return text;
}

int recorder_check(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    if (record->table >= RECORDED_TABLES || !recorders[record->table])
        return refuse(EOPNOTSUPP, words, "this agent has no recorder for that table");
    if (record->action != RECORD_ON && record->action != RECORD_OFF)
        return refuse(EINVAL, words, "on or off?");
    if (record->table == RECORDED_BREAKPOINTS && record->action == RECORD_OFF)
        return refuse(EINVAL, words,
                      "the set of breakpoints is always kept; an empty set has no rows");
    if (record->size && (record->size < RING_SIZE_MIN || record->size > RING_SIZE_MAX))
        return refuse(EINVAL, words, "the size must be %u KiB to %u MiB", RING_SIZE_MIN >> 10,
                      RING_SIZE_MAX >> 20);
    if (record->flags & ~(uint32_t)(record->table == RECORDED_EXCEPTIONS ? RECORD_LOCALS : 0))
        return refuse(EINVAL, words, "%s has no locals", recorded_layouts[record->table].name);
    if (record->layers && record->table != RECORDED_TORCH_TRACE)
        return refuse(EINVAL, words, "%s has no layers", recorded_layouts[record->table].name);
    if (record->rate != 0 && recorders[record->table]->rate <= 0)
        return refuse(EINVAL, words, "%s has no rate", recorded_layouts[record->table].name);
    if (!(record->rate >= 0 && record->rate <= recorders[record->table]->rate_max))
        return refuse(EINVAL, words, "the rate must be above 0, and at most %g",
                      recorders[record->table]->rate_max);
    return 0;
}

static int explain(int r, const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    uint64_t size = record->size ? record->size : RING_SIZE_DEFAULT;

    if (r == -EBUSY)
        return refuse(EBUSY, words,
                      "its size was changed too often; `detach` and `attach` to go on");
    if (r == -ENOMEM)
        return refuse(
            ENOMEM, words,
            "%lu KiB of rows are more than half of the memory that the process, its control "
            "group or the machine has left",
            (unsigned long)(size >> 10));
    if (r == -ESHUTDOWN)
        return refuse(ESHUTDOWN, words, "the agent is being detached");
    if (r == -ENODATA)
        return refuse(
            ENOMEM, words,
            "how much memory is left can't be found out in the process's root, which has no "
            "/proc; up to %u KiB of rows are taken there, not %lu",
            RING_SIZE_DEFAULT >> 10, (unsigned long)(size >> 10));
    if (r == -EAGAIN)
        return refuse(EAGAIN, words,
                      "a thread was just writing there, and didn't get on; try again");
    return refuse(-r, words, "no room for %lu KiB of rows: %s", (unsigned long)(size >> 10),
                  strerrordesc_np(-r));
}

int recorder_prepare(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    if (record->action == RECORD_OFF) {
        rings_switch(record->table, false, 0);
        return 0;
    }
    int r = rings_make(record->table, record->size);
    return r < 0 ? explain(r, record, words) : 0;
}

static int switch_on(struct interpreter *interpreter, const struct proto_record *record,
                     char words[PROTO_WORDS_MAX])
{
    const struct recorder *recorder = recorders[record->table];
    struct proto_record filled = *record;

    if (!record->rate) {
        double before = probe_agent_record.rings[record->table].rate;
        filled.rate = before > 0 ? before : recorder->rate;
    }
    int r = recorder->on ? recorder->on(interpreter, &filled, words) : 0;
    if (r < 0)
        return r;
    rings_switch(record->table, true, filled.rate);
    return 0;
}

static void leave_table(struct interpreter *interpreter, enum recorded table,
                        char words[PROTO_WORDS_MAX])
{
    if (!*recorder_kept(interpreter, table))
        return;
    recorders[table]->off(interpreter, words);
    PyErr_Clear();
    python_clear(recorder_kept(interpreter, table));
}

struct leaving {
    enum recorded table;
    char *words;
};

static void leave_one(struct interpreter *interpreter, void *arg)
{
    const struct leaving *leaving = arg;
    leave_table(interpreter, leaving->table, leaving->words);
}

static void switch_off(struct interpreter *interpreter, enum recorded table,
                       char words[PROTO_WORDS_MAX])
{
    struct leaving leaving = {table, words};

    if (!recorders[table]->off)
        return;
    if (!recorders[table]->python) {
        recorders[table]->off(NULL, words);
        rings_free_retired(false);
        return;
    }
    interpreter_each_other(leave_one, &leaving);
    leave_table(interpreter, table, words);
}

/* Whether nobody else writes rows: so it is for who has the GIL of the only interpreter. */
static bool is_alone(const struct interpreter *interpreter)
{
    return interpreter && interpreter_is_alone();
}

int recorder_switch(struct interpreter *interpreter, const struct proto_record *record,
                    char words[PROTO_WORDS_MAX])
{
    int r = 0;

    if (record->action == RECORD_ON)
        r = switch_on(interpreter, record, words);
    else
        switch_off(interpreter, record->table, words);
    if (interpreter && PyErr_Occurred() && !words[0])
        exception_words(words, PROTO_WORDS_MAX);
    if (interpreter)
        PyErr_Clear();
    if (is_alone(interpreter))
        rings_free_retired(true);
    return r;
}

/* ---- its life ---- */

void recorder_leave(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX] = "";

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        leave_table(interpreter, i, words);
}

void recorder_end(bool nobody_writes)
{
    char words[PROTO_WORDS_MAX] = "";

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (recorders[i] && !recorders[i]->python && recorders[i]->off)
            recorders[i]->off(NULL, words);
    rings_end(nobody_writes);
}

uint64_t recorder_look(void)
{
    uint64_t first = 0;

    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        uint64_t ns = recorders[i] && recorders[i]->look ? recorders[i]->look() : 0;
        if (ns && (!first || ns < first))
            first = ns;
    }
    return first;
}

void recorder_forget(void)
{
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (recorders[i] && recorders[i]->forget)
            recorders[i]->forget();
    rings_forget();
}
