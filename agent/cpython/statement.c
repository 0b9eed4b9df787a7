/* An instruction that goes on with a line, behind other lines which the code that it belongs to
 * spans: that is so in the midst of an expression, and where the body of a `while` or `with` has
 * ended, which is there anew. The instructions tell which: CPython's own compiler, asked once, uses
 * others for the one than for the other. */
#include "agent/cpython/statement.h"

#include "agent/cpython/codes.h"
#include "agent/cpython/look_up.h"

#define AGAIN_MAX 8

static const struct sample {
    const char *text;
    int start;
    bool midst;
} samples[] = {
    {"f(\na)", Py_eval_input, true},          {"f(\n*a)", Py_eval_input, true},
    {"f(\na, b=c)", Py_eval_input, true},     {"f.g(\na)", Py_eval_input, true},
    {"(a +\nb)", Py_eval_input, true},        {"(a <\nb)", Py_eval_input, true},
    {"(a in\nb)", Py_eval_input, true},       {"a[\nb]", Py_eval_input, true},
    {"[\na]", Py_eval_input, true},           {"(\na, b)", Py_eval_input, true},
    {"{\na}", Py_eval_input, true},           {"{\na: b}", Py_eval_input, true},
    {"while 1:\n b\n", Py_file_input, false}, {"while 1:\n if b: c\n", Py_file_input, false},
    {"with a:\n b\n", Py_file_input, false},  {"try:\n b\nfinally:\n c\n", Py_file_input, false},
};

/* The last line of what an instruction belongs to; -1: not known. */
static int last_line_at(PyObject *code, int offset, PyObject **positions)
{
    if (!*positions) {
        _cleanup_unref_ PyObject *iterator = PyObject_CallMethod(code, "co_positions", NULL);
        *positions = iterator ? PySequence_List(iterator) : NULL;
    }
    /* two bytes each */
    PyObject *position = *positions ? PyList_GetItem(*positions, offset / 2) : NULL;
    PyErr_Clear();
    return position ? codes_number_in(position, 1) : -1;
}

/* Finds the instructions at which a line goes on behind other lines that are a part of it. How
 * many. */
static unsigned find(PyObject *code, int line, int *offsets, unsigned most)
{
    _cleanup_unref_ PyObject *lines = PyObject_CallMethod(code, "co_lines", NULL),
                             *positions = NULL;
    int before = -1;
    unsigned count = 0, seen = 0;
    PyObject *item;

    while (lines && count < most && (item = PyIter_Next(lines))) {
        int begin = codes_number_in(item, 0), here = codes_number_in(item, 2);
        Py_DecRef(item);
        if (here == line && seen++ && before > line &&
            before <= last_line_at(code, begin, &positions))
            offsets[count++] = begin;
        before = here >= 0 ? here : before;
    }
    PyErr_Clear();
    return count;
}

/* A reference to the bytes of the instructions, as they were compiled; NULL. */
static PyObject *instructions(PyObject *code, const unsigned char **out, Py_ssize_t *size)
{
    PyObject *bytes = PyObject_GetAttrString(code, "co_code");

    *size = 0;
    if (bytes && PyBytes_Check(bytes)) {
        *out = (const unsigned char *)PyBytes_AsString(bytes);
        *size = PyBytes_Size(bytes);
    }
    return bytes;
}

/* What is known of an instruction, by its number. */
struct known {
    bool midst[256], anew[256];
    bool next[256]; /* behind those that may be either: it goes on with an expression */
};

static void learn(struct known *known, const struct sample *sample)
{
    _cleanup_unref_ PyObject *code = Py_CompileString(sample->text, "<probefs>", sample->start);
    const unsigned char *bytes;
    Py_ssize_t size = 0;
    int offsets[AGAIN_MAX];

    unsigned count = code ? find(code, 1, offsets, AGAIN_MAX) : 0;
    _cleanup_unref_ PyObject *owner = count ? instructions(code, &bytes, &size) : NULL;
    for (unsigned i = 0; owner && i < count && offsets[i] + 2 < size; i++) {
        (sample->midst ? known->midst : known->anew)[bytes[offsets[i]]] = true;
        if (sample->midst)
            known->next[bytes[offsets[i] + 2]] = true;
    }
    PyErr_Clear();
}

static const struct known *learned(void)
{
    static struct known known;
    static bool is;

    for (size_t i = 0; i < ARRAY_SIZE(samples) && !is; i++)
        learn(&known, &samples[i]);
    is = true;
    return &known;
}

/* Whether an expression goes on there. */
static bool is_midst(const unsigned char *instruction)
{
    const struct known *known = learned();
    return known->midst[instruction[0]] &&
           (!known->anew[instruction[0]] || known->next[instruction[2]]);
}

unsigned statement_again(PyObject *code, int line, int *offsets, unsigned most)
{
    const unsigned char *bytes;
    Py_ssize_t size = 0;
    unsigned kept = 0, count = python.version >= 0x030c ? find(code, line, offsets, most) : 0;
    _cleanup_unref_ PyObject *owner = count ? instructions(code, &bytes, &size) : NULL;

    for (unsigned i = 0; owner && i < count && offsets[i] + 2 < size; i++)
        if (is_midst(bytes + offsets[i]))
            offsets[kept++] = offsets[i];
    PyErr_Clear();
    return kept;
}

/* ---- loops on one line ---- */

/* What is left of a table of exception handlers (CPython's InternalDocs/exception_handling.md):
 * numbers of six bits a byte, the highest first; 64: more follow. */
struct handlers {
    const unsigned char *at, *end;
};

static int take_number(struct handlers *handlers)
{
    unsigned number = 0;

    while (handlers->at < handlers->end) {
        unsigned char byte = *handlers->at++;
        number = (number & 0xffffff) << 6 | (byte & 63);
        if (!(byte & 64))
            break;
    }
    return (int)number;
}

/* The first instruction of the handler of what is raised at an offset; -1: there is none. */
static int handler_at(PyObject *code, int offset)
{
    _cleanup_unref_ PyObject *table = PyObject_GetAttrString(code, "co_exceptiontable");
    const unsigned char *bytes = NULL;
    Py_ssize_t size;
    _cleanup_unref_ PyObject *owner = instructions(code, &bytes, &size);
    struct handlers handlers = {0};
    int found = -1;

    if (table && PyBytes_Check(table)) {
        handlers.at = (const unsigned char *)PyBytes_AsString(table);
        handlers.end = handlers.at + PyBytes_Size(table);
    }
    while (owner && handlers.at < handlers.end && found < 0) {
        int begin = 2 * take_number(&handlers), length = 2 * take_number(&handlers),
            target = 2 * take_number(&handlers);
        take_number(&handlers); /* the depth of the stack */
        if (begin <= offset && offset - begin < length && target >= 0 && target < size)
            found = bytes[target];
    }
    PyErr_Clear();
    return found;
}

/* The handler that puts back the variables of a comprehension, which is part of the code around it:
 * no other one begins as it does. */
static int comprehension_handler(void)
{
    static int known = -1;
    static bool is;

    if (is)
        return known;
    _cleanup_unref_ PyObject *code = Py_CompileString("[a for b in c]", "<probefs>", Py_eval_input);
    for (int offset = 0; code && offset < 64 && known < 0; offset += 2)
        known = handler_at(code, offset);
    PyErr_Clear();
    is = code;
    return known;
}

int statement_jump(PyObject *code, int from, int to)
{
    static int (*line_at)(PyObject *, int); /* PyCode_Addr2Line */

    if (!line_at)
        line_at = (int (*)(PyObject *, int))looked_up.PyCode_Addr2Line;
    if (!line_at || to >= from)
        return 0;
    int line = line_at(code, to), handler;
    if (line <= 0 || line_at(code, from) != line)
        return 0;
    handler = handler_at(code, to);
    return handler >= 0 && handler == comprehension_handler() ? 0 : line;
}
