#include "agent/watch/storage_address.h"

#include "agent/cpython/struct_layout.h"
#include "agent/cpython/text.h"

#include <string.h>

/* Before an instance, in bytes (Include/internal/pycore_object.h). */
#define MANAGED_DICT (-24) /* 3.11 on; in 3.12 also its values, their address less one */
#define MANAGED_VALUES_311 (-32)
#define TPFLAGS_INLINE_VALUES (1ul << 2) /* 3.13 on: in the instance, behind its basic size */
#define TPFLAGS_MANAGED_DICT (1ul << 4)
#define OBJECT_SIZE 16 /* ob_size of a list */
#define KEYS_GENERAL 0 /* dk_kind; the others have entries without a hash */
#define ENTRIES_MAX (1 << 24)

/* PyMemberDescrObject, PyMemberDef (Include/descrobject.h) */
#define MEMBER_DEFINITION 40
#define MEMBER_TYPE 8
#define MEMBER_OFFSET 16
#define MEMBER_OBJECT_EX 16

static uint64_t word(const void *base, int64_t offset)
{
    return (uint64_t)(uintptr_t)struct_layout_pointer(base, offset);
}

static uint8_t byte(const void *base, int64_t offset) { return ((const uint8_t *)base)[offset]; }

/* Whether a slot holds what it should. */
static bool holds(struct trap_memory *out, const char *const *base, int64_t offset,
                  const PyObject *expected)
{
    uint64_t address = (base ? (uint64_t)(uintptr_t)*base : 0) + (uint64_t)offset;

    if (!address || address & 7 || !expected ||
        struct_layout_pointer((const void *)(uintptr_t)address, 0) != expected)
        return false;
    *out = (struct trap_memory){
        .address = address, .length = 8, .object = true, .base = base, .offset = offset};
    return true;
}

static const char *const *cell_of(const void *base, int64_t offset)
{
    return (const char *const *)(const void *)((const char *)base + offset);
}

/* ---- keys of dicts ---- */

static bool is_key(PyObject *a, PyObject *b)
{
    if (a == b)
        return true;
    if (!a || Py_TYPE(a) != Py_TYPE(b) ||
        !(is_exactly(a, &PyUnicode_Type) || is_exactly(a, &PyLong_Type)))
        return false;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    PyErr_Clear();
    return same == 1;
}

struct entries {
    int64_t first;        /* from the beginning of the keys to the first entry */
    unsigned stride, key; /* bytes; the value is behind the key */
    uint64_t count;
};

static void find_entries(const void *keys, struct entries *out)
{
    const struct offsets *o = struct_layout();

    out->count = word(keys, o->keys_nentries);
    out->stride = 24;
    out->key = 8;
    if (o->keys_kind >= 0) {
        out->first = o->keys_indices + (1ll << byte(keys, o->keys_log2_index_bytes));
        if (byte(keys, o->keys_kind) != KEYS_GENERAL) {
            out->stride = 16;
            out->key = 0;
        }
    } else {
        uint64_t size = word(keys, o->keys_size);
        out->first = o->keys_indices + (int64_t)(size * (size <= 0xff         ? 1
                                                         : size <= 0xffff     ? 2
                                                         : size <= 0xffffffff ? 4
                                                                              : 8));
    }
}

/* Which entry has a key; -1: none. *offset: of its value, from the beginning of the keys. */
static int64_t find_key(const void *keys, PyObject *key, int64_t *offset)
{
    struct entries entries;

    find_entries(keys, &entries);
    for (uint64_t i = 0; i < entries.count && i < ENTRIES_MAX; i++) {
        int64_t at = entries.first + (int64_t)(i * entries.stride) + entries.key;
        if (!is_key((PyObject *)(uintptr_t)word(keys, at), key))
            continue;
        *offset = at + 8;
        return (int64_t)i;
    }
    return -1;
}

bool storage_address_of_dict(PyObject *dict, PyObject *key, struct trap_memory *out)
{
    const struct offsets *o = struct_layout_find();
    PyObject *value = o ? PyDict_GetItemWithError(dict, key) : NULL; /* borrowed */
    int64_t offset,
        index = value ? find_key(struct_layout_pointer(dict, o->dict_keys), key, &offset) : -1;

    PyErr_Clear();
    if (index < 0)
        return false;
    if (struct_layout_pointer(dict, o->dict_values)) /* the keys are those of many instances */
        return holds(out, cell_of(dict, o->dict_values), o->dictvalues_items + 8 * index, value);
    return holds(out, cell_of(dict, o->dict_keys), offset, value);
}

/* ---- instances ---- */

/* Finds where the values of an instance begin that has no dict; false: it has a dict, or no
 * values. */
static bool find_values(PyObject *object, const char *const **base, int64_t *offset)
{
    const struct offsets *o = struct_layout();
    const PyTypeObject *type = Py_TYPE(object);
    unsigned long flags = PyType_GetFlags((PyTypeObject *)type);
    uint64_t pointer;

    if (python.version < 0x030b || !(flags & TPFLAGS_MANAGED_DICT))
        return false;
    pointer = word(object, MANAGED_DICT);
    *base = NULL;
    if (python.version == 0x030b) {
        *base = cell_of(object, MANAGED_VALUES_311);
        *offset = 0;
        return !pointer && **base;
    }
    if (python.version == 0x030c) {
        *base = cell_of(object, MANAGED_DICT);
        *offset = 1;
        return pointer & 1;
    }
    int64_t size = (int64_t)word(type, o->type_basicsize);
    *offset = (int64_t)(uintptr_t)object + size + o->dictvalues_items;
    /* valid */
    return flags & TPFLAGS_INLINE_VALUES && size >= OBJECT_SIZE && byte(object, size + 3);
}

bool storage_address_of_instance(PyObject *object, PyObject *name, struct trap_memory *out)
{
    const struct offsets *o = struct_layout_find();
    const char *const *base;
    int64_t offset, unused;

    if (!o || !find_values(object, &base, &offset))
        return false;
    const void *keys = struct_layout_pointer(Py_TYPE(object), o->heaptype_cached_keys);
    int64_t index = keys ? find_key(keys, name, &unused) : -1;
    _cleanup_unref_ PyObject *value = index >= 0 ? PyObject_GenericGetAttr(object, name) : NULL;
    PyErr_Clear();
    return value && holds(out, base, offset + 8 * index, value);
}

bool storage_address_of_list(PyObject *list, Py_ssize_t index, struct trap_memory *out)
{
    const struct offsets *o = struct_layout_find();

    if (!o || !PyList_Check(list) || index < 0 || index >= PyList_Size(list) ||
        !holds(out, cell_of(list, o->list_items), 8 * index, PyList_GetItem(list, index)))
        return false;
    out->count = (const int64_t *)(const void *)((const char *)list + OBJECT_SIZE);
    out->index = index;
    return true;
}

bool storage_address_of_member(PyObject *object, PyObject *member, struct trap_memory *out)
{
    const struct offsets *o = struct_layout_find();
    int type;

    if (!o)
        return false;
    const void *definition = struct_layout_pointer(member, MEMBER_DEFINITION);
    memcpy(&type, (const char *)definition + MEMBER_TYPE, sizeof type);
    int64_t offset = (int64_t)word(definition, MEMBER_OFFSET);
    if (type != MEMBER_OBJECT_EX || offset < OBJECT_SIZE ||
        offset + 8 > (int64_t)word(Py_TYPE(object), o->type_basicsize))
        return false;
    PyObject *(*get)(PyObject *, PyObject *, PyObject *) =
        (PyObject * (*)(PyObject *, PyObject *, PyObject *))
            PyType_GetSlot(Py_TYPE(member), Py_tp_descr_get);
    _cleanup_unref_ PyObject *value = get ? get(member, object, (PyObject *)Py_TYPE(object)) : NULL;
    PyErr_Clear();
    return value && holds(out, NULL, (int64_t)(uintptr_t)object + offset, value);
}
