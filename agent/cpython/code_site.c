#include "agent/cpython/code_site.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/look_up.h"

/* Code that may await, beside coroutines. */
#define AWAITS (CO_GENERATOR | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR)

static const struct {
    const char *file, *func; /* how both end */
} ends[] = {
    {"/threading.py", "_bootstrap_inner"},
    {"/asyncio/events.py", "_run"},
    {"/asyncio/tasks.py", "__step_run_and_handle_result"},
    {"/asyncio/tasks.py", "__step"}, /* until 3.11 */
};

static int (*addr2line)(PyObject *code, int offset); /* PyCode_Addr2Line */

bool code_site_bind(void)
{
    addr2line = (int (*)(PyObject *, int))looked_up.PyCode_Addr2Line;
    return addr2line;
}

static unsigned hash(const void *code, unsigned salt)
{
    uint64_t x = ((uintptr_t)code >> 4) + (uint64_t)salt * 0x9e3779b97f4a7c15;
    return (unsigned)(x * 0x9e3779b97f4a7c15 >> 40);
}

static PyObject *name_of(PyObject *code)
{
    PyObject *name = PyObject_GetAttrString(code, "co_qualname"); /* since 3.11 */
    if (!name) {
        PyErr_Clear();
        name = PyObject_GetAttrString(code, "co_name");
    }
    return name;
}

static bool ends_with(const struct ring_text *text, const char *end)
{
    size_t size = strlen(end);
    return text->size >= size && memcmp(text->bytes + text->size - size, end, size) == 0;
}

static enum code_site_kind kind_of(PyObject *code, const struct ring_text *file,
                                   const struct ring_text *func)
{
    _cleanup_unref_ PyObject *object = PyObject_GetAttrString(code, "co_flags");
    long flags = object ? PyLong_AsLong(object) : 0;
    PyErr_Clear();
    enum code_site_kind kind = flags & CO_COROUTINE ? CODE_SITE_COROUTINE | CODE_SITE_AWAITS
                               : flags & AWAITS     ? CODE_SITE_AWAITS
                                                    : CODE_SITE_PLAIN;

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (ends_with(func, ends[i].func) && ends_with(file, ends[i].file))
            kind |= CODE_SITE_ENDS;
    return kind;
}

static void describe(PyObject *code, struct code_site_code *out)
{
    _cleanup_unref_ PyObject *file = PyObject_GetAttrString(code, "co_filename");
    _cleanup_unref_ PyObject *name = name_of(code);

    PyErr_Clear();
    text_of(file, &out->file, &out->file_owner);
    text_of(name, &out->func, &out->func_owner);
    out->kind = kind_of(code, &out->file, &out->func);
}

/* The entry of a code object, made if there are room and memory; else NULL. */
static struct code_site_code *find_code(struct code_sites *sites, PyObject *code)
{
    unsigned at = hash(code, 0);
    struct code_site_code *entry;

    for (; (entry = &sites->codes[at % CODE_SITE_SLOTS])->code; at++)
        if (entry->code == code)
            return entry;
    if (sites->count == CODE_SITE_CODES)
        return NULL;
    struct code_site_code fresh = {0};
    describe(code, &fresh);
    if (!fresh.file.bytes || !fresh.func.bytes) { /* there was no memory: another time */
        Py_DecRef(fresh.file_owner);
        Py_DecRef(fresh.func_owner);
        return NULL;
    }
    sites->count++;
    Py_IncRef(fresh.code = code);
    *entry = fresh;
    return entry;
}

static void fill(const struct code_site_code *entry, int line, struct code_site *out)
{
    out->file = entry->file;
    out->func = entry->func;
    out->line = line > 0 ? line : RING_NULL_INTEGER;
}

/* A text that lives in a str of the code object, and not in a copy that nobody would keep. */
static void check_lasting(const PyObject *owner, struct ring_text *text)
{
    if (!owner || text->size > RING_TEXT_MAX || !is_exactly((PyObject *)owner, &PyUnicode_Type))
        *text = (struct ring_text){0};
}

static void find_anew(PyObject *code, int offset, struct code_site *out)
{
    struct code_site_code entry = {0};

    describe(code, &entry);
    check_lasting(entry.file_owner, &entry.file);
    check_lasting(entry.func_owner, &entry.func);
    fill(&entry, addr2line(code, offset), out);
    Py_DecRef(entry.file_owner);
    Py_DecRef(entry.func_owner);
}

void code_site_find(struct code_sites *sites, PyObject *code, int offset, struct code_site *out)
{
    struct code_site_line *line = &sites->lines[hash(code, (unsigned)offset) % CODE_SITE_LINES];

    if (line->code != code || line->offset != offset) {
        struct code_site_code *entry = find_code(sites, code);
        if (!entry) {
            find_anew(code, offset, out);
            return;
        }
        *line = (struct code_site_line){code, offset, addr2line(code, offset), entry};
    }
    fill(line->entry, line->line, out);
}

enum code_site_kind code_site_kind(struct code_sites *sites, PyObject *code)
{
    const struct code_site_code *known = find_code(sites, code);
    struct code_site_code entry = {0};

    if (known)
        return known->kind;
    describe(code, &entry);
    Py_DecRef(entry.file_owner);
    Py_DecRef(entry.func_owner);
    return entry.kind;
}

void code_sites_clear(struct code_sites *sites)
{
    for (unsigned i = 0; i < CODE_SITE_SLOTS; i++) {
        struct code_site_code entry = sites->codes[i];
        sites->codes[i] = (struct code_site_code){0};
        Py_DecRef(entry.file_owner);
        Py_DecRef(entry.func_owner);
        Py_DecRef(entry.code);
    }
    sites->count = 0;
    for (unsigned i = 0; i < CODE_SITE_LINES; i++)
        sites->lines[i] = (struct code_site_line){0};
}
