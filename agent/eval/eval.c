#include "agent/eval/eval.h"

#include "agent/cpython/exception_words.h"
#include "agent/eval/interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A new reference: what evaluate() returned. */
static PyObject *call_evaluate(struct guest *guest, const struct request *request, PyObject *here)
{
    const struct proto_eval *eval = &request->eval;
    PyObject *function = PyDict_GetItemString(guest->globals, "evaluate"); /* borrowed */

    if (!function)
        return PyErr_Format(PyExc_RuntimeError, "evaluate() is gone");
    if (eval->flags & EVAL_AS_JSON && guest_tree(guest) < 0)
        return NULL;
    return PyObject_CallFunction(function, "y#OKIIIOI", request->text ? request->text : "",
                                 (Py_ssize_t)eval->text_size,
                                 eval->flags & EVAL_LAST ? Py_True : Py_False,
                                 (unsigned long long)eval->thread, (unsigned)eval->depth,
                                 (unsigned)eval->flags, (unsigned)eval->output_max,
                                 here ? here : Py_None, (unsigned)eval->before);
}

/* -EIO with an exception set: it is not what was agreed. */
static int take_result(PyObject *result, const struct proto_eval *eval, struct evaluation *out)
{
    int error, cut;
    unsigned long long consumed;
    PyObject *output, *words;
    char *data;
    Py_ssize_t size;

    if (!PyArg_ParseTuple(result, "iKSpU", &error, &consumed, &output, &cut, &words) ||
        PyBytes_AsStringAndSize(output, &data, &size) < 0)
        return -EIO;
    if ((uint64_t)size > eval->output_max) {
        size = (Py_ssize_t)eval->output_max;
        cut = 1;
    }
    if (size) {
        out->output = malloc((size_t)size);
        if (!out->output)
            return PyErr_NoMemory() ? 0 : -EIO;
        memcpy(out->output, data, (size_t)size);
    }
    out->size = (size_t)size;
    out->done.error = error;
    out->done.consumed = consumed < eval->text_size ? consumed : eval->text_size;
    out->done.flags = cut ? DONE_CUT : 0;
    words_copy(words, out->done.words, sizeof out->done.words);
    return 0;
}

/* Calls a function of a namespace for what it does. */
static void call(PyObject *globals, const char *name)
{
    PyObject *function = PyDict_GetItemString(globals, name); /* borrowed */
    if (function)
        Py_DecRef(PyObject_CallFunctionObjArgs(function, NULL));
    PyErr_Clear();
}

void eval_run(struct interpreter *interpreter, struct request *request, PyObject *here,
              struct evaluation *out)
{
    struct guest *guest = &interpreter->guest;
    _cleanup_unref_ PyObject *result = call_evaluate(guest, request, here);
    bool interrupted = requests_finish(request);

    if (interrupted) {
        /* one that came late would strike what follows; the error that is set stays */
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        interrupt_settle(guest, request);
        PyErr_Restore(type, value, traceback);
    }
    if (!result || take_result(result, &request->eval, out) < 0) {
        out->done.error = EIO;
        out->done.consumed = request->eval.text_size;
        exception_words(out->done.words, sizeof out->done.words);
    }
    if (interrupted && out->done.error)
        out->done.error = EINTR;
    call(guest->globals, "restore");
    if (!here) /* else the thread is the program's */
        call(guest->threads, "forget");
}
