#include "fs/remote/heap/block.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"
#include "fs/base/array.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/objects/object.h"

#include <errno.h>
#include <string.h>

#define TYPES_MAX 32768
#define WORDS_MAX (1u << 20) /* beyond, a word that isn't known is no type */
#define NO_TYPE UINT32_MAX
#define METATYPES_MAX 8 /* of metaclasses one above the other */

/* Include/object.h, tp_flags */
#define TPFLAGS_HAVE_GC (1ull << 14)
#define TPFLAGS_MANAGED_WEAKREF (1ull << 3) /* from 3.12 on */
#define GC_HEAD 16                          /* PyGC_Head */
#define PRE_HEADER 16                       /* the words of dictionary and weak references */

/* Objects/obmalloc.c, "PYTHONMALLOC=debug": the size, then 'o' for an object and FORBIDDENBYTEs */
#define DEBUG_HEAD 16
#define DEBUG_MARK 0xfdfdfdfdfdfdfd6full

int block_types_init(struct block_types *types, struct target *target)
{
    *types = (struct block_types){
        .memory = target->memory,
        .offsets = &target->runtime.offsets,
        .room = 4096,
    };
    types->words = calloc(types->room, sizeof *types->words);
    return types->words ? view_new(&types->memory, &types->view) : -ENOMEM;
}

void block_types_deinit(struct block_types *types)
{
    view_free(types->view);
    free(types->items);
    free(types->words);
}

static struct block_word *slot(struct block_word *words, size_t room, uint64_t addr)
{
    size_t i = (size_t)(addr * 0x9e3779b97f4a7c15ull >> 32) & (room - 1);

    while (words[i].addr && words[i].addr != addr)
        i = (i + 1) & (room - 1);
    return &words[i];
}

static bool make_room(struct block_types *types)
{
    if (types->nwords * 2 < types->room)
        return true;
    if (types->room >= WORDS_MAX * 2)
        return false;
    struct block_word *words = calloc(types->room * 2, sizeof *words);
    if (!words)
        return false;
    for (size_t i = 0; i < types->room; i++)
        if (types->words[i].addr)
            *slot(words, types->room * 2, types->words[i].addr) = types->words[i];
    free(types->words);
    types->words = words;
    types->room *= 2;
    return true;
}

/* Whether there is a type: the type of its type, and so on, ends in one that is its own, `type`. */
static bool is_type(struct block_types *types, uint64_t addr)
{
    uint64_t of, flags;

    for (int i = 0; i < METATYPES_MAX; i++, addr = of) {
        if (addr & 7 || !object_field(types->view, addr, types->offsets->object_type, &of))
            return false;
        if ((i || of == addr) &&
            (!object_field(types->view, addr, types->offsets->type_flags, &flags) ||
             !(flags & TPFLAGS_TYPE_SUBCLASS)))
            return false;
        if (of == addr)
            return true;
    }
    return false;
}

static uint32_t verify(struct block_types *types, uint64_t addr)
{
    const struct offsets *offsets = types->offsets;
    uint64_t words = offsets->version < 0x030b0000 ? 0
                     : offsets->version < 0x030c0000
                         ? TPFLAGS_MANAGED_DICT
                         : TPFLAGS_MANAGED_DICT | TPFLAGS_MANAGED_WEAKREF;
    uint64_t flags;

    view_reset(types->view);
    if (types->n == TYPES_MAX || !is_type(types, addr) ||
        !object_field(types->view, addr, offsets->type_flags, &flags) ||
        ARRAY_GROW(types->items, types->alloc, types->n + 1) < 0)
        return NO_TYPE;
    types->items[types->n] = (struct block_type){
        .addr = addr,
        .flags = flags,
        .before = (flags & TPFLAGS_HAVE_GC ? GC_HEAD : 0) + (flags & words ? PRE_HEADER : 0),
    };
    return (uint32_t)types->n++;
}

static uint32_t find(struct block_types *types, uint64_t addr)
{
    struct block_word *word = slot(types->words, types->room, addr);

    if (word->addr)
        return word->type;
    if (!make_room(types))
        return NO_TYPE;
    word = slot(types->words, types->room, addr);
    *word = (struct block_word){addr, verify(types, addr)};
    types->nwords++;
    return word->type;
}

/* Whether a word can be the reference count of an object that lives. Where bits 32 to 47 are set it
 * is an address, as in a block of another kind, or in that of an object that was given back.
 * Include/object.h; from 3.14 on there are flags above. */
static bool is_refcount(uint64_t word) { return (uint32_t)word && !(word & 0xffff00000000ull); }

bool block_object(struct block_types *types, const uint8_t *block, uint32_t size,
                  struct block_object *out)
{
    uint32_t begin = size > DEBUG_HEAD && load64(block + 8) == DEBUG_MARK ? DEBUG_HEAD : 0;

    for (uint32_t before = 0; before <= GC_HEAD + PRE_HEADER; before += 16) {
        uint32_t at = begin + before;
        if (at + 16 > size)
            return false;
        uint64_t word = load64(block + at + types->offsets->object_type);
        if (word < 4096 || word & 7 || word >> 47 || !is_refcount(load64(block + at)))
            continue;
        uint32_t type = find(types, word);
        if (type != NO_TYPE && types->items[type].before == before) {
            *out = (struct block_object){type, at};
            return true;
        }
    }
    return false;
}

char *block_type_name(struct block_types *types, uint32_t type)
{
    _cleanup_(text_deinit) struct text name = TEXT_INIT;

    view_reset(types->view);
    if (type_add_name(types->view, types->offsets, types->items[type].addr, &name) < 0 ||
        !name.size)
        text_puts(&name, "?");
    return name.data && !name.error ? strdup(name.data) : NULL;
}
