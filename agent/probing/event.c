#include "agent/probing/event.h"

#include "agent/base/clock.h"
#include "agent/cpython/attrs_json.h"
#include "agent/cpython/text.h"
#include "agent/probing/span.h"
#include "agent/probing/span_context.h"
#include "agent/record/recorder.h"

const struct recorder events_recorder = {.by_itself = true};

static void append(PyObject *name, const struct ring_text *attrs, const struct span_context *place)
{
    _cleanup_unref_ PyObject *exact = PyUnicode_FromObject(name); /* of a subclass only the text */
    _cleanup_unref_ PyObject *owner = NULL;
    struct events_row row = {
        .ts = realtime_s(),
        .tid = place->thread->tid,
        .task = attrs_json_bytes(place->task),
        .kind = {"event", 5},
        .span = place->span,
        .attrs = *attrs,
    };

    if (!text_of(exact, &row.name, &owner))
        PyErr_Clear();
    struct ring *ring = recorder_ring(RECORDED_EVENTS); /* only now: other code may have run */
    if (ring)
        events_append(ring, &row, NULL);
}

PyObject *event_function(PyObject *capsule, PyObject *const *args, Py_ssize_t count,
                         PyObject *names)
{
    struct probing *probing = probing_of(capsule);
    PyObject *name = span_check_name("event", args, count);
    _cleanup_span_context_ struct span_context place = {0};
    char text[ATTRS_JSON_MAX];
    struct ring_text attrs = {0};

    if (!probing || !name)
        return NULL;
    if (recorder_first_use(RECORDED_EVENTS)) {
        if (names && PyTuple_Size(names) > 0)
            attrs = (struct ring_text){text, attrs_json_write(names, args + count, text)};
        if (span_context_find(probing, &place))
            append(name, &attrs, &place);
    }
    Py_IncRef(Py_None);
    return Py_None;
}
