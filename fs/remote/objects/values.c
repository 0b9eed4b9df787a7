#include "fs/remote/objects/values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RANGE_START 0 /* Objects/rangeobject.c rangeobject; PySliceObject is laid out alike */
#define RANGE_STOP 8
#define RANGE_STEP 16
#define PROXY_MAPPING 0  /* Objects/descrobject.c mappingproxyobject */
#define EXCEPTION_ARGS 8 /* Include/cpython/pyerrors.h PyBaseExceptionObject */

static void render_instance(struct renderer *r, uint64_t object, const struct object_class *class)
{
    if (render_extension(r, object, class))
        return;
    text_putc(r->out, '<');
    if (type_add_name(r->view, r->offsets, class->type, r->out) < 0)
        text_putc(r->out, '?');
    text_printf(r->out, " object at 0x%lx>", object);
}

static bool render_range(struct renderer *r, uint64_t object, bool slice, unsigned depth)
{
    uint64_t start, stop, step;
    int32_t at = r->offsets->object_size;
    int64_t one;

    if (!object_field(r->view, object, at + RANGE_START, &start) ||
        !object_field(r->view, object, at + RANGE_STOP, &stop) ||
        !object_field(r->view, object, at + RANGE_STEP, &step))
        return false;
    text_puts(r->out, slice ? "slice(" : "range(");
    render_value(r, start, depth + 1);
    text_puts(r->out, ", ");
    render_value(r, stop, depth + 1);
    if (slice || int_to_i64(r->view, r->offsets, step, &one) < 0 || one != 1) {
        text_puts(r->out, ", ");
        render_value(r, step, depth + 1);
    }
    text_putc(r->out, ')');
    return true;
}

/* repr() of an exception has the class's name without its module. */
static bool render_exception(struct renderer *r, uint64_t object, const struct object_class *class,
                             unsigned depth)
{
    uint64_t args, size, first;
    size_t begin = r->out->size, last;

    if (!object_field(r->view, object, r->offsets->object_size + EXCEPTION_ARGS, &args) ||
        tuple_size(r->view, r->offsets, args, &size) < 0 ||
        type_add_name(r->view, r->offsets, class->type, r->out) < 0)
        return false;
    for (last = r->out->size; last > begin && r->out->data[last - 1] != '.';)
        last--;
    if (last > begin) {
        memmove(r->out->data + begin, r->out->data + last, r->out->size - last);
        text_truncate(r->out, r->out->size - (last - begin));
    }
    if (size && (depth >= VALUE_DEPTH_MAX || !r->nodes)) {
        text_puts(r->out, "(" VALUE_CUT ")");
        return true;
    }
    if (size != 1)
        return render_tuple(r, args, depth);
    text_putc(r->out, '(');
    if (tuple_item(r->view, r->offsets, args, 0, &first) < 0)
        return false;
    render_value(r, first, depth + 1);
    text_putc(r->out, ')');
    return true;
}

static bool render_proxy(struct renderer *r, uint64_t object, unsigned depth)
{
    uint64_t mapping;

    if (!object_field(r->view, object, r->offsets->object_size + PROXY_MAPPING, &mapping))
        return false;
    render_value(r, mapping, depth);
    return true;
}

/* The value proper, without the name of a class around it. */
static bool render_content(struct renderer *r, uint64_t object, const struct object_class *class,
                           unsigned depth)
{
    int64_t truth;

    switch (class->kind) {
    case OBJECT_NONE: text_puts(r->out, "None"); return true;
    case OBJECT_ELLIPSIS: text_puts(r->out, "Ellipsis"); return true;
    case OBJECT_NOT_IMPLEMENTED: text_puts(r->out, "NotImplemented"); return true;
    case OBJECT_BOOL:
        if (int_to_i64(r->view, r->offsets, object, &truth) < 0)
            return false;
        text_puts(r->out, truth ? "True" : "False");
        return true;
    case OBJECT_INT: return render_int(r, object);
    case OBJECT_FLOAT: return render_float(r, object);
    case OBJECT_COMPLEX: return render_complex(r, object);
    case OBJECT_STR: return render_str(r, object);
    case OBJECT_BYTES: return render_bytes(r, object);
    case OBJECT_BYTEARRAY: return render_bytearray(r, object);
    case OBJECT_LIST: return render_list(r, object, depth);
    case OBJECT_TUPLE: return render_tuple(r, object, depth);
    case OBJECT_SET:
    case OBJECT_FROZENSET: return render_set(r, object, depth);
    case OBJECT_DICT:
    case OBJECT_FROZENDICT: return render_dict(r, object, depth);
    case OBJECT_MAPPINGPROXY: return render_proxy(r, object, depth);
    case OBJECT_RANGE: return render_range(r, object, false, depth);
    case OBJECT_SLICE: return render_range(r, object, true, depth);
    case OBJECT_TYPE_OBJECT: return render_class(r, object);
    case OBJECT_FUNCTION: return render_function(r, object);
    case OBJECT_METHOD: return render_method(r, object);
    case OBJECT_BUILTIN: return render_builtin(r, object);
    case OBJECT_MODULE: return render_module(r, object);
    case OBJECT_CODE: return render_code(r, object);
    case OBJECT_CELL: return render_cell(r, object);
    case OBJECT_GENERATOR: return render_generator(r, object, "generator");
    case OBJECT_COROUTINE: return render_generator(r, object, "coroutine");
    case OBJECT_ASYNC_GENERATOR: return render_generator(r, object, "async_generator");
    case OBJECT_EXCEPTION: return render_exception(r, object, class, depth);
    case OBJECT_INSTANCE: render_instance(r, object, class); return true;
    }
    return false;
}

/* Builtin types whose repr() has their name around the value; an empty set has no literal. */
static const char *constructor(struct renderer *r, uint64_t object, enum object_kind kind)
{
    uint64_t used;

    switch (kind) {
    case OBJECT_BYTEARRAY: return "bytearray";
    case OBJECT_FROZENSET: return "frozenset";
    case OBJECT_FROZENDICT: return "frozendict";
    case OBJECT_MAPPINGPROXY: return "mappingproxy";
    case OBJECT_SET:
        return object_field(r->view, object, r->offsets->set_used, &used) && !used ? "set" : NULL;
    default: return NULL;
    }
}

/* Kinds whose subclasses show as module.Type(VALUE); for the others the class is in the text. */
static bool is_wrapped(const struct object_class *class)
{
    return !class->exact && class->kind != OBJECT_INSTANCE && class->kind != OBJECT_EXCEPTION &&
           class->kind != OBJECT_TYPE_OBJECT && class->kind != OBJECT_MODULE;
}

static bool render_object(struct renderer *r, uint64_t object, unsigned depth)
{
    struct object_class class;

    if (object_classify(r->view, r->offsets, object, &class) < 0)
        return false;
    const char *name = class.exact ? constructor(r, object, class.kind) : NULL;
    bool wrapped = name || is_wrapped(&class);
    if (name)
        text_puts(r->out, name);
    else if (wrapped && type_add_name(r->view, r->offsets, class.type, r->out) < 0)
        return false;
    if (wrapped)
        text_putc(r->out, '(');
    if (!render_content(r, object, &class, depth))
        return false;
    if (wrapped)
        text_putc(r->out, ')');
    if (depth == 0 && !class.exact && class.kind != OBJECT_TYPE_OBJECT &&
        class.kind != OBJECT_MODULE)
        render_attributes(r, object);
    return true;
}

void render_value(struct renderer *r, uint64_t object, unsigned depth)
{
    size_t before = r->out->size;

    if (!r->nodes || before - r->start > VALUE_BYTES_MAX) {
        text_puts(r->out, VALUE_CUT);
        return;
    }
    r->nodes--;
    if (depth < VALUE_DEPTH_MAX)
        r->path[depth] = object;
    if (!render_object(r, object, depth)) {
        text_truncate(r->out, before);
        text_printf(r->out, "<unreadable: 0x%lx>", object);
    }
}

void render_count(struct renderer *r, uint64_t n, const char *what)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lu", n);

    text_puts(r->out, "... ");
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text_putc(r->out, ',');
        text_putc(r->out, digits[i]);
    }
    text_printf(r->out, " %s%s", what, n == 1 ? "" : "s");
}

void render_share(struct renderer *r, uint64_t object, unsigned depth, unsigned n)
{
    unsigned share = (r->nodes + n - 1) / n, rest = r->nodes - share;

    r->nodes = share;
    render_value(r, object, depth);
    r->nodes += rest;
}

void value_add(struct view *view, const struct offsets *offsets, uint64_t object, struct text *out)
{
    struct renderer r = {
        .view = view,
        .offsets = offsets,
        .out = out,
        .start = out->size,
        .nodes = VALUE_NODES_MAX,
    };

    render_value(&r, object, 0);
}

bool value_add_stackref(struct view *view, const struct offsets *offsets, uint64_t reference,
                        struct text *out)
{
    if (offsets->version >= 0x030e0000) { /* Include/internal/pycore_stackref.h */
        if ((reference & 3) == 3) {
            text_printf(out, "%ld", (int64_t)reference >> 2);
            return true;
        }
        reference &= ~3ull;
    }
    if (!reference)
        return false;
    value_add(view, offsets, reference, out);
    return true;
}

bool value_type_stackref(struct view *view, const struct offsets *offsets, uint64_t reference,
                         struct text *out)
{
    if (offsets->version >= 0x030e0000 && (reference & 3) == 3) {
        text_puts(out, "int");
        return true;
    }
    uint64_t object = stackref_object(offsets, reference);
    return object && value_type_name(view, offsets, object, out) == 0;
}

/* item_visit, entry_visit: their number is known before the first one */
static int stop_at_item(void *arg, uint64_t item) { return 1; }

static int stop_at_entry(void *arg, uint64_t key, uint64_t value) { return 1; }

int value_length(struct view *view, const struct offsets *offsets, uint64_t object, uint64_t *out)
{
    struct object_class class;
    struct str_data str;
    int r = object_classify(view, offsets, object, &class);

    if (r < 0)
        return r;
    switch (class.kind) {
    case OBJECT_STR:
        r = str_read(view, offsets, object, &str);
        if (r == 0)
            *out = str.length;
        return r;
    case OBJECT_BYTES:
    case OBJECT_BYTEARRAY:
        return object_size(view, offsets, object, out) && *out <= INT64_MAX ? 0 : -EFAULT;
    case OBJECT_LIST: r = list_iterate(view, offsets, object, stop_at_item, NULL, out); break;
    case OBJECT_TUPLE: return tuple_size(view, offsets, object, out);
    case OBJECT_SET:
    case OBJECT_FROZENSET: r = set_iterate(view, offsets, object, stop_at_item, NULL, out); break;
    case OBJECT_DICT:
    case OBJECT_FROZENDICT:
        r = dict_iterate(view, offsets, object, stop_at_entry, NULL, out);
        break;
    default: return -EINVAL;
    }
    return r < 0 ? r : 0;
}
