/* Objects of every kind, laid out right at first, then damaged as the input says: whatever is
 * made of them ends soon, in a text of bounded size. The first byte chooses the version; each
 * record after it overwrites a byte, a word, or a word with the address of something. */
#include "agent/base/cleanup.h"
#include "fs/remote/frames/children.h"
#include "fs/remote/objects/values.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/image.h"

#define VERSIONS 7 /* 3.9 to 3.15 ... */
#define BUILDS 10  /* ... and free-threaded ones, from 3.13 on */
#define ROOTS_MAX 40
#define RECORD 6
#define RECORDS_MAX 64
#define TEXT_SIZE_MAX (VALUE_BYTES_MAX + (64u << 10)) /* one value more begins below the limit */

struct world {
    struct image image;
    uint64_t roots[ROOTS_MAX];
    unsigned n;
    uint64_t frame, code;
};

static struct world worlds[BUILDS], world;

static uint64_t add(struct world *w, uint64_t object) { return w->roots[w->n++] = object; }

static uint64_t make(struct world *w, const char *type, const uint64_t *fields, unsigned n)
{
    uint64_t object = image_object(&w->image, image_type(&w->image, type), 256);
    for (unsigned i = 0; i < n; i++)
        image_put64(&w->image, object, w->image.offsets.object_size + 8 * (int)i, fields[i]);
    return add(w, object);
}

static void make_instances(struct world *w, uint64_t one, uint64_t str, uint64_t dict)
{
    struct image *image = &w->image;
    const struct offsets *o = &image->offsets;
    uint64_t class = image_class(image, "C", TPFLAGS_MANAGED_DICT | TPFLAGS_INLINE_VALUES);
    uint64_t object = image_alloc(image, 512) + 64, values = object + 32;
    uint64_t keys[3] = {str, one, str};

    image_put64(image, object, image->offsets.object_type, class);
    image_put64(image, class, o->heaptype_cached_keys, image_keys(image, keys, keys, 3, false));
    if (o->version < 0x030d0000) {
        values = image_alloc(image, 256) + 64;
        image_put8(image, values, -2, 2);
        image_put8(image, values, -4, 1);
        image_put64(image, object, o->version < 0x030c0000 ? -32 : o->managed_dict,
                    o->version < 0x030c0000 ? values : values - 1);
    } else {
        image_put64(image, values, 0, 0x01000203); /* capacity, size, embedded, valid */
        image_put64(image, values, 8, one);
    }
    add(w, class);
    add(w, object);

    class = image_class(image, "S", 0);
    object = image_object(image, class, 128);
    image_put64(image, class, image->offsets.object_size, 1);
    image_put64(image, class, o->type_dictoffset, 24);
    image_put64(image, class, 1024, image_cstring(image, "slot"));
    image_put64(image, class, 1032, 16);
    image_put64(image, class, 1040, 16);
    image_put64(image, object, o->object_size, one);
    image_put64(image, object, o->object_size + 8, dict);
    add(w, class);
    add(w, object);

    class = image_class(image, "I", TPFLAGS_LONG_SUBCLASS);
    image_put64(image, class, o->type_dictoffset, (uint64_t)-8);
    image_put64(image, class, o->type_itemsize, 4);
    object = image_object(image, class, 128);
    image_put64(image, object, 16, 8);
    add(w, object);
}

static void make_frame(struct world *w, uint64_t one, uint64_t str, uint64_t dict)
{
    struct image *image = &w->image;
    const struct offsets *o = &image->offsets;
    uint64_t names = image_tuple(image, (uint64_t[]){str, str}, 2);

    w->code = image_object(image, image_type(image, "code"), 512);
    w->frame = image_alloc(image, 1024);
    image_put64(image, w->frame, o->frame_locals, dict);
    image_put64(image, w->frame, o->frame_localsplus, one);
    image_put64(image, w->frame, o->frame_localsplus + 8, w->roots[0]);
    if (o->code_nlocalsplus >= 0) {
        uint64_t kinds = image_object(image, image_type(image, "bytes"), 64);
        image_put8(image, kinds, o->bytes_data + 1, 0x40);
        image_put8(image, w->code, o->code_nlocalsplus, 2);
        image_put64(image, w->code, o->code_localsplusnames, names);
        image_put64(image, w->code, o->code_localspluskinds, kinds);
    } else {
        image_put64(image, w->code, o->code_varnames, names);
        image_put64(image, w->code, o->code_cellvars, names);
        image_put64(image, w->code, o->code_freevars, names);
    }
    add(w, w->code);
    add(w, w->frame);
}

/* One that is suspended in the code of the frame. */
static void make_generator(struct world *w, uint64_t str)
{
    struct image *image = &w->image;
    const struct offsets *o = &image->offsets;
    uint64_t generator = make(w, "generator", NULL, 0), frame = generator;
    uint64_t table = image_object(image, image_type(image, "bytes"), 256);

    image_put64(image, generator, o->gen_qualname, str);
    image_put64(image, w->code, o->code_filename, str);
    image_put64(image, w->code, o->code_linetable, table);
    image_put64(image, table, o->bytes_size, 64);
    for (int i = 0; i < 64; i++)
        image_put8(image, table, o->bytes_data + i, (uint8_t)(0x80 | i * 3));
    if (o->gen_iframe >= 0) {
        frame += (uint64_t)o->gen_iframe;
        image_put8(image, generator, o->gen_frame_state, 0xff);
        image_put64(image, frame, o->frame_instr, w->code + 300);
    } else {
        frame = image_object(image, image_type(image, "code"), 512);
        image_put64(image, generator, o->gen_frame, frame);
        image_put8(image, frame, o->frame_lasti, 12);
    }
    image_put64(image, frame, o->frame_code, w->code);
}

static void world_init(struct world *w, uint32_t version, bool free_threaded)
{
    struct image *image = &w->image;
    image_init_build(image, version, free_threaded);
    const struct offsets *o = &image->offsets;

    uint64_t one = add(w, image_int(image, (uint32_t[]){1, 2, 3}, 3, true));
    uint64_t str = add(w, image_str(image, "name"));
    uint64_t items = image_alloc(image, 256);
    uint64_t pair[2] = {str, one};
    for (int i = 0; i < 32; i++)
        image_put64(image, items, 8 * i, i & 1 ? str : one);
    uint64_t list = make(w, "list", (uint64_t[]){20, items}, 2);
    image_put64(image, items, 40, list);
    uint64_t dict = add(w, image_dict(image, image_keys(image, pair, pair, 2, true), 0, 2));
    add(w, image_dict(image, image_keys(image, pair, pair, 2, false), items, 2));
    uint64_t tuple = add(w, image_tuple(image, pair, 2));
    uint64_t set = make(w, "set", NULL, 0);
    image_put64(image, set, o->set_used, 2);
    image_put64(image, set, o->set_mask, 7);
    image_put64(image, set, o->set_table, items);
    make(w, "float", (uint64_t[]){0x3ff8000000000001}, 1);
    make(w, "complex", (uint64_t[]){1, 2}, 2);
    make(w, "bytes", (uint64_t[]){300}, 1);
    make(w, "bytearray", (uint64_t[]){7, 8, items, items}, 4);
    make(w, "range", (uint64_t[]){one, one, one, one}, 4);
    make(w, "slice", (uint64_t[]){one, str, one}, 3);
    make(w, "mappingproxy", &dict, 1);
    make(w, "module", &dict, 1);
    make(w, "cell", &list, 1);
    make(w, "ValueError", (uint64_t[]){dict, tuple}, 2);
    uint64_t function = make(w, "function", NULL, 0);
    image_put64(image, function, o->func_qualname, str);
    make(w, "method", (uint64_t[]){function, list}, 2);
    make(w, "builtin_function_or_method", (uint64_t[]){items, list}, 2);
    make_instances(w, one, str, dict);
    make_frame(w, one, str, dict);
    make_generator(w, str);
}

/* position: in the image in use, or in one of the objects */
static void damage(const uint8_t *record)
{
    struct image *image = &world.image;
    uint64_t at = IMAGE_BASE + (load16(record + 1) * 8u) % (uint32_t)(image->used - 64);
    uint8_t value = record[3];

    if (record[0] & 0x80)
        at = world.roots[record[1] % world.n] + record[2];
    switch (record[0] & 3) {
    case 0: image_put8(image, at + (record[0] >> 2 & 7), 0, value); break;
    case 1: image_put64(image, at, 0, (uint64_t)(int64_t)(int16_t)load16(record + 4)); break;
    case 2: image_put64(image, at, 0, world.roots[value % world.n] + (record[4] & 0xf8)); break;
    case 3: image_put64(image, at, 0, 1ull << (value & 63)); break;
    }
}

struct showing {
    struct view *view;
    struct text *out;
    unsigned n;
};

static int show_local(void *arg, const struct local *local)
{
    struct showing *showing = arg;
    const struct offsets *offsets = &world.image.offsets;

    if (!local->reference || ++showing->n > 4 * LOCALS_MAX)
        abort();
    text_clear(showing->out);
    if (local->name)
        (void)str_decode(showing->view, offsets, local->name, 100, showing->out);
    (void)value_add_stackref(showing->view, offsets, local->reference, showing->out);
    if (showing->out->size > TEXT_SIZE_MAX)
        abort();
    return showing->n > 64;
}

static int show_child(void *arg, const struct child *child)
{
    struct showing *showing = arg;
    const struct offsets *offsets = &world.image.offsets;
    uint64_t object = stackref_object(offsets, child->reference), length;
    char path[64];

    if (!child->reference || strpbrk(child->step, "\n\t") || ++showing->n > 4 * LOCALS_MAX ||
        (child->key && (!*child->key || strpbrk(child->key, "\n\t"))))
        abort();
    text_clear(showing->out);
    (void)value_type_stackref(showing->view, offsets, child->reference, showing->out);
    if (object)
        (void)value_length(showing->view, offsets, object, &length);
    if (object && str_file_name(showing->view, offsets, object, path, sizeof path) == 0 &&
        strlen(path) >= sizeof path)
        abort();
    (void)value_add_stackref(showing->view, offsets, child->reference, showing->out);
    return showing->n > 64;
}

/* Every value that a frame's two names lead to, and a path that is written in the input itself. */
static void show_children(struct showing *showing, const struct world *of, const uint8_t *data,
                          size_t size)
{
    static const char *const paths[] = {
        "",           "{0}",         "{1}",         "name.name",   "{1}[2]",
        "{1}[-1]{1}", "{0}['name']", "{1}{2}.slot", "{1}[2][2][2]"};
    const struct children_of frame = {showing->view, &world.image.offsets, of->frame, of->code};
    char own[64] = "";
    const char *at;
    uint64_t value;

    memcpy(own, data, size < sizeof own ? size : sizeof own - 1);
    for (size_t i = 0; i <= ARRAY_SIZE(paths); i++) {
        const char *path = i < ARRAY_SIZE(paths) ? paths[i] : own;
        showing->n = 0;
        int r = children_visit(&frame, path, i & 1, show_child, showing, &value, &at);
        if (at < path || at > path + strlen(path) || (r >= 0 && *at))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text out = TEXT_INIT;
    const struct offsets *offsets = &world.image.offsets;
    struct view *view;
    uint64_t value;

    if (!size)
        return 0;
    uint32_t build = data[0] % BUILDS;
    struct world *clean = &worlds[build];
    if (!clean->n && build < VERSIONS)
        world_init(clean, 0x03090000 + (build << 16), false);
    else if (!clean->n)
        world_init(clean, 0x030d0000 + ((build - VERSIONS) << 16), true);
    memcpy(world.image.data, clean->image.data, clean->image.used);
    world.image.used = clean->image.used;
    world.image.offsets = clean->image.offsets;
    memcpy(world.roots, clean->roots, sizeof world.roots);
    world.n = clean->n;
    struct memory_image memory_image = {IMAGE_BASE, world.image.data, world.image.used};
    struct memory memory = {.image = &memory_image};
    for (size_t i = 1, n = 0; i + RECORD <= size && n < RECORDS_MAX; i += RECORD, n++)
        damage(data + i);

    if (view_new(&memory, &view) < 0)
        return 0;
    for (unsigned i = 0; i < world.n; i++) {
        text_clear(&out);
        value_add(view, offsets, world.roots[i], &out);
        if (!out.size || out.size > TEXT_SIZE_MAX || memchr(out.data, '\n', out.size))
            abort();
        (void)instance_attribute(view, offsets, world.roots[i], "slot", &value);
    }
    struct showing showing = {.view = view, .out = &out};
    for (unsigned i = 0; i < world.n; i++) {
        (void)globals_iterate(view, offsets, world.roots[i], show_local, &showing, &value);
        showing.n = 0;
    }
    (void)locals_iterate(view, offsets, clean->frame, clean->code, show_local, &showing);
    show_children(&showing, clean, data + 1, size - 1);
    view_free(view);
    text_deinit(&out);
    return 0;
}
