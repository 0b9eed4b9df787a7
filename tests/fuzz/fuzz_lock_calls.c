/* A frame whose bytecode and exception table are any bytes: what it has done to a lock is told, and
 * soon. The first byte chooses the version, the next ones where the frame stands, where a with
 * block begins and how much is bytecode; the rest is that, and the table. */
#include "fs/remote/frames/lock_calls.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/image.h"

#define VERSIONS 7
#define HEAD 4
#define BYTES_MAX 4096
#define STEPS (1u << 18)

struct world {
    struct image image;
    uint64_t frame, code, bytecode, table, lock;
};

static struct world world;

static uint64_t make_bytes(struct image *image)
{
    return image_object(image, image_type(image, "bytes"), BYTES_MAX + 64);
}

/* Its only variable is a lock; co_names has "acquire", "release" and "self", which are global, too.
 */
static void make_world(uint32_t version)
{
    struct image *image = &world.image;

    image_init(image, version);
    const struct offsets *o = &image->offsets;
    uint64_t names[] = {image_str(image, "acquire"), image_str(image, "release"),
                        image_str(image, "self")};
    world.lock = image_object(image, image_class(image, "Lock", 0), 64);
    uint64_t values[] = {world.lock, world.lock, world.lock};
    uint64_t globals = image_dict(image, image_keys(image, names, values, 3, false), 0, 3);
    uint64_t varnames = image_tuple(image, names + 2, 1), none = image_tuple(image, NULL, 0);

    world.code = image_object(image, image_type(image, "code"), 512 + BYTES_MAX);
    world.frame = image_alloc(image, 1024);
    world.table = make_bytes(image);
    image_put64(image, world.code, o->code_names, image_tuple(image, names, 3));
    image_put64(image, world.frame, o->frame_globals, globals);
    image_put64(image, world.frame, o->frame_localsplus, world.lock);
    if (o->code_nlocalsplus >= 0) {
        image_put8(image, world.code, o->code_nlocalsplus, 1);
        image_put64(image, world.code, o->code_exceptiontable, world.table);
        world.bytecode = world.code + (uint64_t)o->code_adaptive;
    } else {
        uint64_t bytes = make_bytes(image);
        image_put64(image, world.code, o->code_varnames, varnames);
        image_put64(image, world.code, o->code_cellvars, none);
        image_put64(image, world.code, o->code_freevars, none);
        image_put64(image, world.code, o->code_bytecode, bytes);
        world.bytecode = bytes + (uint64_t)o->bytes_data;
    }
}

static void put_bytes(const uint8_t *bytes, size_t size, size_t ncode)
{
    struct image *image = &world.image;
    const struct offsets *o = &image->offsets;

    image_put(image, world.bytecode, 0, bytes, ncode);
    if (o->code_nlocalsplus >= 0)
        image_put64(image, world.code, o->object_size, ncode / 2);
    else
        image_put64(image, world.bytecode - (uint64_t)o->bytes_data, o->object_size, ncode);
    image_put64(image, world.table, o->object_size, size - ncode);
    image_put(image, world.table, o->bytes_data, bytes + ncode, size - ncode);
}

static uint64_t find(void *arg, uint64_t object) { return object == world.lock ? object : 0; }

static void ask(const struct lock_calls *calls, uint32_t since)
{
    int32_t at;

    unsigned done = lock_calls_of(calls, world.lock, &at);
    if (done > (LOCK_UNTOUCHED | LOCK_ACQUIRED | LOCK_RELEASED) ||
        (at >= 0 && (done != LOCK_ACQUIRED || (uint32_t)at >= calls->code.size)))
        abort();
    if (lock_calls_since(calls, world.lock, since) > 7)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lock_calls_work work = {.steps = STEPS};
    struct lock_calls calls;
    struct view *view;

    if (size < HEAD || size - HEAD > BYTES_MAX)
        return 0;
    make_world(0x03090000 + ((uint32_t)(data[0] % VERSIONS) << 16));
    size_t ncode = (size - HEAD) * data[3] / 255 & ~(size_t)1;
    put_bytes(data + HEAD, size - HEAD, ncode);
    const struct raw_frame frame = {.addr = world.frame, .code = world.code, .lasti = data[1] * 2};
    if (view_new(&world.image.memory, &view) < 0)
        return 0;
    if (lock_calls_read(view, &world.image.offsets, &frame, find, NULL, &work, &calls) == 0 &&
        calls.n)
        ask(&calls, data[2] * 2u);
    if (calls.n > LOCK_CALLS_MAX || work.steps > STEPS)
        abort();
    lock_calls_deinit(&calls);
    view_free(view);
    return 0;
}
