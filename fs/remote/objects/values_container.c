#include "fs/remote/objects/values.h"

#include <errno.h>
#include <string.h>

/* The first items of a container, copied side by side before they are rendered one by one. */
struct items {
    uint64_t items[VALUE_ITEMS_MAX], keys[VALUE_ITEMS_MAX];
    unsigned n;
    bool more;
};

static int collect_entry(void *arg, uint64_t key, uint64_t item)
{
    struct items *items = arg;

    if (items->n == VALUE_ITEMS_MAX) {
        items->more = true;
        return 1;
    }
    items->keys[items->n] = key;
    items->items[items->n++] = item;
    return 0;
}

static int collect_item(void *arg, uint64_t item) { return collect_entry(arg, 0, item); }

static void prefetch(struct renderer *r, const struct items *items)
{
    objects_prefetch(r->view, r->offsets, items->keys, items->n);
    objects_prefetch(r->view, r->offsets, items->items, items->n);
}

/* Whether a container of `size` items is one of those that hold it, or nothing of it is to be
 * shown: then that is all of it. */
static bool is_cut(struct renderer *r, uint64_t object, unsigned depth, const char *recursion,
                   uint64_t size)
{
    for (unsigned i = 0; i < depth && i < VALUE_DEPTH_MAX; i++)
        if (r->path[i] == object) {
            text_puts(r->out, recursion);
            return true;
        }
    if (depth < VALUE_DEPTH_MAX && r->nodes)
        return false;
    text_putc(r->out, recursion[0]);
    render_count(r, size, "item");
    text_putc(r->out, recursion[strlen(recursion) - 1]);
    return true;
}

/* result: what the walk returned; less than the end of it was reached when it is negative. size:
 * how many items there are. */
static void render_items(struct renderer *r, const struct items *items, int result, unsigned depth,
                         uint64_t size)
{
    unsigned left = items->n ? items->keys[0] ? 2 * items->n : items->n : 0;
    bool more = items->more || result == -E2BIG;

    prefetch(r, items);
    for (unsigned i = 0; i < items->n; i++) {
        more |= !r->nodes;
        if (!r->nodes)
            break;
        if (i)
            text_puts(r->out, ", ");
        if (items->keys[i]) {
            render_share(r, items->keys[i], depth + 1, left--);
            text_puts(r->out, ": ");
        }
        render_share(r, items->items[i], depth + 1, left--);
    }
    if (more) {
        text_puts(r->out, items->n ? ", " : "");
        render_count(r, size, "item");
    } else if (result < 0) {
        text_puts(r->out, items->n ? ", <unreadable>" : "<unreadable>");
    }
}

bool render_list(struct renderer *r, uint64_t object, unsigned depth)
{
    struct items items = {.n = 0};
    uint64_t size = 1;

    (void)object_size(r->view, r->offsets, object, &size);
    if (size && is_cut(r, object, depth, "[...]", size))
        return true;
    size = 0;
    int result = list_iterate(r->view, r->offsets, object, collect_item, &items, &size);
    if (result < 0 && !items.n && size == 0)
        return false;
    text_putc(r->out, '[');
    render_items(r, &items, result, depth, size);
    text_putc(r->out, ']');
    return true;
}

bool render_tuple(struct renderer *r, uint64_t object, unsigned depth)
{
    struct items items = {.n = 0};
    uint64_t size;

    if (tuple_size(r->view, r->offsets, object, &size) < 0)
        return false;
    if (size && is_cut(r, object, depth, "(...)", size))
        return true;
    int result = tuple_iterate(r->view, r->offsets, object, collect_item, &items, NULL);
    text_putc(r->out, '(');
    render_items(r, &items, result, depth, size);
    text_puts(r->out, size == 1 ? ",)" : ")");
    return true;
}

bool render_set(struct renderer *r, uint64_t object, unsigned depth)
{
    struct items items = {.n = 0};
    uint64_t used;

    if (!object_field(r->view, object, r->offsets->set_used, &used))
        return false;
    if (!used) /* shows as the constructor without arguments */
        return true;
    if (is_cut(r, object, depth, "{...}", used))
        return true;
    int result = set_iterate(r->view, r->offsets, object, collect_item, &items, NULL);
    text_putc(r->out, '{');
    render_items(r, &items, result, depth, used);
    text_putc(r->out, '}');
    return true;
}

bool render_dict(struct renderer *r, uint64_t object, unsigned depth)
{
    struct items items = {.n = 0};
    uint64_t used;

    if (!object_field(r->view, object, r->offsets->dict_used, &used))
        return false;
    if (used && is_cut(r, object, depth, "{...}", used))
        return true;
    int result = dict_iterate(r->view, r->offsets, object, collect_entry, &items, NULL);
    text_putc(r->out, '{');
    render_items(r, &items, result, depth, used);
    text_putc(r->out, '}');
    return true;
}

#define ATTRIBUTES_COUNTED_MAX 4096

struct attributes {
    struct own_attribute items[VALUE_ITEMS_MAX];
    unsigned n, all; /* kept here; there are */
};

static int collect_attribute(void *arg, const struct own_attribute *attribute)
{
    struct attributes *attributes = arg;

    if (attributes->n < VALUE_ITEMS_MAX)
        attributes->items[attributes->n++] = *attribute;
    return ++attributes->all == ATTRIBUTES_COUNTED_MAX;
}

/* An attribute's name: a str of any kind that Python code chose, or a member's. */
static void add_name(struct renderer *r, const struct own_attribute *attribute)
{
    if (!attribute->key)
        text_add_escaped(r->out, attribute->name, strlen(attribute->name));
    else if (str_decode(r->view, r->offsets, attribute->key, VALUE_STRING_MAX, r->out) < 0)
        text_puts(r->out, "<unreadable>");
}

void render_attributes(struct renderer *r, uint64_t object)
{
    struct attributes attributes = {.n = 0};
    struct items items = {.n = 0};

    int result = instance_iterate(r->view, r->offsets, object, collect_attribute, &attributes);
    if (!attributes.n && result >= 0)
        return;
    for (unsigned i = 0; i < attributes.n; i++)
        collect_entry(&items, attributes.items[i].key, attributes.items[i].value);
    prefetch(r, &items);
    text_puts(r->out, " {");
    for (unsigned i = 0; i < attributes.n; i++) {
        if (i)
            text_puts(r->out, ", ");
        add_name(r, &attributes.items[i]);
        text_putc(r->out, '=');
        render_share(r, attributes.items[i].value, 1, attributes.n - i);
    }
    if (attributes.all == ATTRIBUTES_COUNTED_MAX || result == -E2BIG) {
        text_puts(r->out, ", ...");
    } else if (attributes.all > attributes.n) {
        text_puts(r->out, ", ");
        render_count(r, attributes.all, "attribute");
    } else if (result < 0) {
        text_puts(r->out, attributes.n ? ", <unreadable>" : "<unreadable>");
    }
    text_putc(r->out, '}');
}
