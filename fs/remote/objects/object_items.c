/* list, tuple, set, frozenset: Include/cpython/{listobject,tupleobject,setobject}.h. */
#include "fs/remote/objects/object.h"

#include <errno.h>

#define CHUNK_MAX 1024u /* items copied at once */

/* Visits n pointers that stand stride bytes apart; those of sets have their hash behind them. */
static int items_iterate(struct view *view, uint64_t addr, uint64_t n, uint32_t stride,
                         item_visit *visit, void *arg)
{
    uint64_t limit = n < ENTRIES_MAX ? n : ENTRIES_MAX;

    for (uint64_t i = 0, chunk = 32; i < limit; i += chunk) {
        if (i)
            chunk = CHUNK_MAX;
        if (chunk > limit - i)
            chunk = limit - i;
        const uint8_t *p = view_read(view, addr + i * stride, (uint32_t)chunk * stride);
        if (!p)
            return -EFAULT;
        for (uint64_t k = 0; k < chunk; k++, p += stride) {
            /* unused slots are NULL, dummies of removed items have the hash -1 */
            if (stride == 16 && (!load64(p) || load64(p + 8) == UINT64_MAX))
                continue;
            int r = visit(arg, load64(p));
            if (r)
                return r;
        }
    }
    return limit < n ? -E2BIG : 0;
}

static int check_kind(struct view *view, const struct offsets *offsets, uint64_t object,
                      enum object_kind kind)
{
    struct object_class class;

    int r = object_classify(view, offsets, object, &class);
    if (r < 0)
        return r;
    if (class.kind != kind && !(kind == OBJECT_SET && class.kind == OBJECT_FROZENSET))
        return -EINVAL;
    return 0;
}

int list_iterate(struct view *view, const struct offsets *offsets, uint64_t list, item_visit *visit,
                 void *arg, uint64_t *size)
{
    uint64_t n, items;

    int r = check_kind(view, offsets, list, OBJECT_LIST);
    if (r < 0)
        return r;
    if (!object_size(view, offsets, list, &n) || n > INT64_MAX ||
        !object_field(view, list, offsets->list_items, &items))
        return -EFAULT;
    if (size)
        *size = n;
    return items_iterate(view, items, n, 8, visit, arg);
}

/* Finds where a tuple's items are. Looks at flags only: telling types needs the tuple tp_mro
 * itself. */
static int tuple_head(struct view *view, const struct offsets *offsets, uint64_t tuple, uint64_t *n,
                      uint64_t *items)
{
    uint64_t type, flags;

    if (offsets->tuple_items < 0 || !object_type(view, offsets, tuple, &type) ||
        !object_field(view, type, offsets->type_flags, &flags) ||
        !object_size(view, offsets, tuple, n) || *n > INT64_MAX)
        return -EFAULT;
    *items = tuple + (uint32_t)offsets->tuple_items;
    return flags & TPFLAGS_TUPLE_SUBCLASS ? 0 : -EINVAL;
}

int tuple_iterate(struct view *view, const struct offsets *offsets, uint64_t tuple,
                  item_visit *visit, void *arg, uint64_t *size)
{
    uint64_t n, items;

    int r = tuple_head(view, offsets, tuple, &n, &items);
    if (r < 0)
        return r;
    if (size)
        *size = n;
    return items_iterate(view, items, n, 8, visit, arg);
}

int tuple_size(struct view *view, const struct offsets *offsets, uint64_t tuple, uint64_t *size)
{
    uint64_t items;

    return tuple_head(view, offsets, tuple, size, &items);
}

int tuple_item(struct view *view, const struct offsets *offsets, uint64_t tuple, uint64_t index,
               uint64_t *out)
{
    uint64_t n, items;

    int r = tuple_head(view, offsets, tuple, &n, &items);
    if (r < 0)
        return r;
    if (index >= n)
        return -ENOENT;
    return view_read64(view, items + 8 * index, out) ? 0 : -EFAULT;
}

int set_iterate(struct view *view, const struct offsets *offsets, uint64_t set, item_visit *visit,
                void *arg, uint64_t *size)
{
    uint64_t used, mask, table;

    int r = check_kind(view, offsets, set, OBJECT_SET);
    if (r < 0)
        return r;
    if (!object_field(view, set, offsets->set_used, &used) ||
        !object_field(view, set, offsets->set_mask, &mask) || mask >= 1ull << 48 ||
        !object_field(view, set, offsets->set_table, &table))
        return -EFAULT;
    if (size)
        *size = used;
    if (!used)
        return 0;
    return items_iterate(view, table, mask + 1, 16, visit, arg);
}
