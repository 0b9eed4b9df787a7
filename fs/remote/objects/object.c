#include "fs/remote/objects/object.h"

#include <errno.h>
#include <string.h>

#define PAGE 4096u
#define COPIES_MAX 65536   /* of one code object's bytecode */
#define BEHIND_HEAD 48     /* covers most small objects; fewer bytes would cost the same */
#define TYPE_SIZE_MAX 1024 /* sizeof(PyTypeObject) is about 400 */
#define TYPE_NAME_MAX 256  /* bytes of tp_name, code points of a qualified name */

static const struct {
    const char *name;
    enum object_kind kind;
} builtins[] = {
    {"NoneType", OBJECT_NONE},
    {"ellipsis", OBJECT_ELLIPSIS},
    {"NotImplementedType", OBJECT_NOT_IMPLEMENTED},
    {"bool", OBJECT_BOOL},
    {"int", OBJECT_INT},
    {"float", OBJECT_FLOAT},
    {"complex", OBJECT_COMPLEX},
    {"str", OBJECT_STR},
    {"bytes", OBJECT_BYTES},
    {"bytearray", OBJECT_BYTEARRAY},
    {"list", OBJECT_LIST},
    {"tuple", OBJECT_TUPLE},
    {"set", OBJECT_SET},
    {"frozenset", OBJECT_FROZENSET},
    {"dict", OBJECT_DICT},
    {"frozendict", OBJECT_FROZENDICT},
    {"mappingproxy", OBJECT_MAPPINGPROXY},
    {"range", OBJECT_RANGE},
    {"slice", OBJECT_SLICE},
    {"type", OBJECT_TYPE_OBJECT},
    {"function", OBJECT_FUNCTION},
    {"method", OBJECT_METHOD},
    {"builtin_function_or_method", OBJECT_BUILTIN},
    {"builtin_method", OBJECT_BUILTIN},
    {"module", OBJECT_MODULE},
    {"code", OBJECT_CODE},
    {"cell", OBJECT_CELL},
    {"generator", OBJECT_GENERATOR},
    {"coroutine", OBJECT_COROUTINE},
    {"async_generator", OBJECT_ASYNC_GENERATOR},
};

static const struct {
    uint64_t flag;
    enum object_kind kind;
} subclass_flags[] = {
    {TPFLAGS_LONG_SUBCLASS, OBJECT_INT},           {TPFLAGS_LIST_SUBCLASS, OBJECT_LIST},
    {TPFLAGS_TUPLE_SUBCLASS, OBJECT_TUPLE},        {TPFLAGS_BYTES_SUBCLASS, OBJECT_BYTES},
    {TPFLAGS_UNICODE_SUBCLASS, OBJECT_STR},        {TPFLAGS_DICT_SUBCLASS, OBJECT_DICT},
    {TPFLAGS_BASE_EXC_SUBCLASS, OBJECT_EXCEPTION}, {TPFLAGS_TYPE_SUBCLASS, OBJECT_TYPE_OBJECT},
};

void objects_queue(struct view *view, const struct offsets *o, const uint64_t *objects, size_t n)
{
    const uint32_t type = (uint32_t)o->object_type, head = (uint32_t)o->object_size;
    const uint8_t *unused;

    for (size_t i = 0; i < n; i++) {
        /* the next page need not exist */
        bool fits = (objects[i] & (PAGE - 1)) <= PAGE - head - BEHIND_HEAD;
        if (objects[i])
            (void)view_get(view, objects[i] + type, head + (fits ? BEHIND_HEAD : 0) - type,
                           &unused);
    }
}

void objects_prefetch(struct view *view, const struct offsets *offsets, const uint64_t *objects,
                      size_t n)
{
    objects_queue(view, offsets, objects, n);
    (void)view_fill(view);
}

bool object_field(struct view *view, uint64_t object, int32_t offset, uint64_t *out)
{
    return offset >= 0 && view_read64(view, object + (uint32_t)offset, out);
}

bool object_size(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *out)
{
    return object_field(view, object, offsets->object_size, out);
}

int code_copy(struct view *view, const struct offsets *o, uint64_t code, uint32_t index,
              uint64_t *out)
{
    const uint8_t *p;

    int r = view_get(view, code + (uint32_t)o->code_tlbc, 8, &p);
    if (r < 0)
        return r == -E2BIG ? -EFAULT : r;
    uint64_t array = load64(p), entry = array + 8 + 8ull * index; /* behind their number */
    if (!array || array & 7 || index >= COPIES_MAX)
        return -EFAULT;
    r = view_get(view, array, 8, &p);
    if (r == 0 && load64(p) <= index)
        return -EFAULT;
    if (r == 0 || r == -EAGAIN) {
        int then = view_get(view, entry, 8, &p);
        r = r == 0 ? then : r;
    }
    if (r == 0)
        *out = load64(p);
    return r == 0 && !*out ? -EFAULT : r == -E2BIG ? -EFAULT : r;
}

uint64_t stackref_object(const struct offsets *offsets, uint64_t reference)
{
    if (offsets->version < 0x030e0000)
        return reference;
    return (reference & 3) == 3 ? 0 : reference & ~3ull;
}

bool object_type(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *type)
{
    if (!object || object & 7)
        return false;
    objects_prefetch(view, offsets, &object, 1);
    return object_field(view, object, offsets->object_type, type) && *type && !(*type & 7);
}

bool cstring_read(struct view *view, uint64_t addr, char *buf, size_t cap)
{
    size_t n = 0;

    while (n + 1 < cap) {
        size_t step = PAGE - ((addr + n) & (PAGE - 1)); /* the next page need not exist */
        if (step > 32)
            step = 32;
        if (step > cap - 1 - n)
            step = cap - 1 - n;
        const uint8_t *data = view_read(view, addr + n, (uint32_t)step);
        if (!data)
            return false;
        memcpy(buf + n, data, step);
        if (memchr(data, 0, step))
            return true;
        n += step;
    }
    buf[n] = 0;
    return true;
}

/* Copies all of a type object but its reference count, so that its fields cost one read. */
static void type_prefetch(struct view *view, const struct offsets *offsets, uint64_t type)
{
    uint32_t head = (uint32_t)offsets->object_type;

    if (offsets->type_size > offsets->object_type && offsets->type_size <= TYPE_SIZE_MAX)
        (void)view_read(view, type + head, (uint32_t)offsets->type_size - head);
}

/* tp_flags of what is verified to be a type: its own type makes types. */
static bool type_flags(struct view *view, const struct offsets *offsets, uint64_t type,
                       uint64_t *flags)
{
    uint64_t metatype, metaflags;

    if (!type || type & 7)
        return false;
    type_prefetch(view, offsets, type);
    if (!object_field(view, type, offsets->object_type, &metatype) || !metatype)
        return false;
    type_prefetch(view, offsets, metatype);
    return object_field(view, metatype, offsets->type_flags, &metaflags) &&
           metaflags & TPFLAGS_TYPE_SUBCLASS &&
           object_field(view, type, offsets->type_flags, flags);
}

/* The builtin that a static type is, by its name: static types can't be made by Python code. */
static bool type_builtin(struct view *view, const struct offsets *offsets, uint64_t type,
                         uint64_t flags, enum object_kind *kind)
{
    char name[32];
    uint64_t addr;

    if (flags & TPFLAGS_HEAPTYPE || !object_field(view, type, offsets->type_name, &addr) ||
        !cstring_read(view, addr, name, sizeof name))
        return false;
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (!strcmp(name, builtins[i].name)) {
            *kind = builtins[i].kind;
            return true;
        }
    return false;
}

struct base_search {
    struct view *view;
    const struct offsets *offsets;
    unsigned left;
    enum object_kind kind;
};

static int try_base(void *arg, uint64_t base)
{
    struct base_search *search = arg;
    uint64_t flags;

    if (!search->left--)
        return 1;
    return type_flags(search->view, search->offsets, base, &flags) &&
           type_builtin(search->view, search->offsets, base, flags, &search->kind);
}

int object_classify(struct view *view, const struct offsets *offsets, uint64_t object,
                    struct object_class *out)
{
    struct object_class class = {.kind = OBJECT_INSTANCE};

    if (!object_type(view, offsets, object, &class.type) ||
        !type_flags(view, offsets, class.type, &class.flags))
        return -EFAULT;
    class.exact = type_builtin(view, offsets, class.type, class.flags, &class.kind);
    for (size_t i = 0; !class.exact && i < sizeof subclass_flags / sizeof *subclass_flags; i++)
        if (class.flags & subclass_flags[i].flag)
            class.kind = subclass_flags[i].kind;
    if (!class.exact && class.kind == OBJECT_INSTANCE) {
        struct base_search search = {view, offsets, MRO_MAX, OBJECT_INSTANCE};
        uint64_t mro;
        if (object_field(view, class.type, offsets->type_mro, &mro) && mro)
            (void)tuple_iterate(view, offsets, mro, try_base, &search, NULL);
        class.kind = search.kind;
    }
    *out = class;
    return 0;
}

int type_add_name(struct view *view, const struct offsets *offsets, uint64_t type, struct text *out)
{
    uint64_t flags, name, dict, module;
    struct str_data data;
    char static_name[TYPE_NAME_MAX];

    if (!type_flags(view, offsets, type, &flags))
        return -EFAULT;
    if (flags & TPFLAGS_HEAPTYPE && object_field(view, type, offsets->heaptype_qualname, &name) &&
        str_read(view, offsets, name, &data) == 0) {
        if (object_field(view, type, offsets->type_dict, &dict) && dict &&
            dict_lookup_str(view, offsets, dict, "__module__", &module) == 0 &&
            !str_equals(view, offsets, module, "builtins") &&
            str_decode(view, offsets, module, TYPE_NAME_MAX, out) >= 0)
            text_putc(out, '.');
        (void)str_decode(view, offsets, name, TYPE_NAME_MAX, out);
        return 0;
    }
    if (!object_field(view, type, offsets->type_name, &name) ||
        !cstring_read(view, name, static_name, sizeof static_name))
        return -EFAULT;
    text_add_escaped(out, static_name, strlen(static_name));
    return 0;
}

int value_type_name(struct view *view, const struct offsets *offsets, uint64_t object,
                    struct text *out)
{
    uint64_t type;

    if (!object_type(view, offsets, object, &type))
        return -EFAULT;
    return type_add_name(view, offsets, type, out);
}
