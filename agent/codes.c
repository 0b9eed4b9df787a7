/* What is not found: code that only an object which the cyclic collector doesn't know of refers to, and that isn't run. */
#include "agent/codes.h"

#include "agent/text.h"

#include <dlfcn.h>
#include <string.h>

#define THREADS_MAX 65536
#define FRAMES_MAX 20000 /* of a thread */

static struct {
    PyTypeObject *code, *function, *makers[3]; /* makers: of generators, coroutines, asynchronous generators */
    struct attribute attributes[CODE_ATTRIBUTES];
    PyObject *(*function_code)(PyObject *);                        /* PyFunction_GetCode: borrowed */
    void (*each_object)(int (*visit)(PyObject *, void *), void *); /* PyUnstable_GC_VisitObjects, since 3.12 */
    PyThreadState *(*first_thread)(PyInterpreterState *);          /* PyInterpreterState_ThreadHead */
    PyThreadState *(*next_thread)(PyThreadState *);                /* PyThreadState_Next */
    PyFrameObject *(*frame)(PyThreadState *);                      /* PyThreadState_GetFrame: new */
} api;

static const char *const attribute_names[CODE_ATTRIBUTES] = {
    [CODE_FILE] = "co_filename", [CODE_NAME] = "co_name", [CODE_QUALNAME] = "co_qualname",
    [CODE_FIRST_LINE] = "co_firstlineno", [CODE_FLAGS] = "co_flags", [CODE_CONSTANTS] = "co_consts",
};

static bool bind_attributes(void)
{
    for (size_t i = 0; i < CODE_ATTRIBUTES; i++)
        if (!attribute_find((PyObject *)api.code, attribute_names[i], &api.attributes[i]) && i != CODE_QUALNAME)
            return false;
    if (!api.attributes[CODE_QUALNAME].get) /* since 3.11 */
        attribute_find((PyObject *)api.code, attribute_names[CODE_NAME], &api.attributes[CODE_QUALNAME]);
    return true;
}

bool codes_bind(void)
{
    static const char *const makers[] = {"PyGen_Type", "PyCoro_Type", "PyAsyncGen_Type"};

    if (api.frame)
        return true;
    api.code = dlsym(RTLD_DEFAULT, "PyCode_Type");
    api.function = dlsym(RTLD_DEFAULT, "PyFunction_Type");
    for (size_t i = 0; i < ARRAY_SIZE(makers); i++)
        api.makers[i] = dlsym(RTLD_DEFAULT, makers[i]);
    api.function_code = (PyObject * (*)(PyObject *)) dlsym(RTLD_DEFAULT, "PyFunction_GetCode");
    api.each_object = (void (*)(int (*)(PyObject *, void *), void *))dlsym(RTLD_DEFAULT, "PyUnstable_GC_VisitObjects");
    api.first_thread = (PyThreadState * (*)(PyInterpreterState *)) dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead");
    api.next_thread = (PyThreadState * (*)(PyThreadState *)) dlsym(RTLD_DEFAULT, "PyThreadState_Next");
    if (!api.code || !api.function || !api.function_code || !api.first_thread || !api.next_thread || !bind_attributes())
        return false;
    api.frame = (PyFrameObject * (*)(PyThreadState *)) dlsym(RTLD_DEFAULT, "PyThreadState_GetFrame");
    return api.frame;
}

bool codes_is_code(const PyObject *object) { return Py_TYPE(object) == api.code; }

PyObject *codes_get(PyObject *code, enum code_attribute attribute)
{
    return attribute_of(&api.attributes[attribute], code);
}

long codes_number(PyObject *code, enum code_attribute attribute)
{
    _cleanup_unref_ PyObject *number = codes_get(code, attribute);
    return number ? PyLong_AsLong(number) : 0;
}

/* ---- the set ---- */

static size_t hash(const PyObject *code) { return ((uintptr_t)code >> 4) * 0x9e3779b97f4a7c15 >> 32; }

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

/* Where it is parent's, that is noted also if it is there already. */
static void add(struct codes *codes, PyObject *code, int parent)
{
    long known = codes_index(codes, code);

    if (known >= 0) {
        if (parent >= 0)
            codes->all[known].parent = parent;
        return;
    }
    if (codes->count == CODES_MAX || (codes->count == codes->room && !grow(codes))) {
        codes->cut = true;
        return;
    }
    Py_IncRef(code);
    codes->all[codes->count] = (struct code_entry){code, parent};
    put(codes, codes->count++);
}

/* What is in the constants of those from `from` on, and so on. */
static void add_constants(struct codes *codes, size_t from)
{
    for (size_t i = from; i < codes->count; i++) {
        _cleanup_unref_ PyObject *constants = codes_get(codes->all[i].code, CODE_CONSTANTS);
        Py_ssize_t count = constants ? PyTuple_Size(constants) : 0;
        for (Py_ssize_t j = 0; j < count; j++) {
            PyObject *constant = PyTuple_GetItem(constants, j); /* borrowed */
            if (constant && codes_is_code(constant))
                add(codes, constant, (int)i);
        }
    }
}

void codes_clear(struct codes *codes)
{
    for (size_t i = 0; i < codes->count; i++)
        Py_DecRef(codes->all[i].code);
    free(codes->all);
    free(codes->slots);
    *codes = (struct codes){0};
}

/* ---- where they are found ---- */

static void add_frames(struct codes *codes)
{
    PyThreadState *thread = api.first_thread(PyInterpreterState_Get());

    for (unsigned i = 0; thread && i < THREADS_MAX; i++, thread = api.next_thread(thread)) {
        PyFrameObject *frame = api.frame(thread);
        for (unsigned depth = 0; frame && depth < FRAMES_MAX; depth++) {
            PyObject *code = (PyObject *)PyFrame_GetCode(frame);
            PyFrameObject *back = python.frame_back(frame);
            add(codes, code, -1);
            Py_DecRef(code);
            Py_DecRef((PyObject *)frame);
            frame = back;
        }
        Py_DecRef((PyObject *)frame);
    }
    PyErr_Clear();
}

static int add_referent(PyObject *object, void *arg)
{
    if (codes_is_code(object))
        add(arg, object, -1);
    return 0;
}

/* Called for each object that the cyclic collector knows. */
static int add_object(PyObject *object, void *arg)
{
    PyTypeObject *type = Py_TYPE(object);

    if (type == api.function) {
        add(arg, api.function_code(object), -1);
    } else if (type == api.makers[0] || type == api.makers[1] || type == api.makers[2]) {
        traverseproc traverse = (traverseproc)PyType_GetSlot(type, Py_tp_traverse);
        traverse(object, add_referent, arg);
    }
    return 1;
}

/* gc.get_objects(), before 3.12. */
static void add_listed(struct codes *codes)
{
    _cleanup_unref_ PyObject *gc = PyImport_ImportModule("gc");
    _cleanup_unref_ PyObject *objects = gc ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    Py_ssize_t count = objects ? PyList_Size(objects) : 0;

    for (Py_ssize_t i = 0; i < count; i++)
        add_object(PyList_GetItem(objects, i), codes);
    PyErr_Clear();
}

void codes_gather(struct codes *out)
{
    *out = (struct codes){0};
    add_frames(out);
    if (api.each_object)
        api.each_object(add_object, out);
    else
        add_listed(out);
    add_constants(out, 0);
}

void codes_gather_tree(struct codes *out, PyObject *code)
{
    *out = (struct codes){0};
    add(out, code, -1);
    add_constants(out, 0);
}
