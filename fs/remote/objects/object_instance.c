/* What an instance holds itself. Its __dict__ may be
 *   a dict, whose address is at tp_dictoffset (up to 3.10, and later for classes that were not
 *     made by Python code), or before the object (a "managed" dict, 3.11 on);
 *   not made yet: values by the keys that the class shares, in a table of their own whose address
 *     is before the object (3.11, 3.12), or inside the object (3.13 on).
 * Sources: Objects/object.c _PyObject_ComputedDictPointer, Include/internal/pycore_object.h. */
#include "fs/remote/objects/object.h"
#include "fs/remote/objects/object_dict.h"

#include <errno.h>
#include <string.h>

#define INSTANCE_SIZE_MAX (1 << 24) /* bytes */

#define MANAGED_VALUES_311 (-32) /* bytes: before the object, as is a managed dict */

#define MEMBER_SIZE 40 /* sizeof(PyMemberDef), and its fields: Include/descrobject.h */
#define MEMBER_TYPE 8
#define MEMBER_OFFSET 16
#define MEMBER_OBJECT 6     /* Py_T_OBJECT: __slots__ up to nothing; C types */
#define MEMBER_OBJECT_EX 16 /* Py_T_OBJECT_EX: __slots__ */

struct storage {
    uint64_t dict;         /* 0: none, or ... */
    uint64_t keys, values; /* ... these */
};

/* A pointer at a signed distance from the object. */
static bool read_at(struct view *view, uint64_t object, int64_t offset, uint64_t *out)
{
    return view_read64(view, object + (uint64_t)offset, out);
}

static int managed_storage(struct view *view, const struct offsets *o, uint64_t object,
                           const struct object_class *class, struct storage *out)
{
    uint64_t pointer, size;

    if (!read_at(view, object, o->managed_dict, &pointer))
        return -EFAULT;
    if (o->version < 0x030c0000) {
        out->dict = pointer;
        if (!pointer && !read_at(view, object, MANAGED_VALUES_311, &out->values))
            return -EFAULT;
    } else if (o->version < 0x030d0000) {
        if (pointer & 1) /* a PyDictValues, less one */
            out->values = pointer + 1;
        else
            out->dict = pointer;
    } else {
        out->dict = pointer;
        if (!pointer && class->flags & TPFLAGS_INLINE_VALUES) {
            if (!object_field(view, class->type, o->type_basicsize, &size) ||
                size > INSTANCE_SIZE_MAX)
                return -EFAULT;
            const uint8_t *head = view_read(view, object + size, 4); /* its `valid` is the last */
            if (!head)
                return -EFAULT;
            if (head[3])
                out->values = object + size;
        }
    }
    if (out->values && !object_field(view, class->type, o->heaptype_cached_keys, &out->keys))
        return -EFAULT;
    return 0;
}

/* tp_dictoffset counts from the end where the size varies: subclasses of int, tuple and so on. */
static int dict_from_end(struct view *view, const struct offsets *o, uint64_t object, uint64_t type,
                         int64_t dictoffset, uint64_t *out)
{
    uint64_t basicsize, itemsize, n;

    if (!object_field(view, type, o->type_basicsize, &basicsize) ||
        !object_field(view, type, o->type_itemsize, &itemsize) || !object_size(view, o, object, &n))
        return -EFAULT;
    if ((int64_t)n < 0) /* the sign of an int */
        n = -n;
    if (basicsize > INSTANCE_SIZE_MAX || itemsize > INSTANCE_SIZE_MAX || n > INSTANCE_SIZE_MAX)
        return -EFAULT;
    int64_t size = (int64_t)((basicsize + itemsize * n + 7) & ~7ull);
    return size + dictoffset >= o->object_size && read_at(view, object, size + dictoffset, out)
               ? 0
               : -EFAULT;
}

static int find_storage(struct view *view, const struct offsets *o, uint64_t object,
                        const struct object_class *class, struct storage *out)
{
    uint64_t field;

    *out = (struct storage){0};
    if (o->version >= 0x030b0000 && class->flags & TPFLAGS_MANAGED_DICT)
        return managed_storage(view, o, object, class, out);
    if (!object_field(view, class->type, o->type_dictoffset, &field))
        return -EFAULT;
    int64_t dictoffset = (int64_t)field;
    if (!dictoffset)
        return 0;
    if (dictoffset > INSTANCE_SIZE_MAX || dictoffset < -INSTANCE_SIZE_MAX)
        return -EFAULT;
    if (dictoffset < 0)
        return dict_from_end(view, o, object, class->type, dictoffset, &out->dict);
    return read_at(view, object, dictoffset, &out->dict) ? 0 : -EFAULT;
}

struct attribute_walk {
    struct view *view;
    const struct offsets *offsets;
    uint64_t object;
    attribute_visit *visit;
    void *arg;
    unsigned classes_left;
};

/* The members of one class made by Python code stand behind it, as many as its ob_size says, and
 * behind means behind all its metaclass adds. */
static int class_slots(void *arg, uint64_t type)
{
    struct attribute_walk *walk = arg;
    const int64_t first = walk->offsets->object_size;
    uint64_t flags, n, metatype, size, name, offset;

    if (!walk->classes_left--)
        return -E2BIG;
    if (!object_type(walk->view, walk->offsets, type, &metatype) ||
        !object_field(walk->view, type, walk->offsets->type_flags, &flags))
        return -EFAULT;
    if (!(flags & TPFLAGS_HEAPTYPE))
        return 0;
    if (!object_size(walk->view, walk->offsets, type, &n) ||
        !object_field(walk->view, metatype, walk->offsets->type_basicsize, &size) ||
        size > INSTANCE_SIZE_MAX)
        return -EFAULT;
    if (n > SLOTS_MAX)
        n = SLOTS_MAX;
    if (!n)
        return 0;
    const uint8_t *members = view_read(walk->view, type + size, (uint32_t)n * MEMBER_SIZE);
    if (!members)
        return -EFAULT;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *member = members + i * MEMBER_SIZE;
        uint32_t kind = load32(member + MEMBER_TYPE);
        struct own_attribute attribute = {0};
        name = load64(member);
        offset = load64(member + MEMBER_OFFSET);
        if ((kind != MEMBER_OBJECT && kind != MEMBER_OBJECT_EX) || offset < (uint64_t)first ||
            offset > INSTANCE_SIZE_MAX ||
            !cstring_read(walk->view, name, attribute.name, sizeof attribute.name) ||
            !view_read64(walk->view, walk->object + offset, &attribute.value) || !attribute.value)
            continue;
        int r = walk->visit(walk->arg, &attribute);
        if (r)
            return r;
    }
    return 0;
}

static int dict_attribute(void *arg, uint64_t key, uint64_t value)
{
    struct attribute_walk *walk = arg;
    struct own_attribute attribute = {.key = key, .value = value};

    return walk->visit(walk->arg, &attribute);
}

int instance_iterate(struct view *view, const struct offsets *offsets, uint64_t object,
                     attribute_visit *visit, void *arg)
{
    struct attribute_walk walk = {view, offsets, object, visit, arg, MRO_MAX};
    struct object_class class;
    struct storage storage;
    uint64_t mro;

    int r = object_classify(view, offsets, object, &class);
    if (r < 0)
        return r;
    if (object_field(view, class.type, offsets->type_mro, &mro) && mro)
        r = tuple_iterate(view, offsets, mro, class_slots, &walk, NULL);
    if (r)
        return r;
    r = find_storage(view, offsets, object, &class, &storage);
    if (r < 0)
        return r;
    if (storage.dict)
        return dict_iterate(view, offsets, storage.dict, dict_attribute, &walk, NULL);
    if (storage.values)
        return split_iterate(view, offsets, storage.keys, storage.values, dict_attribute, &walk);
    return 0;
}

struct attribute_search {
    struct view *view;
    const struct offsets *offsets;
    const char *name;
    uint64_t value;
};

static int match_attribute(void *arg, const struct own_attribute *attribute)
{
    struct attribute_search *search = arg;

    if (attribute->key ? !str_equals(search->view, search->offsets, attribute->key, search->name)
                       : strcmp(attribute->name, search->name) != 0)
        return 0;
    search->value = attribute->value;
    return 1;
}

int instance_attribute(struct view *view, const struct offsets *offsets, uint64_t object,
                       const char *name, uint64_t *value)
{
    struct attribute_search search = {view, offsets, name, 0};

    int r = instance_iterate(view, offsets, object, match_attribute, &search);
    if (r < 0)
        return r;
    if (r == 0)
        return -ENOENT;
    *value = search.value;
    return 0;
}
