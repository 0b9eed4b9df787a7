#include "agent/breakpoint/expression.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/codes.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/text.h"

#include <stdio.h>

#define COMPILED 1024u                  /* a power of two: so many are kept */
#define FILE_NAME "<probefs condition>" /* AGENT_ENTRIES has it */
#define ARGUMENTS_MAX 64                /* names of one expression */

/* One expression in one code object. */
struct compiled {
    struct breakpoint *breakpoint; /* a reference; NULL: free */
    int which;
    PyObject *code;  /* in which it is evaluated; a reference, as all of these are */
    PyObject *body;  /* code object of the function */
    PyObject *names; /* tuple: its parameters */
    /* NULL: made anew each time, so as not to keep globals that are no module's */
    PyObject *function;
    PyObject *globals; /* of it */
};

struct expressions {
    struct compiled all[COMPILED];
};

static struct {
    /* PyObject_Vectorcall, since 3.12 */
    PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
    PyObject *(*function_new)(PyObject *, PyObject *); /* PyFunction_New */
    /* PyFrame_GetVar, since 3.12: new, NameError */
    PyObject *(*variable)(PyFrameObject *, PyObject *);
    PyObject *(*globals)(PyFrameObject *); /* PyFrame_GetGlobals, since 3.11: new */
} api;

bool expression_bind(void)
{
    api.vectorcall = (PyObject * (*)(PyObject *, PyObject *const *, size_t, PyObject *))
                         looked_up.PyObject_Vectorcall;
    api.function_new = (PyObject * (*)(PyObject *, PyObject *)) looked_up.PyFunction_New;
    api.variable = (PyObject * (*)(PyFrameObject *, PyObject *)) looked_up.PyFrame_GetVar;
    api.globals = (PyObject * (*)(PyFrameObject *)) looked_up.PyFrame_GetGlobals;
    return api.function_new && codes_bind();
}

/* ---- compiling ---- */

/* What warnings.warn() goes by: a list; new. NULL: there is none. */
static PyObject *find_filters(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed, as what follows */
    PyObject *warnings = modules ? PyDict_GetItemString(modules, "warnings") : NULL;
    _cleanup_unref_ PyObject *built_in = warnings ? NULL : PyImport_ImportModule("_warnings");
    PyObject *module = warnings ? warnings : built_in;
    PyObject *filters = module ? PyObject_GetAttrString(module, "filters") : NULL;

    if (filters && PyList_CheckExact(filters))
        return filters;
    PyErr_Clear();
    Py_DecRef(filters);
    return NULL;
}

static void take_out(PyObject *list, const PyObject *item)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
        if (PyList_GetItem(list, i) == item) {
            PySequence_DelItem(list, i);
            break;
        }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* Without what the compiler warns of, which the program would show, or raise. Nobody
 * else has the GIL meanwhile. */
static PyObject *compile_text(const char *text, int start)
{
    _cleanup_unref_ PyObject *filters = find_filters();
    _cleanup_unref_ PyObject *ignore =
        Py_BuildValue("(sOOOi)", "ignore", Py_None, PyExc_Warning, Py_None, 0);

    if (!filters || !ignore || PyList_Insert(filters, 0, ignore) < 0) {
        PyErr_Clear();
        return Py_CompileString(text, FILE_NAME, start);
    }
    PyObject *code = Py_CompileString(text, FILE_NAME, start);
    take_out(filters, ignore);
    return code;
}

bool expression_check(const char *text)
{
    _cleanup_unref_ PyObject *code = compile_text(text, Py_eval_input);
    return code;
}

/* The first code object among the constants of one; new. NULL with an exception set. */
static PyObject *inner(PyObject *code)
{
    _cleanup_unref_ PyObject *constants = code ? codes_get(code, CODE_CONSTANTS) : NULL;
    Py_ssize_t count = constants ? PyTuple_Size(constants) : 0;

    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *constant = PyTuple_GetItem(constants, i);
        if (codes_is_code(constant)) {
            Py_IncRef(constant);
            return constant;
        }
    }
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_SyntaxError, "this is no expression");
}

static int append_names(PyObject *list, PyObject *code, const char *attribute)
{
    _cleanup_unref_ PyObject *names = PyObject_GetAttrString(code, attribute);
    Py_ssize_t count = names ? PyTuple_Size(names) : -1;

    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (PyUnicode_IsIdentifier(name) > 0 && PyList_Append(list, name) < 0)
            return -1;
    }
    return count < 0 ? -1 : 0;
}

/* What an expression may name there and that is no global. A list; NULL with an exception set. */
static PyObject *candidates(const struct expression_scope *scope, bool has_own)
{
    _cleanup_unref_ PyObject *list = PyList_New(0);

    if (!list)
        return NULL;
    if (scope->code && (append_names(list, scope->code, "co_varnames") < 0 ||
                        append_names(list, scope->code, "co_cellvars") < 0 ||
                        append_names(list, scope->code, "co_freevars") < 0))
        return NULL;
    if (has_own && append_names(list, scope->code, "co_names") < 0) /* a class's body */
        return NULL;
    for (size_t i = 0; i < EXPRESSION_EXTRAS && scope->extras[i].name; i++) {
        _cleanup_unref_ PyObject *name = PyUnicode_FromString(scope->extras[i].name);
        if (!name || PyList_Append(list, name) < 0)
            return NULL;
    }
    return steal_pointer(list);
}

static PyObject *join(const char *separator, PyObject *names)
{
    _cleanup_unref_ PyObject *string = PyUnicode_FromString(separator);
    return string ? PyUnicode_Join(string, names) : NULL;
}

static PyObject *compile(PyObject *text, int start)
{
    const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    return bytes ? compile_text(bytes, start) : NULL;
}

/* Which of the candidates it names: in a function that has them as variables, these are what
 * it is closed over. A tuple. */
static PyObject *find_names(const char *text, PyObject *list)
{
    if (PyList_Size(list) == 0)
        return PyTuple_New(0);
    _cleanup_unref_ PyObject *targets = join(" = ", list);
    _cleanup_unref_ PyObject *source =
        targets ? PyUnicode_FromFormat("def probefs():\n %U = None\n return lambda: (%s\n)",
                                       targets, text)
                : NULL;
    _cleanup_unref_ PyObject *module = compile(source, Py_file_input);
    _cleanup_unref_ PyObject *outer = inner(module);
    _cleanup_unref_ PyObject *lambda = outer ? inner(outer) : NULL;
    return lambda ? PyObject_GetAttrString(lambda, "co_freevars") : NULL;
}

static PyObject *make_body(const char *text, PyObject *names)
{
    _cleanup_unref_ PyObject *parameters = join(", ", names);
    _cleanup_unref_ PyObject *source =
        parameters ? PyUnicode_FromFormat("lambda %U: (%s\n)", parameters, text) : NULL;
    _cleanup_unref_ PyObject *whole = compile(source, Py_eval_input);
    return whole ? inner(whole) : NULL;
}

/* Whether a frame has a dict of local variables that is not its globals': a class's body, or
 * what exec() was given two for. */
static bool has_own_dict(const struct expression_scope *scope, PyObject *globals)
{
    if (!scope->frame || codes_number(scope->code, CODE_FLAGS) & CO_OPTIMIZED)
        return false;
    _cleanup_unref_ PyObject *locals = PyObject_GetAttrString((PyObject *)scope->frame, "f_locals");
    PyErr_Clear();
    return locals && locals != globals;
}

/* Whether these are a module's, which has them for as long as it is there. */
static bool are_modules(PyObject *globals)
{
    PyObject *name = PyDict_GetItemString(globals, "__name__"); /* borrowed */
    _cleanup_unref_ PyObject *module = name && PyUnicode_Check(name) ? PyImport_GetModule(name)
                                                                     : NULL;
    bool are = module && PyModule_Check(module) && PyModule_GetDict(module) == globals;

    PyErr_Clear();
    return are;
}

static void clear(struct compiled *compiled)
{
    struct compiled old = *compiled;

    *compiled = (struct compiled){0};
    breakpoint_unref(old.breakpoint);
    Py_DecRef(old.code);
    Py_DecRef(old.body);
    Py_DecRef(old.names);
    Py_DecRef(old.function);
    Py_DecRef(old.globals);
}

/* Nothing of the program's is run, but for what the compiler warns of. */
static int fill(struct compiled *compiled, const struct breakpoint *breakpoint, int which,
                const char *text, const struct expression_scope *scope, PyObject *globals)
{
    _cleanup_unref_ PyObject *list = candidates(scope, has_own_dict(scope, globals));
    _cleanup_unref_ PyObject *names = list ? find_names(text, list) : NULL;
    _cleanup_unref_ PyObject *body = names ? make_body(text, names) : NULL;

    if (!body)
        return -1;
    if (PyTuple_Size(names) > ARGUMENTS_MAX) {
        PyErr_Format(PyExc_SyntaxError, "it names more than %d variables", ARGUMENTS_MAX);
        return -1;
    }
    clear(compiled);
    Py_IncRef(scope->code);
    *compiled = (struct compiled){.breakpoint = breakpoint_ref((struct breakpoint *)breakpoint),
                                  .which = which,
                                  .code = scope->code,
                                  .body = steal_pointer(body),
                                  .names = steal_pointer(names)};
    return 0;
}

/* ---- evaluating ---- */

static PyObject *globals_of(PyFrameObject *frame)
{
    if (frame)
        return api.globals ? api.globals(frame)
                           : PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *module = PyImport_AddModule("__main__"); /* borrowed */
    PyObject *globals = module ? PyModule_GetDict(module) : NULL;
    Py_IncRef(globals);
    return globals;
}

static PyObject *find_item(PyObject *mapping, PyObject *name)
{
    PyObject *value = mapping ? PyObject_GetItem(mapping, name) : NULL;
    if (!value && PyErr_ExceptionMatches(PyExc_KeyError))
        PyErr_Clear();
    return value;
}

PyObject *expression_variable(PyFrameObject *frame, PyObject *name)
{
    if (api.variable) {
        PyObject *value = api.variable(frame, name);
        if (!value)
            PyErr_Clear();
        return value;
    }
    _cleanup_unref_ PyObject *locals = PyObject_GetAttrString((PyObject *)frame, "f_locals");
    PyObject *value = find_item(locals, name);
    PyErr_Clear();
    return value;
}

/* Looks a name up as code does that isn't a function's: a class's body, and comprehensions in a
 * module. */
static PyObject *search(const struct expression_scope *scope, PyObject *globals, PyObject *name)
{
    _cleanup_unref_ PyObject *locals = PyObject_GetAttrString((PyObject *)scope->frame, "f_locals");
    PyObject *value = find_item(locals, name);

    if (!value && !PyErr_Occurred())
        value = find_item(globals, name);
    if (!value && !PyErr_Occurred())
        value = find_item(PyEval_GetBuiltins(), name);
    return value;
}

static PyObject *argument(const struct expression_scope *scope, PyObject *globals, PyObject *name)
{
    for (size_t i = 0; i < EXPRESSION_EXTRAS && scope->extras[i].name; i++)
        if (PyUnicode_CompareWithASCIIString(name, scope->extras[i].name) == 0) {
            PyObject *value = scope->extras[i].value;
            Py_IncRef(value);
            return value ? value
                         : PyErr_Format(PyExc_NameError, "%R is not known, or was not bound", name);
        }
    PyObject *value = expression_variable(scope->frame, name);
    if (!value && !(codes_number(scope->code, CODE_FLAGS) & CO_OPTIMIZED))
        value = search(scope, globals, name);
    return value || PyErr_Occurred() ? value
                                     : PyErr_Format(PyExc_NameError, "%R has no value here", name);
}

static PyObject *call(PyObject *function, PyObject **arguments, Py_ssize_t count)
{
    if (api.vectorcall)
        return api.vectorcall(function, arguments, (size_t)count, NULL);
    _cleanup_unref_ PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count && tuple; i++) {
        Py_IncRef(arguments[i]);
        PyTuple_SetItem(tuple, i, arguments[i]);
    }
    return tuple ? PyObject_CallObject(function, tuple) : NULL;
}

static PyObject *evaluate(PyObject *function, PyObject *names, PyObject *globals,
                          const struct expression_scope *scope)
{
    PyObject *arguments[ARGUMENTS_MAX], *value = NULL;
    Py_ssize_t count = PyTuple_Size(names), have = 0;

    while (have < count &&
           (arguments[have] = argument(scope, globals, PyTuple_GetItem(names, have))))
        have++;
    if (have == count)
        value = call(function, arguments, count);
    while (have)
        Py_DecRef(arguments[--have]);
    return value;
}

/* The function for these globals; new. NULL with an exception set. */
static PyObject *function_for(struct compiled *compiled, PyObject *globals)
{
    if (compiled->function && compiled->globals == globals) {
        Py_IncRef(compiled->function);
        return compiled->function;
    }
    PyObject *function = api.function_new(compiled->body, globals);
    if (function && are_modules(globals)) {
        python_clear(&compiled->function);
        python_clear(&compiled->globals);
        Py_IncRef(compiled->function = function);
        Py_IncRef(compiled->globals = globals);
    }
    return function;
}

static struct compiled *slot_of(struct expressions *all, const struct breakpoint *breakpoint,
                                int which, const PyObject *code)
{
    uint64_t x = ((uintptr_t)code >> 4) ^ ((uintptr_t)breakpoint >> 3) * 31 ^
                 (uint64_t)(which + 1) << 40;
    return &all->all[(x * 0x9e3779b97f4a7c15 >> 40) % COMPILED];
}

PyObject *expression_value(struct expressions **all, const struct breakpoint *breakpoint, int which,
                           const char *text, const struct expression_scope *scope)
{
    if (!*all && !(*all = calloc(1, sizeof **all)))
        return PyErr_NoMemory();
    struct compiled *compiled = slot_of(*all, breakpoint, which, scope->code);
    _cleanup_unref_ PyObject *globals = globals_of(scope->frame);
    if (!globals)
        return NULL;
    if ((compiled->breakpoint != breakpoint || compiled->which != which ||
         compiled->code != scope->code) &&
        fill(compiled, breakpoint, which, text, scope, globals) < 0)
        return NULL;
    /* what follows may run anything, and then there may be something else in that place */
    _cleanup_unref_ PyObject *names = compiled->names, *function = NULL;
    Py_IncRef(names);
    function = function_for(compiled, globals);
    return function ? evaluate(function, names, globals, scope) : NULL;
}

void expressions_forget(struct expressions **all)
{
    for (unsigned i = 0; *all && i < COMPILED; i++)
        if ((*all)->all[i].breakpoint && (*all)->all[i].breakpoint->removed)
            clear(&(*all)->all[i]);
}

void expressions_free(struct expressions **all)
{
    for (unsigned i = 0; *all && i < COMPILED; i++)
        clear(&(*all)->all[i]);
    free(*all);
    *all = NULL;
}
