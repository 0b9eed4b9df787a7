#include "fs/remote/objects/coroutine.h"
#include "fs/remote/objects/linetable.h"
#include "fs/remote/objects/values.h"

#include <string.h>

#define NAME_MAX_SHOWN 256        /* code points of a name, bytes of a C name */
#define LINETABLE_MAX (64u << 10) /* bytes of a line table; of a longer one no line is shown */

/* Adds the str in a field, escaped but not quoted. */
static bool add_str_field(struct renderer *r, uint64_t object, int32_t offset)
{
    uint64_t name;

    return object_field(r->view, object, offset, &name) &&
           str_decode(r->view, r->offsets, name, NAME_MAX_SHOWN, r->out) >= 0;
}

bool render_class(struct renderer *r, uint64_t object)
{
    text_puts(r->out, "<class '");
    bool ok = type_add_name(r->view, r->offsets, object, r->out) == 0;
    text_puts(r->out, "'>");
    return ok;
}

bool render_function(struct renderer *r, uint64_t object)
{
    text_puts(r->out, "<function ");
    bool ok = add_str_field(r, object, r->offsets->func_qualname);
    text_printf(r->out, " at 0x%lx>", object);
    return ok;
}

bool render_method(struct renderer *r, uint64_t object)
{
    struct object_class class;
    uint64_t function, self;

    if (!object_field(r->view, object, r->offsets->method_func, &function) ||
        !object_field(r->view, object, r->offsets->method_self, &self))
        return false;
    text_puts(r->out, "<bound method ");
    if (object_classify(r->view, r->offsets, function, &class) < 0 ||
        class.kind != OBJECT_FUNCTION || !add_str_field(r, function, r->offsets->func_qualname))
        text_putc(r->out, '?');
    text_puts(r->out, " of ");
    render_value(r, self, VALUE_DEPTH_MAX);
    text_putc(r->out, '>');
    return true;
}

bool render_builtin(struct renderer *r, uint64_t object)
{
    struct object_class class;
    uint64_t def, self, name;
    char text[NAME_MAX_SHOWN];

    if (!object_field(r->view, object, r->offsets->object_size + BUILTIN_METHOD, &def) ||
        !object_field(r->view, object, r->offsets->object_size + BUILTIN_SELF, &self) ||
        !object_field(r->view, def, 0, &name) || !cstring_read(r->view, name, text, sizeof text))
        return false;
    bool bound = self && object_classify(r->view, r->offsets, self, &class) == 0 &&
                 class.kind != OBJECT_MODULE;
    text_puts(r->out, bound ? "<built-in method " : "<built-in function ");
    text_add_escaped(r->out, text, strlen(text));
    if (bound) {
        text_puts(r->out, " of ");
        if (type_add_name(r->view, r->offsets, class.type, r->out) < 0)
            text_putc(r->out, '?');
        text_printf(r->out, " object at 0x%lx", self);
    }
    text_putc(r->out, '>');
    return true;
}

bool render_module(struct renderer *r, uint64_t object)
{
    uint64_t dict, name;

    if (!object_field(r->view, object, r->offsets->module_dict, &dict))
        return false;
    text_puts(r->out, "<module ");
    if (dict_lookup_str(r->view, r->offsets, dict, "__name__", &name) < 0 || !render_str(r, name))
        text_putc(r->out, '?');
    text_putc(r->out, '>');
    return true;
}

bool render_code(struct renderer *r, uint64_t object)
{
    text_puts(r->out, "<code object ");
    bool ok = add_str_field(r, object, r->offsets->code_name);
    text_printf(r->out, " at 0x%lx, file \"", object);
    ok = ok && add_str_field(r, object, r->offsets->code_filename);
    int32_t offset = r->offsets->code_firstlineno;
    const uint8_t *line = offset < 0 ? NULL : view_read(r->view, object + (uint32_t)offset, 4);
    text_printf(r->out, "\", line %d>", line ? (int32_t)load32(line) : -1);
    return ok && line;
}

bool render_cell(struct renderer *r, uint64_t object)
{
    uint64_t content;

    if (!object_field(r->view, object, r->offsets->cell_ref, &content))
        return false;
    text_printf(r->out, "<cell at 0x%lx: ", object);
    if (!content) {
        text_puts(r->out, "empty>");
        return true;
    }
    if (value_type_name(r->view, r->offsets, content, r->out) < 0)
        text_putc(r->out, '?');
    text_printf(r->out, " object at 0x%lx>", content);
    return true;
}

/* " at FILE:LINE" of an instruction, as far as that can be read. */
static void add_place(struct renderer *r, uint64_t code, int64_t lasti)
{
    const struct offsets *o = r->offsets;
    const uint8_t *first = view_read(r->view, code + (uint32_t)o->code_firstlineno, 4), *bytes;
    int first_line = first ? (int32_t)load32(first) : 0;
    struct linetable lines;
    uint64_t object, size;
    size_t before = r->out->size;

    text_puts(r->out, " at ");
    if (!add_str_field(r, code, o->code_filename)) {
        text_truncate(r->out, before);
        return;
    }
    if (!first || !object_field(r->view, code, o->code_linetable, &object) ||
        !object_field(r->view, object, o->bytes_size, &size) || size > LINETABLE_MAX)
        return;
    bytes = size ? view_read(r->view, object + (uint32_t)o->bytes_data, (uint32_t)size) : NULL;
    if ((size && !bytes) ||
        linetable_decode(linetable_format_of(o->version), bytes, size, first_line, &lines) < 0)
        return;
    int line = linetable_line(&lines, lasti);
    if (line >= 0)
        text_printf(r->out, ":%d", line);
    linetable_deinit(&lines);
}

/* Adds where a generator or coroutine stands. */
static void add_state(struct renderer *r, uint64_t object)
{
    struct coroutine coroutine;

    if (coroutine_read(r->view, r->offsets, object, &coroutine) < 0)
        return;
    if (coroutine.finished || coroutine.created) {
        text_puts(r->out, coroutine.finished ? ", finished" : ", not started");
        return;
    }
    text_puts(r->out, coroutine.executing ? ", running" : ", suspended");
    add_place(r, coroutine.code, coroutine.lasti);
}

bool render_generator(struct renderer *r, uint64_t object, const char *kind)
{
    text_printf(r->out, "<%s object ", kind);
    bool ok = add_str_field(r, object, r->offsets->gen_qualname);
    text_printf(r->out, " at 0x%lx", object);
    add_state(r, object);
    text_putc(r->out, '>');
    return ok;
}
