#include "fs/remote/waits/lock_name.h"

#include "fs/remote/frames/locals.h"

#include <errno.h>
#include <string.h>

#define NODES_MAX 512u      /* objects that are known of in one search */
#define STEPS_MAX 2         /* from a variable */
#define NAMES_MAX 256u      /* global names that a code object speaks of */
#define NAME_CHARACTERS 64  /* of one part of a name */
#define ITEMS_MAX 256u      /* of one list, dict, ... */
#define NAMESPACE_MAX 8192u /* of a module or class, of which few are compared */

/* One object on the way, and what leads to it. */
struct node {
    uint64_t object;
    uint16_t parent; /* index + 1; 0: a variable */
    uint8_t steps;
    enum { BY_NAME, BY_ATTRIBUTE, BY_MEMBER, BY_INDEX, BY_KEY } by;
    uint64_t key;    /* BY_NAME, BY_ATTRIBUTE: a str object; BY_KEY: any; BY_INDEX: a number */
    char member[32]; /* BY_MEMBER: the name itself */
};

struct search {
    struct view *view;
    const struct offsets *offsets;
    uint64_t wanted;
    unsigned *looks;
    uint64_t names[NAMES_MAX]; /* str objects */
    size_t nnames;
    struct node nodes[NODES_MAX];
    size_t n;
    size_t at;      /* the node whose contents are being visited */
    uint64_t items; /* of it so far */
    bool found;     /* by the last node */
};

/* 1: found. */
static int add_node(struct search *s, struct node node)
{
    if (s->n == NODES_MAX || !node.object || node.object & 7)
        return 0;
    s->nodes[s->n++] = node;
    s->found = node.object == s->wanted;
    return s->found;
}

static int add_child(struct search *s, struct node node)
{
    node.parent = (uint16_t)(s->at + 1);
    node.steps = (uint8_t)(s->nodes[s->at].steps + 1);
    /* deeper ones matter only if they are it */
    return node.object == s->wanted || node.steps < STEPS_MAX ? add_node(s, node) : 0;
}

/* ---- variables ---- */

static int visit_local(void *arg, const struct local *local)
{
    struct search *s = arg;
    uint64_t object = stackref_object(s->offsets, local->reference);

    return local->name
               ? add_node(s, (struct node){.object = object, .by = BY_NAME, .key = local->name})
               : 0;
}

static int collect_name(void *arg, uint64_t name)
{
    struct search *s = arg;

    if (s->nnames == NAMES_MAX)
        return 1;
    s->names[s->nnames++] = name;
    return 0;
}

static bool is_spoken_of(const struct search *s, uint64_t name)
{
    for (size_t i = 0; i < s->nnames; i++)
        if (s->names[i] == name) /* names are interned */
            return true;
    return false;
}

static int visit_global(void *arg, uint64_t key, uint64_t value)
{
    struct search *s = arg;

    if (s->items++ == NAMESPACE_MAX)
        return -E2BIG;
    return is_spoken_of(s, key)
               ? add_node(s, (struct node){.object = value, .by = BY_NAME, .key = key})
               : 0;
}

static void visit_variables(struct search *s, const struct raw_frame *frame)
{
    const struct offsets *o = s->offsets;
    uint64_t names, globals;
    const uint8_t *flags =
        o->code_flags < 0 ? NULL : view_read(s->view, frame->code + (uint32_t)o->code_flags, 4);

    if (flags && load32(flags) & CO_OPTIMIZED)
        (void)locals_iterate(s->view, o, frame->addr, frame->code, visit_local, s);
    if (s->found || !object_field(s->view, frame->code, o->code_names, &names) ||
        tuple_iterate(s->view, o, names, collect_name, s, NULL) < 0 ||
        !object_field(s->view, frame->addr, o->frame_globals, &globals))
        return;
    (void)dict_iterate(s->view, o, globals, visit_global, s, NULL);
}

/* ---- contents ---- */

static int visit_attribute(void *arg, const struct own_attribute *attribute)
{
    struct search *s = arg;
    struct node node = {.object = attribute->value,
                        .by = attribute->key ? BY_ATTRIBUTE : BY_MEMBER,
                        .key = attribute->key};

    if (s->items++ == ITEMS_MAX)
        return -E2BIG;
    memcpy(node.member, attribute->name, sizeof node.member - 1);
    return add_child(s, node);
}

static int visit_entry(void *arg, uint64_t key, uint64_t value)
{
    struct search *s = arg;

    if (s->items++ == ITEMS_MAX)
        return -E2BIG;
    return add_child(s, (struct node){.object = value, .by = BY_KEY, .key = key});
}

/* Visits a member of a module or a class: what the code speaks of. */
static int visit_member(void *arg, uint64_t key, uint64_t value)
{
    struct search *s = arg;

    if (s->items++ == NAMESPACE_MAX)
        return -E2BIG;
    return is_spoken_of(s, key) || value == s->wanted
               ? add_child(s, (struct node){.object = value, .by = BY_ATTRIBUTE, .key = key})
               : 0;
}

static int visit_item(void *arg, uint64_t item)
{
    struct search *s = arg;

    if (s->items++ == ITEMS_MAX)
        return -E2BIG;
    return add_child(s, (struct node){.object = item, .by = BY_INDEX, .key = s->items - 1});
}

static void visit_contents(struct search *s)
{
    struct view *view = s->view;
    const struct offsets *o = s->offsets;
    uint64_t object = s->nodes[s->at].object, dict;
    struct object_class class;

    s->items = 0;
    if (object_classify(view, o, object, &class) < 0)
        return;
    switch (class.kind) {
    case OBJECT_INSTANCE:
        if (!(class.flags & TPFLAGS_HEAPTYPE)) /* of C: it shows nothing */
            return;
        (void)instance_iterate(view, o, object, visit_attribute, s);
        if (!s->found && object_field(view, class.type, o->type_dict, &dict) && dict)
            (void)dict_iterate(view, o, dict, visit_member, s, NULL);
        return;
    case OBJECT_MODULE:
        if (object_field(view, object, o->module_dict, &dict) && dict)
            (void)dict_iterate(view, o, dict, visit_member, s, NULL);
        return;
    case OBJECT_TYPE_OBJECT:
        if (object_field(view, object, o->type_dict, &dict) && dict)
            (void)dict_iterate(view, o, dict, visit_member, s, NULL);
        return;
    case OBJECT_LIST: (void)list_iterate(view, o, object, visit_item, s, NULL); return;
    case OBJECT_TUPLE: (void)tuple_iterate(view, o, object, visit_item, s, NULL); return;
    case OBJECT_DICT: (void)dict_iterate(view, o, object, visit_entry, s, NULL); return;
    default: return;
    }
}

/* ---- the name ---- */

static void add_key(const struct search *s, uint64_t key, struct text *out)
{
    struct object_class class = {0};
    int64_t number;

    if (object_classify(s->view, s->offsets, key, &class) == 0 && class.kind == OBJECT_STR) {
        text_putc(out, '\'');
        (void)str_decode(s->view, s->offsets, key, NAME_CHARACTERS, out);
        text_putc(out, '\'');
    } else if (class.kind == OBJECT_INT && int_to_i64(s->view, s->offsets, key, &number) == 0) {
        text_printf(out, "%ld", (long)number);
    } else {
        text_puts(out, "...");
    }
}

static void add_part(const struct search *s, const struct node *node, struct text *out)
{
    switch (node->by) {
    case BY_ATTRIBUTE: text_putc(out, '.'); __attribute__((fallthrough));
    case BY_NAME: (void)str_decode(s->view, s->offsets, node->key, NAME_CHARACTERS, out); break;
    case BY_MEMBER: text_printf(out, ".%s", node->member); break;
    case BY_INDEX: text_printf(out, "[%lu]", (unsigned long)node->key); break;
    case BY_KEY:
        text_putc(out, '[');
        add_key(s, node->key, out);
        text_putc(out, ']');
        break;
    }
}

static void add_name(const struct search *s, struct text *out)
{
    const struct node *path[STEPS_MAX + 1];
    size_t n = 0;

    for (size_t i = s->n; i && n <= STEPS_MAX; i = s->nodes[i - 1].parent)
        path[n++] = &s->nodes[i - 1];
    for (size_t i = n; i-- > 0;)
        add_part(s, path[i], out);
    const struct node *root = path[n - 1];
    if (n > 1 && str_equals(s->view, s->offsets, root->key, "self")) { /* says little by itself */
        text_puts(out, " of <");
        (void)value_type_name(s->view, s->offsets, root->object, out);
        text_printf(out, " object at 0x%lx>", (unsigned long)root->object);
    }
}

bool lock_name_add(struct view *view, const struct offsets *offsets, const struct raw_frame *frame,
                   uint64_t object, unsigned *looks, struct text *out)
{
    struct search s; /* not set to 0 as a whole: it is large */

    s.view = view;
    s.offsets = offsets;
    s.wanted = object;
    s.looks = looks;
    s.nnames = s.n = 0;
    s.items = 0;
    s.found = false;
    if (!*looks)
        return false;
    --*looks;
    visit_variables(&s, frame);
    for (s.at = 0; s.at < s.n && s.at < LOCK_NAME_LOOKS_MAX && *looks && !s.found; s.at++) {
        --*looks;
        visit_contents(&s);
    }
    if (s.found)
        add_name(&s, out);
    return s.found;
}
