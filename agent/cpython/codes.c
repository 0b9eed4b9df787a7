/* What is not found: code that only an object which the cyclic collector doesn't know of
 * refers to, and that isn't run. */
#include "agent/cpython/codes.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/text.h"
#include "agent/cpython/thread_states.h"

#define FRAMES_MAX 20000 /* of a thread */
#define DEPTH_MAX 100    /* of functions in functions */
#define HELD_DEPTH_MAX 6 /* from a module on: class, dict, descriptor, wrapper, closure, cell */
#define OWN_MAX 1000     /* objects that CPython 3.12 forgets by itself as it starts */

static struct {
    /* makers: of generators, coroutines, asynchronous generators */
    PyTypeObject *code, *function, *makers[3];
    struct attribute attributes[CODE_ATTRIBUTES];
    size_t words[CODE_ATTRIBUTES];          /* which word of a code object it is; 0: not known */
    PyObject *(*function_code)(PyObject *); /* PyFunction_GetCode: borrowed */
    /* PyUnstable_GC_VisitObjects, since 3.12 */
    void (*each_object)(int (*visit)(PyObject *, void *), void *);
    bool bound;
} api;

static const char *const attribute_names[CODE_ATTRIBUTES] = {
    [CODE_FILE] = "co_filename",     [CODE_NAME] = "co_name",
    [CODE_QUALNAME] = "co_qualname", [CODE_FIRST_LINE] = "co_firstlineno",
    [CODE_FLAGS] = "co_flags",       [CODE_CONSTANTS] = "co_consts",
};

static bool bind_attributes(void)
{
    for (size_t i = 0; i < CODE_ATTRIBUTES; i++)
        if (!attribute_find((PyObject *)api.code, attribute_names[i], &api.attributes[i]) &&
            i != CODE_QUALNAME)
            return false;
    if (!api.attributes[CODE_QUALNAME].get) /* since 3.11 */
        attribute_find((PyObject *)api.code, attribute_names[CODE_NAME],
                       &api.attributes[CODE_QUALNAME]);
    return true;
}

/* A module's code object, that of a function in it, and of one in that. */
static bool make_samples(PyObject *samples[3])
{
    samples[0] = Py_CompileString("def f():\n def g(): pass\n", "<probefs>", Py_file_input);
    for (int i = 0; i < 2 && samples[i]; i++) {
        _cleanup_unref_ PyObject *constants = codes_get(samples[i], CODE_CONSTANTS);
        for (Py_ssize_t j = 0; constants && j < PyTuple_Size(constants); j++) {
            PyObject *constant = PyTuple_GetItem(constants, j);
            if (codes_is_code(constant) && !samples[i + 1])
                Py_IncRef(samples[i + 1] = constant);
        }
    }
    PyErr_Clear();
    return samples[2];
}

static bool is_word(PyObject *const samples[3], enum code_attribute attribute, size_t word)
{
    for (int i = 0; i < 3; i++) {
        _cleanup_unref_ PyObject *value = codes_get(samples[i], attribute);
        if (!value || ((PyObject *const *)samples[i])[word] != value)
            return false;
    }
    return true;
}

/* Asking each of 100000 code objects by its descriptors takes 10 ms. */
static void find_words(void)
{
    static const enum code_attribute looked_for[] = {CODE_FILE, CODE_NAME, CODE_CONSTANTS};
    PyObject *samples[3] = {0};
    _cleanup_unref_ PyObject *object =
        PyObject_GetAttrString((PyObject *)api.code, "__basicsize__");
    size_t size = object ? PyLong_AsSize_t(object) : 0;

    PyErr_Clear();
    if (make_samples(samples) && size < 4096)
        for (size_t i = 0; i < ARRAY_SIZE(looked_for); i++)
            for (size_t word = size / sizeof(void *); word-- > 1 && !api.words[looked_for[i]];)
                if (is_word(samples, looked_for[i], word))
                    api.words[looked_for[i]] = word;
    for (int i = 0; i < 3; i++)
        Py_DecRef(samples[i]);
}

bool codes_bind(void)
{
    void *const makers[] = {looked_up.PyGen_Type, looked_up.PyCoro_Type, looked_up.PyAsyncGen_Type};

    if (api.bound)
        return true;
    api.code = looked_up.PyCode_Type;
    api.function = looked_up.PyFunction_Type;
    for (size_t i = 0; i < ARRAY_SIZE(makers); i++)
        api.makers[i] = makers[i];
    api.function_code = (PyObject * (*)(PyObject *)) looked_up.PyFunction_GetCode;
    api.each_object =
        (void (*)(int (*)(PyObject *, void *), void *))looked_up.PyUnstable_GC_VisitObjects;
    if (!api.code || !api.function || !api.function_code || !bind_attributes())
        return false;
    find_words();
    api.bound = true;
    return true;
}

bool codes_is_code(const PyObject *object) { return Py_TYPE(object) == api.code; }

PyObject *codes_get(PyObject *code, enum code_attribute attribute)
{
    return attribute_of(&api.attributes[attribute], code);
}

PyObject *codes_peek(PyObject *code, enum code_attribute attribute)
{
    size_t word = api.words[attribute];

    if (word)
        return ((PyObject **)code)[word];
    PyObject *value = codes_get(code, attribute);
    Py_DecRef(value);
    return value;
}

long codes_number(PyObject *code, enum code_attribute attribute)
{
    _cleanup_unref_ PyObject *number = codes_get(code, attribute);
    return number ? PyLong_AsLong(number) : 0;
}

int codes_number_in(PyObject *tuple, Py_ssize_t at)
{
    PyObject *number = PyTuple_Check(tuple) && at < PyTuple_Size(tuple) ? PyTuple_GetItem(tuple, at)
                                                                        : NULL;
    return number && PyLong_Check(number) ? (int)PyLong_AsLong(number) : -1;
}

/* ---- the set ---- */

static size_t hash(const PyObject *code)
{
    return ((uintptr_t)code >> 4) * 0x9e3779b97f4a7c15 >> 32;
}

static void put(struct codes *codes, size_t index)
{
    size_t at = hash(codes->all[index].code);

    while (codes->slots[at & (codes->nslots - 1)])
        at++;
    codes->slots[at & (codes->nslots - 1)] = (uint32_t)index + 1;
}

static bool grow(struct codes *codes)
{
    size_t room = codes->room ? 2 * codes->room : 1024;
    struct code_entry *all = realloc(codes->all, room * sizeof *all);
    uint32_t *slots = calloc(2 * room, sizeof *slots);

    if (all) {
        codes->all = all;
        codes->room = slots ? room : codes->room;
    }
    if (!all || !slots) {
        free(slots);
        return false;
    }
    free(codes->slots);
    codes->slots = slots;
    codes->nslots = 2 * room;
    for (size_t i = 0; i < codes->count; i++)
        put(codes, i);
    return true;
}

long codes_index(const struct codes *codes, const PyObject *code)
{
    uint32_t index;

    if (!codes->nslots)
        return -1;
    for (size_t at = hash(code); (index = codes->slots[at & (codes->nslots - 1)]); at++)
        if (codes->all[index - 1].code == code)
            return index - 1;
    return -1;
}

/* Adds a code object, unless it is there. Its index; -1: there is no room. parent: the index of the
 * one that it is defined in, which is noted in any case; -1: none. */
static int add(struct codes *codes, PyObject *code, int parent, bool *known)
{
    long index = codes_index(codes, code);

    *known = index >= 0;
    if (*known) {
        if (parent >= 0)
            codes->all[index].parent = parent;
        return (int)index;
    }
    if (codes->count == CODES_MAX || (codes->count == codes->room && !grow(codes))) {
        codes->cut = true;
        return -1;
    }
    Py_IncRef(code);
    codes->all[codes->count] = (struct code_entry){.code = code, .parent = parent};
    put(codes, codes->count);
    return (int)codes->count++;
}

void codes_clear(struct codes *codes)
{
    for (size_t i = 0; i < codes->count; i++) {
        Py_DecRef(codes->all[i].qualname);
        Py_DecRef(codes->all[i].code);
    }
    free(codes->all);
    free(codes->slots);
    *codes = (struct codes){0};
}

/* ---- qualified names ---- */

/* Notes the qualified name of a function for its code, unless the function was given another one,
 * as functools.wraps() does. */
static void note_qualname(struct codes *codes, PyObject *function)
{
    PyObject *code = api.function_code(function);
    long index = codes_index(codes, code);
    _cleanup_unref_ PyObject *name = codes_get(code, CODE_NAME);
    PyObject *qualname = index >= 0 && !codes->all[index].qualname
                             ? PyObject_GetAttrString(function, "__qualname__")
                             : NULL;

    if (qualname && name && PyUnicode_Check(qualname) &&
        PyUnicode_Tailmatch(qualname, name, 0, PyUnicode_GetLength(qualname), 1) > 0)
        codes->all[index].qualname = qualname;
    else
        Py_DecRef(qualname);
    PyErr_Clear();
}

static bool is_function(PyObject *code) { return codes_number(code, CODE_FLAGS) & CO_OPTIMIZED; }

/* The qualified name of what is defined in a function or a class; a module has no name. */
static PyObject *join(const struct codes *codes, long parent, PyObject *name, int depth)
{
    const struct code_entry *entry = &codes->all[parent];
    _cleanup_unref_ PyObject *own = codes_get(entry->code, CODE_NAME);
    const char *between = is_function(entry->code) ? ".<locals>." : ".";

    if (!own ||
        (!is_function(entry->code) && PyUnicode_CompareWithASCIIString(own, "<module>") == 0)) {
        Py_IncRef(name);
        return name;
    }
    _cleanup_unref_ PyObject *outer = entry->qualname || entry->parent < 0 || !depth
                                          ? NULL
                                          : join(codes, entry->parent, own, depth - 1);
    return PyUnicode_FromFormat("%U%s%U",
                                outer             ? outer
                                : entry->qualname ? entry->qualname
                                                  : own,
                                between, name);
}

PyObject *codes_qualname(const struct codes *codes, long index)
{
    const struct code_entry *entry = &codes->all[index];
    PyObject *name = entry->qualname;

    if (!name && (python.version >= 0x030b || entry->parent < 0))
        return codes_get(entry->code, CODE_QUALNAME);
    if (!name) {
        _cleanup_unref_ PyObject *own = codes_get(entry->code, CODE_NAME);
        return own ? join(codes, entry->parent, own, DEPTH_MAX) : NULL;
    }
    Py_IncRef(name);
    return name;
}

/* ---- where they are found ---- */

struct walk {
    struct codes *codes;
    const struct codes_wanted *wanted; /* NULL: all */
    PyObject *file;                    /* of the last one, borrowed: it must not be looked into */
    bool file_wanted;
};

static bool is_wanted(struct walk *walk, PyObject *code)
{
    const struct codes_wanted *wanted = walk->wanted;

    /* then it is asked what others are defined in */
    if (!wanted || (wanted->name && python.version < 0x030b))
        return true;
    if (wanted->file) {
        PyObject *file = codes_peek(code, CODE_FILE);
        if (file != walk->file)
            walk->file_wanted = wanted->file(wanted->arg, file);
        walk->file = file;
        if (walk->file_wanted)
            return true;
    }
    return wanted->name && wanted->name(wanted->arg, codes_peek(code, CODE_NAME));
}

/* What is defined in code of a file is of that file: where nothing else is of interest, that
 * of others isn't looked into. */
static void add_code(struct walk *walk, PyObject *code, int parent, unsigned depth)
{
    bool wanted = is_wanted(walk, code), known = false;
    int index = wanted ? add(walk->codes, code, parent, &known) : -1;

    if (known || depth == DEPTH_MAX || (!wanted && !walk->wanted->name))
        return;
    PyObject *constants = codes_peek(code, CODE_CONSTANTS);
    Py_ssize_t count = constants ? PyTuple_Size(constants) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *constant = PyTuple_GetItem(constants, i); /* borrowed */
        if (constant && codes_is_code(constant))
            add_code(walk, constant, index, depth + 1);
    }
}

/* Adds the code of a frame, a new reference that is given up, and of the frames outside it. */
static void add_stack(struct walk *walk, PyFrameObject *frame)
{
    for (unsigned depth = 0; frame && depth < FRAMES_MAX; depth++) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        PyFrameObject *back = python.frame_back(frame);
        add_code(walk, code, -1, 0);
        Py_DecRef(code);
        Py_DecRef((PyObject *)frame);
        frame = back;
    }
    Py_DecRef((PyObject *)frame);
}

/* If threads can't be looked at, the code that they run is found as far as functions have it. */
static void add_frames(struct walk *walk)
{
    struct thread_seen *all = NULL;
    size_t count = 0;

    walk->codes->cut |= thread_states_all(PyInterpreterState_Get(), &all, &count) < 0;
    for (size_t i = 0; i < count; i++)
        add_stack(walk, all[i].frame);
    thread_states_drop(all, 0);
    PyErr_Clear();
}

static int add_referent(PyObject *object, void *arg)
{
    if (codes_is_code(object))
        add_code(arg, object, -1, 0);
    return 0;
}

/* Called for each object that the cyclic collector knows. */
static int add_object(PyObject *object, void *arg)
{
    PyTypeObject *type = Py_TYPE(object);
    struct walk *walk = arg;

    if (type == api.function) {
        add_code(walk, api.function_code(object), -1, 0);
        if (python.version < 0x030b)
            note_qualname(walk->codes, object);
    } else if (type == api.makers[0] || type == api.makers[1] || type == api.makers[2]) {
        traverseproc traverse = (traverseproc)PyType_GetSlot(type, Py_tp_traverse);
        traverse(object, add_referent, arg);
    }
    return 1;
}

/* gc.get_objects(), before 3.12. */
static void add_listed(struct walk *walk)
{
    _cleanup_unref_ PyObject *gc = PyImport_ImportModule("gc");
    _cleanup_unref_ PyObject *objects = gc ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    Py_ssize_t count = objects ? PyList_Size(objects) : 0;

    for (Py_ssize_t i = 0; i < count; i++)
        add_object(PyList_GetItem(objects, i), walk);
    PyErr_Clear();
}

/* ---- functions that the collector was told to forget, by gc.freeze() ---- */

/* Finds those that modules and their classes hold, also behind decorators. */
struct search {
    struct walk *walk;
    unsigned depth;
    bool in_class; /* what is looked at is a class's */
};

/* Whether there are objects that the collector doesn't tell of. */
static bool are_frozen(void)
{
    _cleanup_unref_ PyObject *gc = PyImport_ImportModule("gc");
    _cleanup_unref_ PyObject *count = gc ? PyObject_CallMethod(gc, "get_freeze_count", NULL) : NULL;
    bool are = count && PyLong_Check(count) && PyLong_AsLong(count) > OWN_MAX;

    PyErr_Clear();
    return are;
}

/* Data is not looked into: only what holds functions for themselves, or for classes. */
static bool leads_on(const struct search *search, PyObject *object)
{
    return search->depth < HELD_DEPTH_MAX && PyObject_GC_IsTracked(object) &&
           !PyModule_Check(object) && !PyList_CheckExact(object) && !PyAnySet_CheckExact(object) &&
           (search->in_class || !PyDict_CheckExact(object));
}

static int look(PyObject *object, void *arg)
{
    struct search *search = arg;
    bool in_class = search->in_class;

    if (Py_TYPE(object) == api.function)
        add_object(object, search->walk);
    traverseproc traverse = leads_on(search, object)
                                ? (traverseproc)PyType_GetSlot(Py_TYPE(object), Py_tp_traverse)
                                : NULL;
    if (!traverse)
        return 0;
    search->depth++;
    search->in_class = PyType_Check(object);
    traverse(object, look, search);
    search->in_class = in_class;
    search->depth--;
    return 0;
}

/* Adds the code that objects hold; some of it is added more than once. Runs nothing of the
 * program's. */
static void add_held(struct walk *walk)
{
    struct search search = {.walk = walk};
    PyObject *modules = PyImport_GetModuleDict(), *module, *value; /* all borrowed */
    Py_ssize_t at = 0, of = 0;

    while (modules && PyDict_Next(modules, &at, NULL, &module)) {
        PyObject *dict = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        for (of = 0; dict && PyDict_Next(dict, &of, NULL, &value);)
            look(value, &search);
    }
}

/* ---- all of them ---- */

void codes_gather(struct codes *out, const struct codes_wanted *wanted)
{
    struct walk walk = {.codes = out, .wanted = wanted};

    *out = (struct codes){0};
    add_frames(&walk);
    if (api.each_object)
        api.each_object(add_object, &walk);
    else
        add_listed(&walk);
    if (are_frozen())
        add_held(&walk);
}

void codes_gather_tree(struct codes *out, PyObject *code)
{
    struct walk walk = {.codes = out};

    *out = (struct codes){0};
    add_code(&walk, code, -1, 0);
}
