/* A Python object as text, decoded from outside: what repr() would say, as far as that can be
 * known without running any code of the target.
 *
 *   builtin values     as repr() shows them: -1, 1e+16, (1+2j), 'it\'s', b'\x00', [1, 'a'],
 *                      {'k': None}, {1, 2}, range(0, 3), slice(None, 2, None)
 *   of a subclass      module.Type(VALUE): collections.OrderedDict({'a': 1})
 *   instances          <module.Type object at 0x7f12>, and outside of containers what they hold
 *                      behind it: <module.Type object at 0x7f12> {a=1, b='x', ...}
 *   numpy's scalars    numpy.float32(1.5)
 *   tensors            float32[64, 32] cuda:0, of PyTorch: type, shape and device
 *   code-like things   <class 'm.C'>, <function f at 0x...>, <module 'os'>, ValueError('x')
 *
 * One value is one line: control characters and what could forge or reorder a line are escaped.
 * What was cut says how much there is in all: behind the closing quote of a string, and at the end
 * of a container, 'abc'... 25,523 characters and [0, 1, ... 25,523 items]. A whole object that was
 * cut is `<...>`, or {... 3 items}; `[...]`, `(...)` and `{...}` are containers that hold
 * themselves, as in Python. What can't be read is `<unreadable: 0x...>`.
 */
#pragma once

#include "fs/remote/objects/object.h"

#define VALUE_STRING_MAX 200        /* code points or bytes shown of one string */
#define VALUE_ITEMS_MAX 16          /* items shown of one container, attributes of one instance */
#define VALUE_DEPTH_MAX 5           /* containers in containers whose items are shown */
#define VALUE_NODES_MAX 320         /* objects shown of one value: each item gets an equal share */
#define VALUE_BYTES_MAX (32u << 10) /* length of one value, roughly: nothing is begun beyond */
/* Of ints with more than 4,300 digits the size is shown: <int of 14285 bits>. */

/* Adds the object at this address. Never fails: what can't be read says so. */
void value_add(struct view *view, const struct offsets *offsets, uint64_t object, struct text *out);
/* value_add() of a stack reference, as frames hold them from 3.14 on: tagged ints too. For older
 * versions it is value_add(). 0 (NULL) is no value: nothing is added and it returns false. */
bool value_add_stackref(struct view *view, const struct offsets *offsets, uint64_t reference,
                        struct text *out);
/* value_type_name() of a stack reference. False: there is none, or it wasn't readable. */
bool value_type_stackref(struct view *view, const struct offsets *offsets, uint64_t reference,
                         struct text *out);
/* What len() says of a builtin container, str, bytes or bytearray. -EINVAL: it is none; -EFAULT. */
int value_length(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *out);

/* ---- what the parts of value_add() share ---- */

struct renderer {
    struct view *view;
    const struct offsets *offsets;
    struct text *out;
    size_t start;                   /* length of out when the value began */
    unsigned nodes;                 /* objects that may still be shown */
    uint64_t path[VALUE_DEPTH_MAX]; /* what holds the object at hand, outermost first */
};

#define VALUE_CUT "<...>"

/* "... 25,523 items": how many there are of what was cut; `what` is one of them. */
void render_count(struct renderer *r, uint64_t n, const char *what);

/* Renders one object, `depth` containers deep. */
void render_value(struct renderer *r, uint64_t object, unsigned depth);
/* Renders one of n objects that are still to come, by its share of what may still be shown. */
void render_share(struct renderer *r, uint64_t object, unsigned depth, unsigned n);

/* values_builtin.c: numbers and strings. Each adds nothing and returns false if something could
 * not be read. */
bool render_int(struct renderer *r, uint64_t object);
bool render_float(struct renderer *r, uint64_t object);
bool render_complex(struct renderer *r, uint64_t object);
bool render_str(struct renderer *r, uint64_t object);
bool render_bytes(struct renderer *r, uint64_t object);
bool render_bytearray(struct renderer *r, uint64_t object);

/* values_code.c: classes, functions and the like. */
bool render_class(struct renderer *r, uint64_t object);
bool render_function(struct renderer *r, uint64_t object);
bool render_method(struct renderer *r, uint64_t object);
bool render_builtin(struct renderer *r, uint64_t object);
bool render_module(struct renderer *r, uint64_t object);
bool render_code(struct renderer *r, uint64_t object);
bool render_cell(struct renderer *r, uint64_t object);
/* kind: "generator", "coroutine" or "async_generator" */
bool render_generator(struct renderer *r, uint64_t object, const char *kind);

/* values_extension.c: a scalar of numpy or a tensor. False, and nothing added: it is neither, or
 * not laid out as known. */
bool render_extension(struct renderer *r, uint64_t object, const struct object_class *class);

/* values_container.c: brackets and what is in them. */
bool render_list(struct renderer *r, uint64_t object, unsigned depth);
bool render_tuple(struct renderer *r, uint64_t object, unsigned depth);
bool render_set(struct renderer *r, uint64_t object, unsigned depth);
bool render_dict(struct renderer *r, uint64_t object, unsigned depth);
/* " {a=1, b='x'}", or nothing for an instance without attributes. */
void render_attributes(struct renderer *r, uint64_t object);
