/* Python objects in a target's memory: their types, and what the builtin ones hold.
 *
 * Everything is read through a view and believed only after a check: sizes have limits, walks have
 * limits, and an address that isn't readable is an error and nothing worse. No function here is
 * recursive. Errors that all of them share: -EFAULT, something was not readable or can't be what it
 * should be; -EINVAL, the object is of another type. Layouts: the Include/cpython headers of each
 * version, see agent/cpython/offsets.h; the few places given here and elsewhere as constants count
 * from the first field behind the head, at offsets->object_size, and are the same from 3.8 to
 * 3.15. */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/base/text.h"
#include "fs/remote/memory/view.h"

/* Include/cpython/methodobject.h PyCFunctionObject: a function or method of C */
#define BUILTIN_METHOD 0 /* m_ml, whose first field is the name */
#define BUILTIN_SELF 8   /* m_self: what it is bound to */

/* PyTypeObject.tp_flags: Include/object.h, Include/cpython/object.h */
#define TPFLAGS_HEAPTYPE (1ull << 9)
#define TPFLAGS_INLINE_VALUES (1ull << 2)
#define TPFLAGS_MANAGED_DICT (1ull << 4)
#define TPFLAGS_LONG_SUBCLASS (1ull << 24)
#define TPFLAGS_LIST_SUBCLASS (1ull << 25)
#define TPFLAGS_TUPLE_SUBCLASS (1ull << 26)
#define TPFLAGS_BYTES_SUBCLASS (1ull << 27)
#define TPFLAGS_UNICODE_SUBCLASS (1ull << 28)
#define TPFLAGS_DICT_SUBCLASS (1ull << 29)
#define TPFLAGS_BASE_EXC_SUBCLASS (1ull << 30)
#define TPFLAGS_TYPE_SUBCLASS (1ull << 31)

#define MRO_MAX 64             /* base classes looked at */
#define SLOTS_MAX 128          /* __slots__ of one class looked at */
#define ENTRIES_MAX (1u << 18) /* entries of a dict or set, items of a list or tuple, looked at */

/* clang-format off */
enum object_kind {
    OBJECT_INSTANCE, /* of a type that is none of the following and derives from none of them */
    OBJECT_NONE, OBJECT_ELLIPSIS, OBJECT_NOT_IMPLEMENTED,
    OBJECT_BOOL, OBJECT_INT, OBJECT_FLOAT, OBJECT_COMPLEX,
    OBJECT_STR, OBJECT_BYTES, OBJECT_BYTEARRAY,
    OBJECT_LIST, OBJECT_TUPLE, OBJECT_SET, OBJECT_FROZENSET, OBJECT_DICT, OBJECT_FROZENDICT,
    OBJECT_MAPPINGPROXY, OBJECT_RANGE, OBJECT_SLICE,
    OBJECT_TYPE_OBJECT, OBJECT_FUNCTION, OBJECT_METHOD, OBJECT_BUILTIN, OBJECT_MODULE, OBJECT_CODE,
    OBJECT_CELL, OBJECT_GENERATOR, OBJECT_COROUTINE, OBJECT_ASYNC_GENERATOR,
    OBJECT_EXCEPTION,
};
/* clang-format on */

struct object_class {
    uint64_t type;         /* PyTypeObject */
    uint64_t flags;        /* tp_flags */
    enum object_kind kind; /* of the builtin type it is or derives from */
    bool exact;            /* is that builtin type itself */
};

/* Queues the heads of n objects (type pointer and the first fields) and copies them at once. The
 * reference count isn't among it: it changes with each use, and view_verify() would see that. */
void objects_prefetch(struct view *view, const struct offsets *offsets, const uint64_t *objects,
                      size_t n);
/* objects_prefetch() without copying: for view_fill(). */
void objects_queue(struct view *view, const struct offsets *offsets, const uint64_t *objects,
                   size_t n);

/* A pointer-sized field; false: not readable, or this version has no such field (offset < 0). */
bool object_field(struct view *view, uint64_t object, int32_t offset, uint64_t *out);
/* PyVarObject.ob_size. */
bool object_size(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *out);

/* Where a copy of a code object's bytecode lies, in a free-threaded interpreter of 3.14 on: each
 * thread but the first that runs the code has its own (_PyCodeArray, Include/cpython/code.h).
 * index: which, as a frame says (offsets->frame_tlbc_index); 0 is in the code object itself. 0,
 * and -EAGAIN until all it takes is copied, as view_get(); -EFAULT: there is none; -ENOMEM. */
int code_copy(struct view *view, const struct offsets *offsets, uint64_t code, uint32_t index,
              uint64_t *out);
/* The object that a slot of a frame refers to, which is a tagged reference from 3.14 on
 * (Include/internal/pycore_stackref.h); 0: none, or an int without an object. */
uint64_t stackref_object(const struct offsets *offsets, uint64_t reference);
/* ob_type, without a check that it is a type. */
bool object_type(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *type);
/* The type and what kind of object it makes. -EFAULT. */
int object_classify(struct view *view, const struct offsets *offsets, uint64_t object,
                    struct object_class *out);
/* Adds the type's name as Python shows it: "int", "collections.deque", "__main__.Point";
 * escaped. */
int type_add_name(struct view *view, const struct offsets *offsets, uint64_t type,
                  struct text *out);
/* type_add_name() of the type of an object. */
int value_type_name(struct view *view, const struct offsets *offsets, uint64_t object,
                    struct text *out);
/* Reads a NUL-terminated C string of at most cap - 1 bytes; a longer one is cut. */
bool cstring_read(struct view *view, uint64_t addr, char *buf, size_t cap);

/* The value of an int, or of an instance of a subclass of it. -ERANGE: needs more than 64 bits. */
int int_to_i64(struct view *view, const struct offsets *offsets, uint64_t object, int64_t *out);

/* The place where the code points of a str lie. */
struct str_data {
    uint64_t addr;
    uint64_t length; /* code points */
    unsigned width;  /* bytes of one: 1, 2 or 4 */
};

int str_read(struct view *view, const struct offsets *offsets, uint64_t object,
             struct str_data *out);
/* Adds the str escaped (text_add_codepoint), at most max code points of it. Returns 1 when it was
 * longer, else 0, or -errno. */
int str_decode(struct view *view, const struct offsets *offsets, uint64_t object, size_t max,
               struct text *out);
/* Copies the str as a name of a file, as the target's file system knows it: UTF-8, with other bytes
 * as lone surrogates (PEP 383). -ENAMETOOLONG: not within cap bytes, to which 4 may have to be
 * spare; -EINVAL: it is no str, or none that a file may be called. */
int str_file_name(struct view *view, const struct offsets *offsets, uint64_t object, char *path,
                  size_t cap);
/* Whether it is a str that holds this ASCII text. */
bool str_equals(struct view *view, const struct offsets *offsets, uint64_t object,
                const char *text);

/* The iterators call visit until it returns other than 0, and return that. 0: all were visited;
 * -E2BIG: ENTRIES_MAX were, and there are more. Items may be 0 (NULL). */
typedef int item_visit(void *arg, uint64_t item);
typedef int entry_visit(void *arg, uint64_t key, uint64_t value);

/* *size may be NULL and else gets the length the object claims. */
int list_iterate(struct view *view, const struct offsets *offsets, uint64_t list, item_visit *visit,
                 void *arg, uint64_t *size);
int tuple_iterate(struct view *view, const struct offsets *offsets, uint64_t tuple,
                  item_visit *visit, void *arg, uint64_t *size);
/* set, frozenset and their subclasses, in the table's order. */
int set_iterate(struct view *view, const struct offsets *offsets, uint64_t set, item_visit *visit,
                void *arg, uint64_t *size);
/* dict, frozendict and their subclasses, in the order of insertion (of the keys, for a split
 * table up to 3.10). */
int dict_iterate(struct view *view, const struct offsets *offsets, uint64_t dict,
                 entry_visit *visit, void *arg, uint64_t *size);
/* The value under a str key of ASCII text. -ENOENT: no such key. */
int dict_lookup_str(struct view *view, const struct offsets *offsets, uint64_t dict,
                    const char *key, uint64_t *value);
/* dict_lookup_str() where it is asked for again and again: *at, 0 at first, is where in the dict's
 * table the key was, and is looked at before all others. */
int dict_lookup_again(struct view *view, const struct offsets *offsets, uint64_t dict,
                      const char *key, uint64_t *at, uint64_t *value);
/* The length that a tuple claims to have. */
int tuple_size(struct view *view, const struct offsets *offsets, uint64_t tuple, uint64_t *size);
/* An item of a tuple. -ENOENT: it is shorter. */
int tuple_item(struct view *view, const struct offsets *offsets, uint64_t tuple, uint64_t index,
               uint64_t *out);

/* One attribute that an instance itself holds. */
struct own_attribute {
    uint64_t key;  /* str object, for one in the instance's dictionary, else 0 ... */
    char name[64]; /* ... and the name is here: a member of __slots__ */
    uint64_t value;
};
typedef int attribute_visit(void *arg, const struct own_attribute *attribute);

/* What an instance holds: __slots__ of its classes, most derived first, then its __dict__ in
 * whatever form this version keeps it. */
int instance_iterate(struct view *view, const struct offsets *offsets, uint64_t object,
                     attribute_visit *visit, void *arg);
/* An attribute of an instance by its ASCII name. -ENOENT: it holds none of that name. */
int instance_attribute(struct view *view, const struct offsets *offsets, uint64_t object,
                       const char *name, uint64_t *value);
