/* heap/referrers/ADDRESS or TYPE: who refers to an object, or to the objects of a type:
 *
 *   200000 list 0x7f3a5e80 [0] < __main__.Trainer 0x7f3a5f10 .history < module __main__ trainer
 *   1 frame 1234 train (train.py:30) node
 *
 * How often, the type and the address of what refers, where in it, if that can be told; behind each
 * < who refers to that in turn, up to a module's global or a frame's variable. */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/frames/locals.h"
#include "fs/remote/heap/pool.h"
#include "fs/remote/heap/referrers.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/values.h"
#include "fs/tree/heap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 100          /* referrers */
#define CHAINS_MAX 16          /* of these, the first, that are followed ... */
#define CHAIN_LENGTH 4         /* ... so far */
#define CHAINS_NS 10000000000u /* no further search is begun then */
#define WORDS_BEFORE 32 /* bytes: of the garbage collector, of __dict__ and weak references */
#define LOCALS_SHOWN_MAX 65536u
#define NAME_CHARACTERS_MAX 100

/* ---- names ---- */

static bool parse_address(const char *word, uint64_t *out)
{
    char *end;

    if (strncmp(word, "0x", 2) != 0 || strlen(word) > 18)
        return false;
    *out = strtoull(word + 2, &end, 16);
    return end > word + 2 && !*end && *out && *out % 8 == 0;
}

static int find(struct file_context *context, unsigned value)
{
    uint64_t address;

    if (!strncmp(context->word, "0x", 2))
        return parse_address(context->word, &address) ? 0 : -ENOENT;
    return *context->word != '.' ? 0 : -ENOENT;
}

/* Lists nothing: any object is there, but none is listed. */
static int list(struct file_context *context, struct numbers *out) { return 0; }

const struct naming heap_objects = {WORD_MODULE, list, find};

/* ---- what ends a chain: variables of modules and frames ---- */

struct variable {
    uint64_t value;
    char *text;
};

struct roots {
    struct target *target;
    struct view *view;
    struct import_list modules;
    uint64_t *dicts; /* of these */
    struct variable *locals;
    size_t nlocals, alloc;
    const char *place; /* of the frame that is read */
};

static void roots_deinit(struct roots *roots)
{
    for (size_t i = 0; i < roots->nlocals; i++)
        free(roots->locals[i].text);
    free(roots->locals);
    free(roots->dicts);
    import_list_deinit(&roots->modules);
    view_free(roots->view);
}

static int add_local(void *arg, const struct local *local)
{
    struct roots *roots = arg;
    const struct offsets *offsets = &roots->target->runtime.offsets;
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    uint64_t value = stackref_object(offsets, local->reference);

    if (!value || roots->nlocals == LOCALS_SHOWN_MAX)
        return 0;
    text_printf(&text, "%s ", roots->place);
    if (local->text)
        text_puts(&text, local->text);
    else
        (void)str_decode(roots->view, offsets, local->name, NAME_CHARACTERS_MAX, &text);
    if (ARRAY_GROW(roots->locals, roots->alloc, roots->nlocals + 1) < 0 || text.error)
        return -ENOMEM;
    roots->locals[roots->nlocals++] = (struct variable){value, steal_pointer(text.data)};
    return 0;
}

static int read_frames(struct roots *roots)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
    const struct snapshot_options options = {0};

    int r = snapshot_take(roots->target, &options, &snapshot);
    for (size_t i = 0; r == 0 && i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        for (size_t k = 0; r == 0 && k < thread->nframes; k++) {
            const struct frame *frame = &thread->frames[k];
            _cleanup_(text_deinit) struct text place = TEXT_INIT;
            if (frame->kind != FRAME_PYTHON || !strcmp(frame->func, "<module>"))
                continue; /* the variables of that are the module's */
            text_printf(&place, "frame %d %s (%s:%d)", (int)thread->tid, frame->func, frame->file,
                        frame->line);
            roots->place = place.data ? place.data : "frame";
            view_reset(roots->view);
            r = locals_iterate(roots->view, &roots->target->runtime.offsets, frame->address,
                               frame->code, add_local, roots);
            if (r == -EFAULT || r == -E2BIG) /* it has gone on */
                r = 0;
        }
    }
    return r;
}

static int read_modules(struct roots *roots)
{
    int r = imports_list(roots->target, &roots->modules);
    if (r < 0)
        return r == -EOPNOTSUPP ? 0 : r;
    roots->dicts = calloc(roots->modules.n + 1, sizeof *roots->dicts);
    if (!roots->dicts)
        return -ENOMEM;
    view_reset(roots->view);
    for (size_t i = 0; i < roots->modules.n; i++)
        (void)object_field(roots->view, roots->modules.items[i].object,
                           roots->target->runtime.offsets.module_dict, &roots->dicts[i]);
    return 0;
}

static int roots_read(struct roots *roots, struct target *target)
{
    roots->target = target;
    int r = view_new(&target->memory, &roots->view);
    if (r == 0)
        r = read_modules(roots);
    return r == 0 ? read_frames(roots) : r;
}

static const char *module_of(const struct roots *roots, uint64_t dict)
{
    for (size_t i = 0; i < roots->modules.n; i++)
        if (roots->dicts[i] == dict)
            return roots->modules.items[i].name;
    return NULL;
}

/* ---- where in an object the reference stands ---- */

struct reference {
    const struct roots *roots;
    const struct referrers *referrers;
    uint64_t index;  /* of the item that comes next */
    uint64_t object; /* that it refers to; 0: not found */
    struct text *out;
};

static int at_item(void *arg, uint64_t item)
{
    struct reference *place = arg;

    if (referrers_wanted(place->referrers, item)) {
        place->object = item;
        text_printf(place->out, " [%lu]", place->index);
        return 1;
    }
    place->index++;
    return 0;
}

static int at_member(void *arg, uint64_t item)
{
    struct reference *place = arg;

    place->object = referrers_wanted(place->referrers, item) ? item : 0;
    return place->object != 0;
}

static int at_entry(void *arg, uint64_t key, uint64_t value)
{
    struct reference *place = arg;
    bool is_key = referrers_wanted(place->referrers, key);

    if (!is_key && !referrers_wanted(place->referrers, value))
        return 0;
    place->object = is_key ? key : value;
    text_puts(place->out, is_key ? " key " : " [");
    value_add(place->roots->view, &place->roots->target->runtime.offsets, key, place->out);
    text_puts(place->out, is_key ? "" : "]");
    return 1;
}

static int at_global(void *arg, uint64_t key, uint64_t value)
{
    struct reference *place = arg;

    if (!referrers_wanted(place->referrers, value))
        return 0;
    place->object = value;
    text_putc(place->out, ' ');
    (void)str_decode(place->roots->view, &place->roots->target->runtime.offsets, key,
                     NAME_CHARACTERS_MAX, place->out);
    return 1;
}

static int at_attribute(void *arg, const struct own_attribute *attribute)
{
    struct reference *place = arg;

    if (!referrers_wanted(place->referrers, attribute->value))
        return 0;
    place->object = attribute->value;
    text_puts(place->out, " .");
    if (attribute->key)
        (void)str_decode(place->roots->view, &place->roots->target->runtime.offsets, attribute->key,
                         NAME_CHARACTERS_MAX, place->out);
    else
        text_puts(place->out, attribute->name);
    return 1;
}

/* What no name leads to: a word of the object, or of those in front of it, its type but for that.
 */
static void find_word(struct reference *place, uint64_t object, uint64_t end)
{
    for (uint64_t at = object - WORDS_BEFORE; at < end && !place->object; at += 8) {
        uint64_t word;
        if (at == object + (uint32_t)place->roots->target->runtime.offsets.object_type)
            continue;
        if (!view_read64(place->roots->view, at, &word))
            return;
        if (referrers_wanted(place->referrers, word))
            place->object = word;
    }
}

enum refers {
    REFERS,     /* it does */
    REFERS_END, /* it does, and ends a chain */
    REFERS_NOT, /* no attribute of it does: what is there is a value that it has no more */
};

/* Says who it is, and where it refers to what. */
static enum refers add_referrer(struct reference *place, uint64_t object)
{
    const struct offsets *offsets = &place->roots->target->runtime.offsets;
    struct view *view = place->roots->view;
    const char *module = module_of(place->roots, object);
    struct object_class class;

    view_reset(view);
    if (module) {
        text_printf(place->out, "module %s", module);
        (void)dict_iterate(view, offsets, object, at_global, place, NULL);
        return REFERS_END;
    }
    if (value_type_name(view, offsets, object, place->out) < 0)
        text_puts(place->out, "?");
    text_printf(place->out, " 0x%lx", object);
    if (object_classify(view, offsets, object, &class) < 0)
        return REFERS_NOT;
    if (class.kind == OBJECT_DICT)
        (void)dict_iterate(view, offsets, object, at_entry, place, NULL);
    else if (class.kind == OBJECT_LIST)
        (void)list_iterate(view, offsets, object, at_item, place, NULL);
    else if (class.kind == OBJECT_TUPLE)
        (void)tuple_iterate(view, offsets, object, at_item, place, NULL);
    else if (class.kind == OBJECT_SET || class.kind == OBJECT_FROZENSET)
        (void)set_iterate(view, offsets, object, at_member, place, NULL);
    if (!place->object)
        (void)instance_iterate(view, offsets, object, at_attribute, place);
    bool has_names = class.flags & (TPFLAGS_MANAGED_DICT | TPFLAGS_INLINE_VALUES) &&
                     offsets->version >= 0x030b0000;
    if (!place->object)
        find_word(place, object, has_names ? object : object + POOL_BLOCK);
    return place->object || !has_names ? REFERS : REFERS_NOT;
}

/* ---- the file ---- */

struct chain {
    uint64_t end; /* whose referrers come next; 0: it has ended */
    struct text text;
};

struct rendering {
    struct referrers referrers;
    struct roots roots;
    struct chain chains[SHOWN_MAX];
    size_t n;
};

static void rendering_free(struct rendering **rendering)
{
    if (!*rendering)
        return;
    for (size_t i = 0; i < (*rendering)->n; i++)
        text_deinit(&(*rendering)->chains[i].text);
    referrers_deinit(&(*rendering)->referrers);
    roots_deinit(&(*rendering)->roots);
    free(*rendering);
}

/* Variables of frames refer to objects, too. */
static void add_locals(struct rendering *r)
{
    for (size_t i = 0; i < r->roots.nlocals && r->n < SHOWN_MAX; i++)
        if (referrers_wanted(&r->referrers, r->roots.locals[i].value))
            text_printf(&r->chains[r->n++].text, "1 %s", r->roots.locals[i].text);
}

static void add_first(struct rendering *r)
{
    for (size_t i = 0; i < r->referrers.n && r->n < SHOWN_MAX; i++) {
        const struct referrer *referrer = &r->referrers.items[i];
        struct chain *chain = &r->chains[r->n++];
        struct reference place = {.roots = &r->roots,
                                  .referrers = &r->referrers,
                                  .out = &chain->text};
        text_printf(&chain->text, "%lu ", referrer->count);
        enum refers refers = add_referrer(&place, referrer->object);
        chain->end = refers == REFERS && i < CHAINS_MAX ? referrer->object : 0;
        if (refers == REFERS_NOT) {
            text_deinit(&chain->text);
            chain->text = TEXT_INIT;
            r->n--;
        }
    }
}

static struct chain *chain_of(struct rendering *r, uint64_t end)
{
    for (size_t i = 0; end && i < r->n; i++)
        if (r->chains[i].end == end)
            return &r->chains[i];
    return NULL;
}

/* Goes one further with the chains that have no end yet, by their first referrer that can be told,
 * best a variable. 1: there are such. */
static int follow(struct rendering *r)
{
    uint64_t next[SHOWN_MAX] = {0};
    bool any = false;

    referrers_clear(&r->referrers);
    for (size_t i = 0; i < r->n; i++)
        if (referrers_want(&r->referrers, r->chains[i].end) < 0)
            return -ENOMEM;
    if (!r->referrers.of.n || r->referrers.ns > CHAINS_NS)
        return 0;
    for (size_t i = 0; i < r->roots.nlocals; i++) {
        struct chain *chain = chain_of(r, r->roots.locals[i].value);
        if (chain) {
            text_printf(&chain->text, " < %s", r->roots.locals[i].text);
            chain->end = 0;
        }
    }
    int found = referrers_find(&r->referrers);
    if (found < 0)
        return found;
    for (size_t i = 0; i < r->referrers.n; i++) {
        _cleanup_(text_deinit) struct text text = TEXT_INIT;
        struct reference place = {.roots = &r->roots, .referrers = &r->referrers, .out = &text};
        enum refers refers = add_referrer(&place, r->referrers.items[i].object);
        struct chain *chain = chain_of(r, place.object);
        size_t which = chain ? (size_t)(chain - r->chains) : 0;
        if (!chain || next[which] || refers == REFERS_NOT ||
            chain_of(r, r->referrers.items[i].object) == chain)
            continue;
        text_printf(&chain->text, " < %s", text.data ? text.data : "?");
        next[which] = refers == REFERS_END ? 1 : r->referrers.items[i].object;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->chains[i].end = next[i] > 1 ? next[i] : 0;
        any |= r->chains[i].end != 0;
    }
    return any;
}

static int search(struct file_context *context, struct rendering *r)
{
    uint64_t address;
    bool one = parse_address(context->word, &address);

    int e = referrers_init(&r->referrers, context->target);
    if (e == 0)
        e = one ? referrers_want(&r->referrers, address)
                : referrers_want_type(&r->referrers, context->word);
    if (e == -ENOENT)
        text_printf(
            &context->why,
            "no object of at most 512 bytes is of a type %s: write an address, as 0x7f3a5e80, "
            "or a type as heap/census has it",
            context->word);
    if (e == 0)
        e = referrers_find(&r->referrers);
    return e == 0 ? roots_read(&r->roots, context->target) : e;
}

int heap_referrers_render(struct file_context *context, struct text *out)
{
    const struct runtime *runtime = &context->target->runtime;

    if (!runtime->supported || runtime->free_threaded) {
        text_puts(&context->why, runtime->supported ? "a free-threaded interpreter allocates by "
                                                      "mimalloc, which isn't read"
                                                    : runtime->why);
        return -EOPNOTSUPP;
    }
    _cleanup_(rendering_free) struct rendering *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->referrers.unwanted = heap_unwanted;
    r->referrers.unwanted_arg = context->interrupt;
    int e = search(context, r);
    if (e < 0)
        return heap_error(context, e);
    size_t objects = r->referrers.of.n, all = r->referrers.n;
    uint64_t elsewhere = r->referrers.elsewhere;
    add_locals(r);
    add_first(r);
    for (int i = 0; i < CHAIN_LENGTH && (e = follow(r)) > 0; i++)
        ;
    if (e < 0)
        return heap_error(context, e);
    text_printf(out,
                "# %zu objects refer to %zu, %lu references are in no object that is known; "
                "found in %.2f s\n",
                all, objects, elsewhere, (double)r->referrers.ns * 1e-9);
    if (r->referrers.cut)
        text_puts(out, "# cut: not all references were looked at\n");
    for (size_t i = 0; i < r->n; i++)
        text_printf(out, "%s\n", r->chains[i].text.data ? r->chains[i].text.data : "?");
    if (all > SHOWN_MAX)
        text_printf(out, "# %zu more\n", all - SHOWN_MAX);
    return 0;
}
