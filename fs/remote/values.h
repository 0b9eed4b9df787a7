/* A Python object as text, decoded from outside: what repr() would say, as far as that can be
 * known without running any code of the target.
 *
 *   builtin values     as repr() shows them: -1, 1e+16, (1+2j), 'it\'s', b'\x00', [1, 'a'],
 *                      {'k': None}, {1, 2}, range(0, 3), slice(None, 2, None)
 *   of a subclass      module.Type(VALUE): collections.OrderedDict({'a': 1})
 *   instances          <module.Type object at 0x7f12>, and outside of containers what they hold
 *                      behind it: <module.Type object at 0x7f12> {a=1, b='x', ...}
 *   code-like things   <class 'm.C'>, <function f at 0x...>, <module 'os'>, ValueError('x')
 *
 * One value is one line: control characters and what could forge or reorder a line are escaped.
 * "..." stands where something was cut: behind the closing quote of a string, in place of a
 * container's further items or its whole content. What can't be read is `<unreadable: 0x...>`. */
#pragma once

#include "fs/remote/object.h"

#define VALUE_STRING_MAX 200        /* code points or bytes shown of one string */
#define VALUE_ITEMS_MAX 16          /* items shown of one container, attributes of one instance */
#define VALUE_DEPTH_MAX 2           /* containers in containers whose items are shown */
#define VALUE_NODES_MAX 256         /* objects shown of one value */
#define VALUE_BYTES_MAX (32u << 10) /* length of one value, roughly: nothing is begun beyond */
/* Of ints with more than 4,300 digits the size is shown: <int of 14285 bits>. */

/* Adds the object at this address. Never fails: what can't be read says so. */
void value_add(struct view *view, const struct offsets *offsets, uint64_t object,
               struct text *out);
/* The same for a stack reference, as frames hold them from 3.14 on: tagged ints too. For older
 * versions it is value_add(). 0 (NULL) is no value: nothing is added and it returns false. */
bool value_add_stackref(struct view *view, const struct offsets *offsets, uint64_t reference,
                        struct text *out);
