#include "fs/remote/objects/quote.h"
#include "fs/remote/objects/values.h"

#include <string.h>

#define NAME_MAX_SHOWN 256 /* code points of a name, bytes of a C name */

/* Include/cpython/methodobject.h PyCFunctionObject: m_ml, whose first field is the name; m_self */
#define BUILTIN_DEF 16
#define BUILTIN_SELF 24

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

    if (!object_field(r->view, object, BUILTIN_DEF, &def) ||
        !object_field(r->view, object, BUILTIN_SELF, &self) ||
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

bool render_generator(struct renderer *r, uint64_t object, const char *kind)
{
    text_printf(r->out, "<%s object ", kind);
    bool ok = add_str_field(r, object, r->offsets->gen_qualname);
    text_printf(r->out, " at 0x%lx>", object);
    return ok;
}
