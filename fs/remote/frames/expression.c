#include "fs/remote/frames/expression.h"

#include "fs/remote/frames/slots.h"

#include <errno.h>
#include <string.h>

#define NAME_CHARACTERS 256

/* ---- in the bytecode ---- */

static void begin(struct expression *e, int variable, uint32_t number)
{
    e->variable = variable;
    e->number = number;
    e->n = 0;
}

void expression_follow(struct expression *e, const struct instruction *i)
{
    switch (i->kind) {
    case INSTRUCTION_LOAD_FAST: begin(e, VARIABLE_FAST, i->arg); return;
    case INSTRUCTION_LOAD_FAST_TWICE:
    case INSTRUCTION_STORE_LOAD_FAST: begin(e, VARIABLE_FAST, i->arg & 15); return;
    case INSTRUCTION_LOAD_DEREF: begin(e, VARIABLE_DEREF, i->arg); return;
    case INSTRUCTION_LOAD_GLOBAL: begin(e, VARIABLE_GLOBAL, i->arg); return;
    case INSTRUCTION_LOAD_NAME: begin(e, VARIABLE_NAME, i->arg); return;
    case INSTRUCTION_LOAD_ATTR:
        if (e->n == EXPRESSION_ATTRIBUTES_MAX)
            e->variable = VARIABLE_NONE;
        else
            e->attributes[e->n++] = i->arg;
        return;
    default: begin(e, VARIABLE_NONE, 0); return;
    }
}

bool expression_equals(const struct expression *a, const struct expression *b)
{
    return a->variable == b->variable && a->number == b->number && a->n == b->n &&
           !memcmp(a->attributes, b->attributes, a->n * sizeof *a->attributes);
}

bool expression_is_changed(const struct expression *e, const struct instruction *i)
{
    switch (i->kind) {
    case INSTRUCTION_STORE_FAST: return e->variable == VARIABLE_FAST && e->number == i->arg;
    case INSTRUCTION_STORE_LOAD_FAST:
        return e->variable == VARIABLE_FAST && e->number == i->arg >> 4;
    case INSTRUCTION_STORE_FAST_TWICE:
        return e->variable == VARIABLE_FAST &&
               (e->number == i->arg >> 4 || e->number == (i->arg & 15));
    case INSTRUCTION_STORE_DEREF: return e->variable == VARIABLE_DEREF && e->number == i->arg;
    case INSTRUCTION_STORE_NAME:
        return (e->variable == VARIABLE_GLOBAL || e->variable == VARIABLE_NAME) &&
               e->number == i->arg;
    case INSTRUCTION_STORE_ATTR:
        for (uint32_t k = 0; k < e->n; k++)
            if (e->attributes[k] == i->arg)
                return true;
        return false;
    default: return false;
    }
}

/* ---- in the frame ---- */

struct search {
    struct view *view;
    const struct offsets *offsets;
    uint64_t name; /* a str: names are interned */
    struct text text;
    uint64_t found;
    unsigned classes_left; /* of one object */
};

static int match_entry(void *arg, uint64_t key, uint64_t value)
{
    struct search *s = arg;

    if (key != s->name)
        return 0;
    s->found = value;
    return 1;
}

static int match_attribute(void *arg, const struct own_attribute *attribute)
{
    struct search *s = arg;

    if (attribute->key ? attribute->key != s->name
                       : !s->text.data || strcmp(attribute->name, s->text.data) != 0)
        return 0;
    s->found = attribute->value;
    return 1;
}

/* False: there is no such dict, or it isn't in there. */
static bool find_in_dict(struct search *s, uint64_t object, int32_t field)
{
    uint64_t dict;

    return object_field(s->view, object, field, &dict) && dict &&
           dict_iterate(s->view, s->offsets, dict, match_entry, s, NULL) == 1;
}

static int match_base(void *arg, uint64_t base)
{
    struct search *s = arg;

    if (!s->classes_left--)
        return -E2BIG;
    return find_in_dict(s, base, s->offsets->type_dict);
}

static bool find_in_class(struct search *s, uint64_t type)
{
    uint64_t mro;

    s->classes_left = MRO_MAX;
    return object_field(s->view, type, s->offsets->type_mro, &mro) && mro &&
           tuple_iterate(s->view, s->offsets, mro, match_base, s, NULL) == 1;
}

static bool find_attribute(struct search *s, uint64_t object)
{
    struct object_class class;

    if (object_classify(s->view, s->offsets, object, &class) < 0)
        return false;
    if (class.kind == OBJECT_MODULE)
        return find_in_dict(s, object, s->offsets->module_dict);
    if (class.kind == OBJECT_TYPE_OBJECT)
        return find_in_class(s, object);
    text_clear(&s->text);
    (void)str_decode(s->view, s->offsets, s->name, NAME_CHARACTERS, &s->text);
    return instance_iterate(s->view, s->offsets, object, match_attribute, s) == 1 ||
           find_in_class(s, class.type);
}

/* The name that an instruction's argument stands for. */
static bool take_name(struct search *s, const struct raw_frame *frame, uint32_t number)
{
    uint64_t names;

    return object_field(s->view, frame->code, s->offsets->code_names, &names) &&
           tuple_item(s->view, s->offsets, names, number, &s->name) == 0;
}

/* Up to 3.10 cells and free variables are counted behind the local ones. */
static uint64_t variable_in_slot(const struct search *s, const struct raw_frame *frame,
                                 const struct expression *e)
{
    const struct offsets *o = s->offsets;
    struct frame_slots slots;
    uint64_t names, before = 0;

    if (frame_slots_find(s->view, o, frame, &slots) < 0)
        return 0;
    if (e->variable == VARIABLE_DEREF && o->code_nlocalsplus < 0 &&
        (!object_field(s->view, frame->code, o->code_varnames, &names) ||
         tuple_size(s->view, o, names, &before) < 0))
        return 0;
    return before + e->number < slots.locals
               ? frame_variable(s->view, o, &slots, (uint32_t)before + e->number)
               : 0;
}

static uint64_t variable(struct search *s, const struct raw_frame *frame,
                         const struct expression *e)
{
    switch (e->variable) {
    case VARIABLE_FAST:
    case VARIABLE_DEREF: return variable_in_slot(s, frame, e);
    case VARIABLE_GLOBAL:
    case VARIABLE_NAME:
        return take_name(s, frame, e->number) &&
                       ((e->variable == VARIABLE_NAME &&
                         find_in_dict(s, frame->addr, s->offsets->frame_locals)) ||
                        find_in_dict(s, frame->addr, s->offsets->frame_globals))
                   ? s->found
                   : 0;
    default: return 0;
    }
}

uint64_t expression_object(struct view *view, const struct offsets *offsets,
                           const struct raw_frame *frame, const struct expression *e)
{
    struct search s = {.view = view, .offsets = offsets};
    uint64_t object = variable(&s, frame, e);

    for (uint32_t i = 0; i < e->n && object; i++)
        object = take_name(&s, frame, e->attributes[i]) && find_attribute(&s, object) ? s.found : 0;
    text_deinit(&s.text);
    return object;
}
