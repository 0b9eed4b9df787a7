/* Objects laid out by hand, right and wrong ones. That real interpreters lay them out in this way
 * is what tests/cases/test_locals.py shows; here the wrong ones count. */
#include "fs/remote/objects/values.h"
#include "agent/base/cleanup.h"
#include "tests/unit/check.h"
#include "tests/unit/image.h"

#include <errno.h>
#include <stdio.h>

static struct image image;
static struct view *view;

static const struct {
    uint32_t version;
    bool free_threaded;
} builds[] = {{0x03080000, false}, {0x03090000, false}, {0x030a0000, false}, {0x030b0000, false},
              {0x030c0000, false}, {0x030d0000, false}, {0x030d0000, true},  {0x030e0000, false},
              {0x030e0000, true},  {0x030f0000, false}, {0x030f0000, true}};

static void shows(uint64_t object, const char *want)
{
    struct text t = TEXT_INIT;
    view_reset(view);
    value_add(view, &image.offsets, object, &t);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

static void shows_unreadable(uint64_t object)
{
    char want[64];
    snprintf(want, sizeof want, "<unreadable: 0x%lx>", object);
    shows(object, want);
}

static uint64_t make_list(uint64_t items, uint64_t n)
{
    uint64_t list = image_object(&image, image_type(&image, "list"), 40);
    image_put64(&image, list, image.offsets.object_size, n);
    image_put64(&image, list, image.offsets.list_items, items);
    return list;
}

static void test_numbers(void)
{
    const uint32_t limbs[] = {7, 1, 3};
    int64_t value;

    shows(image_int(&image, NULL, 0, false), "0");
    shows(image_int(&image, limbs, 1, true), "-7");
    shows(image_int(&image, limbs, 2, false), "1073741831");
    CHECK_INT(int_to_i64(view, &image.offsets, image_int(&image, limbs, 2, true), &value), 0);
    CHECK_INT(value, -1073741831);
    CHECK_INT(int_to_i64(view, &image.offsets, image_str(&image, "7"), &value), -EINVAL);
    const uint32_t lowest[] = {0, 0, 8}; /* -2^63 */
    CHECK_INT(int_to_i64(view, &image.offsets, image_int(&image, lowest, 3, true), &value), 0);
    CHECK(value == INT64_MIN);
    CHECK_INT(int_to_i64(view, &image.offsets, image_int(&image, lowest, 3, false), &value),
              -ERANGE);

    /* a size that no memory has */
    uint64_t huge = image_int(&image, limbs, 1, false);
    image_put64(&image, huge,
                image.offsets.long_tag < 0 ? image.offsets.object_size : image.offsets.long_tag,
                1ull << 62);
    shows_unreadable(huge);
}

static void test_strings(void)
{
    const struct offsets *o = &image.offsets;

    shows(image_str(&image, "it's"), "\"it's\"");
    CHECK(str_equals(view, o, image_str(&image, "abc"), "abc"));
    CHECK(!str_equals(view, o, image_str(&image, "abd"), "abc"));
    CHECK(!str_equals(view, o, image_str(&image, "abcd"), "abc"));

    uint64_t long_str = image_str(&image, "x");
    image_put64(&image, long_str, o->unicode_length, 1ull << 39); /* it ends somewhere */
    struct text t = TEXT_INIT;
    value_add(view, o, long_str, &t);
    CHECK(t.size < 4 * VALUE_STRING_MAX + 64 && strstr(t.data, "'... 549,755,813,888 characters"));
    text_deinit(&t);

    uint64_t wild = image_str(&image, "x");
    uint32_t state = 7u << o->unicode_kind_bit | 1u << o->unicode_compact_bit; /* no such kind */
    image_put(&image, wild, o->unicode_state, &state, sizeof state);
    shows_unreadable(wild);
    state = 4u << o->unicode_kind_bit; /* elsewhere, at no address */
    image_put(&image, wild, o->unicode_state, &state, sizeof state);
    image_put64(&image, wild, o->unicode_data, 0x10);
    shows_unreadable(wild);
}

static void test_lists(void)
{
    uint64_t one = image_int(&image, (uint32_t[]){1}, 1, false), items = image_alloc(&image, 256);

    for (int i = 0; i < 32; i++)
        image_put64(&image, items, 8 * i, one);
    shows(make_list(0, 0), "[]");
    shows(make_list(items, 2), "[1, 1]");
    shows(make_list(items, 17), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
                                "... 17 items]");
    shows(make_list(0x10, 3), "[<unreadable>]");
    shows_unreadable(make_list(items, UINT64_MAX));

    uint64_t cycle = make_list(items + 240, 2);
    image_put64(&image, items, 240, cycle);
    image_put64(&image, items, 248, 0xdead0);
    shows(cycle, "[[...], <unreadable: 0xdead0>]");
    shows(image_tuple(&image, &one, 1), "(1,)");
    shows(image_tuple(&image, NULL, 0), "()");
}

static void test_dicts(void)
{
    const struct offsets *o = &image.offsets;
    uint64_t keys[3] = {image_str(&image, "a"), 0, image_str(&image, "b")};
    uint64_t values[3] = {image_int(&image, (uint32_t[]){1}, 1, false), 0, keys[0]}, found;
    uint64_t table = image_keys(&image, keys, values, 3, true);
    uint64_t dict = image_dict(&image, table, 0, 2);

    shows(dict, "{'a': 1, 'b': 'a'}");
    shows(image_dict(&image, image_keys(&image, keys, values, 3, false), 0, 2),
          "{'a': 1, 'b': 'a'}");
    CHECK_INT(dict_lookup_str(view, o, dict, "b", &found), 0);
    CHECK(found == keys[0]);
    CHECK_INT(dict_lookup_str(view, o, dict, "c", &found), -ENOENT);
    CHECK_INT(dict_lookup_str(view, o, keys[0], "c", &found), -EINVAL);
    CHECK_INT(dict_lookup_str(view, o, 0x18, "c", &found), -EFAULT);
    static const uint64_t asked_at[] = {0, 1, 2, 3, UINT64_MAX}; /* the third entry is "b" */
    for (size_t i = 0; i < ARRAY_SIZE(asked_at); i++) {
        uint64_t at = asked_at[i];
        found = 0;
        CHECK_INT(dict_lookup_again(view, o, dict, "b", &at, &found), 0);
        CHECK(found == keys[0] && at == 2);
        CHECK_INT(dict_lookup_again(view, o, dict, "c", &at, &found), -ENOENT);
    }

    image_put64(&image, table, o->keys_nentries, UINT64_MAX);
    shows(dict, "{<unreadable>}");
    image_put64(&image, table, o->keys_nentries, 3);
    if (o->keys_kind >= 0)
        image_put8(&image, table, o->keys_log2_size, 255);
    else
        image_put64(&image, table, o->keys_size, UINT64_MAX);
    shows(dict, "{<unreadable>}");
    shows(image_dict(&image, 0, 0, 1), "{<unreadable>}");
    shows(image_dict(&image, 0, 0, 0), "{}");
}

/* Values of three names, of which the third was set first and the second not at all. */
static uint64_t make_split_values(uint64_t first, uint64_t third)
{
    const struct offsets *o = &image.offsets;
    uint64_t values = image_alloc(&image, 128) + 32;
    int64_t items = o->dictvalues_items > 0 ? o->dictvalues_items : 0;

    image_put64(&image, values, items, first);
    image_put64(&image, values, items + 16, third);
    if (o->version >= 0x030d0000) {
        image_put8(&image, values, 0, 3); /* capacity, size, embedded, valid */
        image_put8(&image, values, 1, 2);
        image_put8(&image, values, 3, 1);
        image_put8(&image, values, items + 24, 2);
        image_put8(&image, values, items + 25, 0);
    } else if (o->version >= 0x030b0000) {
        image_put8(&image, values, -2, 2);
        image_put8(&image, values, -3, 2);
        image_put8(&image, values, -4, 0);
    }
    return values;
}

static void test_split_dict(void)
{
    const struct offsets *o = &image.offsets;
    uint64_t keys[3] = {image_str(&image, "a"), image_str(&image, "b"), image_str(&image, "c")};
    uint64_t one = image_int(&image, (uint32_t[]){1}, 1, false);
    uint64_t table = image_keys(&image, keys, NULL, 3, false);
    uint64_t values = make_split_values(one, keys[0]);
    uint64_t dict = image_dict(&image, table, values, 2);

    if (o->version < 0x030b0000) {
        shows(dict, "{'a': 1, 'c': 'a'}");
        return;
    }
    shows(dict, "{'c': 'a', 'a': 1}");
    /* an order that points outside of the table */
    if (o->version >= 0x030d0000)
        image_put8(&image, values, o->dictvalues_items + 24, 200);
    else
        image_put8(&image, values, -3, 200);
    shows(dict, "{<unreadable>}");
}

static void test_sets(void)
{
    const struct offsets *o = &image.offsets;
    uint64_t one = image_int(&image, (uint32_t[]){1}, 1, false);
    uint64_t set = image_object(&image, image_type(&image, "set"), 200);
    uint64_t table = image_alloc(&image, 8 * 16);

    shows(set, "set()");
    image_put64(&image, set, o->set_used, 1);
    image_put64(&image, set, o->set_mask, 7);
    image_put64(&image, set, o->set_table, table);
    image_put64(&image, table, 0, one); /* removed: a dummy */
    image_put64(&image, table, 8, UINT64_MAX);
    image_put64(&image, table, 48, one);
    shows(set, "{1}");
    image_put64(&image, set, o->set_mask, UINT64_MAX);
    shows(set, "{<unreadable>}");
}

static void test_instances(void)
{
    const struct offsets *o = &image.offsets;
    char want[128];
    uint64_t slots = image_class(&image, "S", 0), members = slots + 1024, value;
    uint64_t object = image_object(&image, slots, 64);

    snprintf(want, sizeof want, "<m.S object at 0x%lx>", object);
    shows(object, want);

    /* __slots__ = "x", "y", both bound */
    image_put64(&image, slots, image.offsets.object_size, 2);
    for (int i = 0; i < 2; i++) {
        image_put64(&image, members, 40 * i, image_cstring(&image, i ? "y" : "x"));
        const uint64_t at = (uint64_t)o->object_size + 8 * (uint64_t)i;
        image_put64(&image, members, 40 * i + 8, 16);
        image_put64(&image, members, 40 * i + 16, at);
        image_put64(&image, object, (int64_t)at, image_int(&image, (uint32_t[]){5}, 1, i));
    }
    snprintf(want, sizeof want, "<m.S object at 0x%lx> {x=5, y=-5}", object);
    shows(object, want);
    CHECK_INT(instance_attribute(view, o, object, "y", &value), 0);
    CHECK_INT(instance_attribute(view, o, object, "z", &value), -ENOENT);
    image_put64(&image, members, 16, UINT64_MAX); /* x is nowhere now */
    snprintf(want, sizeof want, "<m.S object at 0x%lx> {y=-5}", object);
    shows(object, want);

    /* a class that is its own base, and one with a metaclass that isn't one */
    uint64_t mro = image_tuple(&image, (uint64_t[]){slots, slots}, 2);
    image_put64(&image, mro, image.offsets.object_size, UINT64_MAX);
    image_put64(&image, slots, o->type_mro, mro);
    snprintf(want, sizeof want, "<m.S object at 0x%lx> {<unreadable>}", object);
    shows(object, want);
    image_put64(&image, slots, image.offsets.object_type, object);
    shows_unreadable(object);
}

static void test_managed_dict(void)
{
    const struct offsets *o = &image.offsets;
    char want[128];
    uint64_t keys[3] = {image_str(&image, "a"), image_str(&image, "b"), image_str(&image, "c")};
    uint64_t one = image_int(&image, (uint32_t[]){1}, 1, false);
    uint64_t class = image_class(&image, "C", TPFLAGS_MANAGED_DICT | TPFLAGS_INLINE_VALUES);
    uint64_t room = image_alloc(&image, 256), object = room + 64, values;

    image_put64(&image, object, image.offsets.object_type, class);
    image_put64(&image, class, o->heaptype_cached_keys, image_keys(&image, keys, NULL, 3, false));
    if (o->version < 0x030b0000)
        return;
    if (o->version < 0x030d0000) {
        values = make_split_values(one, keys[0]);
        if (o->version < 0x030c0000)
            image_put64(&image, object, -32, values);
        else
            image_put64(&image, object, o->managed_dict, values - 1);
    } else { /* inside of the object, behind tp_basicsize */
        values = object + 32;
        image_put8(&image, values, 0, 3);
        image_put8(&image, values, 1, 2);
        image_put8(&image, values, 3, 1);
        image_put64(&image, values, o->dictvalues_items, one);
        image_put64(&image, values, o->dictvalues_items + 16, keys[0]);
        image_put8(&image, values, o->dictvalues_items + 24, 2);
    }
    snprintf(want, sizeof want, "<m.C object at 0x%lx> {c='a', a=1}", object);
    shows(object, want);

    uint64_t table = image_keys(&image, keys, keys, 1, true);
    image_put64(&image, object, o->managed_dict, image_dict(&image, table, 0, 1));
    snprintf(want, sizeof want, "<m.C object at 0x%lx> {a='a'}", object);
    shows(object, want);
}

static void test_references(void)
{
    struct text t = TEXT_INIT;
    uint64_t one = image_int(&image, (uint32_t[]){1}, 1, false);

    CHECK(value_add_stackref(view, &image.offsets, one, &t));
    CHECK_STR(t.data, "1");
    CHECK(!value_add_stackref(view, &image.offsets, 0, &t));
    text_clear(&t);
    if (image.offsets.version >= 0x030e0000) {
        CHECK(!value_add_stackref(view, &image.offsets, 1, &t));
        CHECK(value_add_stackref(view, &image.offsets, one | 1, &t));
        CHECK(value_add_stackref(view, &image.offsets, (uint64_t)-5 << 2 | 3, &t));
        CHECK_STR(t.data, "1-5");
    }
    text_deinit(&t);
}

/* 3.10 counts instructions, not bytes: one so far on that there is no such offset. */
static void test_generator_too_far(void)
{
    const struct offsets *o = &image.offsets;
    uint64_t name = image_str(&image, "counts");
    uint64_t generator = image_object(&image, image_type(&image, "generator"), 256);
    uint64_t frame = image_object(&image, image_type(&image, "object"), 512);
    char want[80];

    if (o->version < 0x030a0000 || o->version >= 0x030b0000)
        return;
    image_put64(&image, generator, o->gen_qualname, name);
    image_put64(&image, generator, o->gen_frame, frame);
    image_put64(&image, frame, o->frame_code,
                image_object(&image, image_type(&image, "code"), 512));
    image_put64(&image, frame, o->frame_lasti, 1u << 30);
    image_put8(&image, frame, o->frame_state, 0xff);
    snprintf(want, sizeof want, "<generator object counts at 0x%lx, suspended>", generator);
    shows(generator, want);
}

/* A list of 16 times the same item. */
static uint64_t make_sixteen(uint64_t item)
{
    uint64_t items = image_alloc(&image, 16 * 8);

    for (int i = 0; i < 16; i++)
        image_put64(&image, items, 8 * i, item);
    return make_list(items, 16);
}

static unsigned count(const struct text *t, const char *what)
{
    unsigned n = 0;

    for (const char *p = t->data; (p = strstr(p, what)); p++)
        n++;
    return n;
}

/* The number of objects has a limit, and each item gets its share of it. */
static void test_limits(void)
{
    uint64_t outer = make_sixteen(make_sixteen(image_int(&image, (uint32_t[]){9}, 1, false)));
    struct text t = TEXT_INIT;

    value_add(view, &image.offsets, outer, &t);
    CHECK_INT(count(&t, "9"), 16 * 16);
    CHECK_INT(count(&t, "..."), 0);
    text_clear(&t);
    value_add(view, &image.offsets, make_sixteen(outer), &t);
    CHECK(count(&t, "9") >= 16 && count(&t, "9") <= VALUE_NODES_MAX);
    CHECK_INT(count(&t, "[[9"), 16);
    CHECK(count(&t, VALUE_CUT) + count(&t, "[... 16 items]") > 16);
    text_deinit(&t);
}

int main(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
        image_init_build(&image, builds[i].version, builds[i].free_threaded);
        CHECK_INT(view_new(&image.memory, &view), 0);
        test_numbers();
        test_strings();
        test_lists();
        test_dicts();
        test_split_dict();
        test_sets();
        test_instances();
        test_managed_dict();
        test_references();
        test_generator_too_far();
        test_limits();
        shows_unreadable(0);
        shows_unreadable(0x100001);
        shows_unreadable(UINT64_MAX);
        view_free(view);
    }
    return 0;
}
