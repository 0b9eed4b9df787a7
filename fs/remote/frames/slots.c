#include "fs/remote/frames/slots.h"

#include "fs/remote/frames/locals.h"

#include <errno.h>

#define STACK_SLOTS_MAX 4096u /* of one frame's evaluation stack */

static bool read_u32(struct view *view, uint64_t addr, int32_t offset, uint32_t *out)
{
    const uint8_t *p = offset < 0 ? NULL : view_read(view, addr + (uint32_t)offset, 4);
    if (p)
        *out = load32(p);
    return p;
}

static int count_locals(struct view *view, const struct offsets *o, uint64_t code, uint32_t *out)
{
    const int32_t fields[] = {o->code_varnames, o->code_cellvars, o->code_freevars};
    uint64_t names, n, total = 0;

    if (o->code_nlocalsplus >= 0)
        return read_u32(view, code, o->code_nlocalsplus, out) && *out <= LOCALS_MAX ? 0 : -EFAULT;
    for (int i = 0; i < 3; i++) {
        if (!object_field(view, code, fields[i], &names) || tuple_size(view, o, names, &n) < 0 ||
            n > LOCALS_MAX)
            return -EFAULT;
        total += n;
    }
    *out = (uint32_t)total;
    return 0;
}

int frame_slots_find(struct view *view, const struct offsets *o, const struct raw_frame *frame,
                     struct frame_slots *out)
{
    struct frame_slots found;
    uint32_t stack;

    if (o->frame_localsplus < 0 || count_locals(view, o, frame->code, &found.locals) < 0 ||
        !read_u32(view, frame->code, o->code_stacksize, &stack) || stack > STACK_SLOTS_MAX)
        return -EFAULT;
    found.n = found.locals + stack;
    found.addr = frame->addr + (uint32_t)o->frame_localsplus;
    *out = found;
    return 0;
}

uint64_t frame_slot(struct view *view, const struct offsets *o, const struct frame_slots *slots,
                    uint32_t i)
{
    uint64_t reference;

    if (i >= slots->n || !view_read64(view, slots->addr + 8ull * i, &reference))
        return 0;
    uint64_t object = stackref_object(o, reference);
    return object & 7 ? 0 : object;
}

uint64_t frame_variable(struct view *view, const struct offsets *o, const struct frame_slots *slots,
                        uint32_t i)
{
    struct object_class class;
    uint64_t object = i < slots->locals ? frame_slot(view, o, slots, i) : 0;

    if (!object || object_classify(view, o, object, &class) < 0 || class.kind != OBJECT_CELL)
        return object;
    return object_field(view, object, o->cell_ref, &object) ? stackref_object(o, object) : 0;
}
