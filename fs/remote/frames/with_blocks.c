#include "fs/remote/frames/with_blocks.h"

#include "fs/remote/frames/exception_table.h"
#include "fs/remote/frames/instructions.h"
#include "fs/remote/frames/slots.h"

#include <errno.h>
#include <string.h>

/* ---- what is called at the end ---- */

#define DESCRIPTOR_NAME 8 /* PyDescr_COMMON.d_name, a str */
#define NAME_SIZE 16      /* longer than "__aexit__" */

enum exit { EXIT_NONE, EXIT_SYNC, EXIT_ASYNC };

static enum exit exit_of_name(const char *name)
{
    return !strcmp(name, "__exit__")    ? EXIT_SYNC
           : !strcmp(name, "__aexit__") ? EXIT_ASYNC
                                        : EXIT_NONE;
}

static enum exit exit_of_str(struct view *view, const struct offsets *o, uint64_t str)
{
    return str_equals(view, o, str, "__exit__")    ? EXIT_SYNC
           : str_equals(view, o, str, "__aexit__") ? EXIT_ASYNC
                                                   : EXIT_NONE;
}

/* A function of Python by the name in its code; else a descriptor of a method of C. */
static enum exit exit_of_function(struct view *view, const struct offsets *o, uint64_t function)
{
    struct object_class class;
    uint64_t code, name;

    if (object_classify(view, o, function, &class) < 0)
        return EXIT_NONE;
    if (class.kind == OBJECT_FUNCTION)
        return object_field(view, function, o->func_code, &code) &&
                       object_field(view, code, o->code_name, &name)
                   ? exit_of_str(view, o, name)
                   : EXIT_NONE;
    return object_field(view, function, o->object_size + DESCRIPTOR_NAME, &name)
               ? exit_of_str(view, o, name)
               : EXIT_NONE;
}

/* A method that is bound to its manager. */
static enum exit exit_of_bound(struct view *view, const struct offsets *o, uint64_t object,
                               uint64_t *manager)
{
    struct object_class class;
    char name[NAME_SIZE];
    uint64_t field;

    if (!object || object_classify(view, o, object, &class) < 0)
        return EXIT_NONE;
    if (class.kind == OBJECT_BUILTIN)
        return object_field(view, object, o->object_size + BUILTIN_SELF, manager) &&
                       object_field(view, object, o->object_size + BUILTIN_METHOD, &field) &&
                       view_read64(view, field, &field) &&
                       cstring_read(view, field, name, sizeof name)
                   ? exit_of_name(name)
                   : EXIT_NONE;
    if (class.kind == OBJECT_METHOD)
        return object_field(view, object, o->method_self, manager) &&
                       object_field(view, object, o->method_func, &field)
                   ? exit_of_function(view, o, field)
                   : EXIT_NONE;
    return EXIT_NONE;
}

struct with_walk {
    struct view *view;
    const struct offsets *offsets;
    uint32_t *entries; /* that may still be looked at */
    with_visit *visit;
    void *arg;
    struct frame_slots slots;
    /* the handler to be visited: try statements in a block have one at the same depth, and the
     * outermost of them is the block's */
    uint32_t depth; /* 0: none */
    int32_t at;
};

static bool take_entry(const struct with_walk *walk) { return *walk->entries && --*walk->entries; }

/* A handler at which the evaluation stack is `depth` high: that of a with statement if the method
 * is on top. Up to 3.13 it is bound; after, the function and what it is called with are apart. */
static int visit_handler(const struct with_walk *walk)
{
    const struct offsets *o = walk->offsets;
    uint32_t depth = walk->depth;
    uint64_t manager = 0;
    enum exit exit = EXIT_NONE;

    if (!depth || depth > walk->slots.n - walk->slots.locals)
        return 0;
    uint32_t top = walk->slots.locals + depth - 1;
    uint64_t object = frame_slot(walk->view, o, &walk->slots, top);
    if (o->version < 0x030e0000) {
        exit = exit_of_bound(walk->view, o, object, &manager);
    } else if (depth > 1) {
        uint64_t function = frame_slot(walk->view, o, &walk->slots, top - 1);
        manager = object;
        exit = object ? exit_of_function(walk->view, o, function)
                      : exit_of_bound(walk->view, o, function, &manager);
    }
    return exit == EXIT_NONE || !manager
               ? 0
               : walk->visit(walk->arg, manager, exit == EXIT_ASYNC, walk->at);
}

static int next_handler(struct with_walk *walk, uint32_t depth, int32_t at)
{
    int r = depth == walk->depth ? 0 : visit_handler(walk);

    walk->depth = depth;
    walk->at = at;
    return r;
}

/* ---- up to 3.10: the block stack ---- */

#define BLOCKS_MAX 20     /* CO_MAXBLOCKS */
#define BLOCK_SIZE 12     /* PyTryBlock: b_type, b_handler, b_level */
#define SETUP_FINALLY 122 /* b_type of a try or with whose block runs */

/* The byte offset of the with statement's instruction that has this handler; -1: not found. */
static int32_t find_setup(const struct with_walk *walk, uint64_t code, uint32_t handler)
{
    const struct offsets *o = walk->offsets;
    uint32_t unit = o->version >= 0x030a0000 ? 2 : 1; /* jumps count instructions */
    struct bytecode bytecode;
    struct instruction i = {0};

    if (bytecode_read(walk->view, o, code, &bytecode) < 0)
        return -1;
    while (take_entry(walk) && bytecode_next(&bytecode, i.end, &i))
        if (i.kind == INSTRUCTION_SETUP_WITH && i.target == handler * unit)
            return (int32_t)i.at;
    return -1;
}

static int iterate_blocks(struct with_walk *walk, const struct raw_frame *frame)
{
    const struct offsets *o = walk->offsets;
    const uint8_t *p = view_read(walk->view, frame->addr + (uint32_t)o->frame_iblock, 4);

    if (!p || load32(p) > BLOCKS_MAX)
        return -EFAULT;
    for (uint32_t n = load32(p); n; n--) {
        const uint8_t *block =
            view_read(walk->view,
                      frame->addr + (uint32_t)o->frame_blockstack + BLOCK_SIZE * (n - 1),
                      BLOCK_SIZE);
        if (!block)
            return -EFAULT;
        if (load32(block) != SETUP_FINALLY)
            continue;
        int r =
            next_handler(walk, load32(block + 8), find_setup(walk, frame->code, load32(block + 4)));
        if (r)
            return r;
    }
    return 0;
}

/* ---- from 3.11 on: the exception table ---- */

#define TABLE_FIRST 64 /* bytes: most have no more */
#define PAGE 4096u

/* The handler of an instruction. */
static bool find_entry(const struct with_walk *walk, struct exception_table t, uint32_t at,
                       struct handled *out)
{
    while (take_entry(walk) && exception_table_next(&t, out))
        if (at >= out->start && at < out->end)
            return true;
    return false;
}

/* Finds where the first block with this handler begins. */
static uint32_t find_start(const struct with_walk *walk, struct exception_table t,
                           const struct handled *of)
{
    uint32_t start = of->start;
    struct handled entry;

    while (take_entry(walk) && exception_table_next(&t, &entry))
        if (entry.handler == of->handler && entry.start < start)
            start = entry.start;
    return start;
}

/* A handler's own instructions have a handler, too: one for their own sake, at a depth that the
 * stack would have there, or that of what the block is in. */
static int iterate_table(struct with_walk *walk, const struct raw_frame *frame)
{
    struct exception_table table;
    struct handled entry;

    if (!exception_table_read(walk->view, walk->offsets, frame->code, &table))
        return -EFAULT;
    if (frame->lasti < 0)
        return 0;
    uint32_t at = (uint32_t)frame->lasti, lowest = UINT32_MAX;
    for (int i = 0; i < WITH_BLOCKS_MAX && find_entry(walk, table, at, &entry); i++) {
        at = entry.handler;
        if (entry.depth > lowest)
            continue;
        lowest = entry.depth;
        uint32_t start = find_start(walk, table, &entry);
        int r = next_handler(walk, entry.depth, start ? (int32_t)(start - 2) : -1);
        if (r)
            return r;
    }
    return 0;
}

/* Most frames have none: the cheapest way to see that. */
static bool has_handlers(struct view *view, const struct offsets *o, const struct raw_frame *frame)
{
    uint64_t table, size;

    if (o->code_exceptiontable < 0) {
        const uint8_t *n = view_read(view, frame->addr + (uint32_t)o->frame_iblock, 4);
        return n && load32(n);
    }
    if (frame->info && frame->info->no_handlers)
        return false;
    bool none = object_field(view, frame->code, o->code_exceptiontable, &table) &&
                object_size(view, o, table, &size) && !size;
    if (frame->info)
        frame->info->no_handlers = none;
    return !none;
}

int with_blocks_iterate(struct view *view, const struct offsets *offsets,
                        const struct raw_frame *frame, uint32_t *entries, with_visit *visit,
                        void *arg)
{
    struct with_walk walk = {
        .view = view, .offsets = offsets, .entries = entries, .visit = visit, .arg = arg};

    if (!has_handlers(view, offsets, frame))
        return 0;
    int r = frame_slots_find(view, offsets, frame, &walk.slots);
    if (r < 0)
        return r;
    r = offsets->code_exceptiontable >= 0 ? iterate_table(&walk, frame)
                                          : iterate_blocks(&walk, frame);
    if (r == 0 && !*entries)
        r = -E2BIG;
    return r ? r : visit_handler(&walk);
}

/* ---- all at once ---- */

void with_blocks_prefetch(struct view *view, const struct offsets *o,
                          const struct raw_frame *frames, size_t n)
{
    const uint8_t *p;

    if (o->code_exceptiontable < 0) {
        for (size_t i = 0; i < n; i++)
            (void)view_get(view, frames[i].addr + (uint32_t)o->frame_iblock, 8 + BLOCK_SIZE, &p);
        (void)view_fill(view);
        return;
    }
    for (size_t i = 0; i < n; i++) { /* the code's head has been copied by the walk */
        uint64_t table = 0;
        if ((i && frames[i].code == frames[i - 1].code) ||
            (frames[i].info && frames[i].info->no_handlers) ||
            !object_field(view, frames[i].code, o->code_exceptiontable, &table))
            continue;
        uint32_t size = (uint32_t)o->bytes_data + TABLE_FIRST;
        if ((table & (PAGE - 1)) <= PAGE - size) /* the next page need not exist */
            (void)view_get(view, table, size, &p);
    }
    (void)view_fill(view);
}
