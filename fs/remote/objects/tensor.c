#include "fs/remote/objects/tensor.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_ 40 /* longer than any name looked for */

/* THPVariable: the pointer to the TensorImpl is its first field, behind a flag in most versions. */
#define OBJECT_IMPL 8
#define OBJECT_IMPL_FIRST 0

/* c10::intrusive_ptr_target: a pointer to a table of functions, and two counts, each a word, or one
 * word for both in newer versions; COUNT_FLAG: there is a Python object. */
#define COUNT_MAX (1u << 28)
#define COUNT_FLAG 0x80000000u

/* c10::TensorImpl, in words: that, the storage, what autograd knows, names, and the counter; in
 * most versions an interpreter; and the pointer back to the object, behind which are these. */
#define IMPL_AUTOGRAD 1 /* words behind the storage */
#define IMPL_COUNTER 3
#define IMPL_HEAD 12   /* words in which the pointer back is */
#define IMPL_OWNS 1ull /* set in that pointer: only the tensor keeps the object */
#define IMPL_NDIM 1    /* words behind that */
#define IMPL_SIZES 2
#define IMPL_STRIDES 7
#define IMPL_OFFSET 12
#define IMPL_NUMEL 13
#define IMPL_TYPE 14
#define IMPL_TAIL 15
#define INLINE_DIMENSIONS 5

/* c10::StorageImpl: the address of its bytes is behind the counts, with what frees them; then come
 * the device and their number. */
#define STORAGE_DEVICE 3
#define STORAGE_BYTES 4
#define STORAGE_WORDS 8
#define STORAGE_BYTES_MAX (1ull << 46)
/* torch::autograd::AutogradMeta: a pointer to a table of functions, a std::string, of 32 bytes or
 * of 8 as it was of old, and .grad; then a pointer to what computed it. */
#define AUTOGRAD_WORDS 8

static const struct tensor_type types[] = {
    {"uint8", 1, TENSOR_UNSIGNED},         {"int8", 1, TENSOR_SIGNED},
    {"int16", 2, TENSOR_SIGNED},           {"int32", 4, TENSOR_SIGNED},
    {"int64", 8, TENSOR_SIGNED},           {"float16", 2, TENSOR_FLOAT},
    {"float32", 4, TENSOR_FLOAT},          {"float64", 8, TENSOR_FLOAT},
    {"complex32", 4, TENSOR_COMPLEX},      {"complex64", 8, TENSOR_COMPLEX},
    {"complex128", 16, TENSOR_COMPLEX},    {"bool", 1, TENSOR_UNSIGNED},
    {"qint8", 1, TENSOR_OPAQUE},           {"quint8", 1, TENSOR_OPAQUE},
    {"qint32", 4, TENSOR_OPAQUE},          {"bfloat16", 2, TENSOR_BFLOAT},
    {"quint4x2", 1, TENSOR_OPAQUE},        {"quint2x4", 1, TENSOR_OPAQUE},
    {"bits1x8", 1, TENSOR_OPAQUE},         {"bits2x4", 1, TENSOR_OPAQUE},
    {"bits4x2", 1, TENSOR_OPAQUE},         {"bits8", 1, TENSOR_OPAQUE},
    {"bits16", 2, TENSOR_OPAQUE},          {"float8_e5m2", 1, TENSOR_OPAQUE},
    {"float8_e4m3fn", 1, TENSOR_OPAQUE},   {"float8_e5m2fnuz", 1, TENSOR_OPAQUE},
    {"float8_e4m3fnuz", 1, TENSOR_OPAQUE}, {"uint16", 2, TENSOR_UNSIGNED},
    {"uint32", 4, TENSOR_UNSIGNED},        {"uint64", 8, TENSOR_UNSIGNED},
}; /* c10/core/ScalarType.h */

static const char *const devices[] = {
    "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone",
}; /* c10/core/DeviceType.h */

/* ---- types ---- */

struct bases {
    struct view *view;
    const struct offsets *offsets;
};

bool tensor_is_base(struct view *view, const struct offsets *offsets, uint64_t type)
{
    char name[NAME_MAX_];
    uint64_t flags, addr;

    /* a static type, whose name no Python code can forge */
    return object_field(view, type, offsets->type_flags, &flags) && !(flags & TPFLAGS_HEAPTYPE) &&
           object_field(view, type, offsets->type_name, &addr) &&
           cstring_read(view, addr, name, sizeof name) &&
           (!strcmp(name, "torch._C._TensorBase") || !strcmp(name, "torch._C.TensorBase"));
}

static int is_base(void *arg, uint64_t type)
{
    const struct bases *b = arg;

    return tensor_is_base(b->view, b->offsets, type);
}

bool tensor_is_type(struct view *view, const struct offsets *offsets, uint64_t type)
{
    struct bases bases = {view, offsets};
    uint64_t mro, n;

    return object_field(view, type, offsets->type_mro, &mro) && mro &&
           tuple_size(view, offsets, mro, &n) == 0 && n <= MRO_MAX &&
           tuple_iterate(view, offsets, mro, is_base, &bases, NULL) == 1;
}

/* ---- the implementation ---- */

/* How many words the table of functions and the counts take; 0: that isn't what stands there. */
static unsigned head_words(const uint8_t *p)
{
    uint64_t table = load64(p), count = load64(p + 8), high = count >> 32;

    if (table <= 4096 || table & 7 || table >> 47 || !(uint32_t)count ||
        (uint32_t)count >= COUNT_MAX)
        return 0;
    uint64_t weak = high ? high & ~(uint64_t)COUNT_FLAG : load64(p + 16);
    return weak && weak < COUNT_MAX ? high ? 2 : 3 : 0;
}

/* optional<Device>, three bytes: type and index, with the flag that they are set before them in old
 * versions, behind them in newer ones. Those that can be read either way are left out. */
static void read_device(const uint8_t *p, struct tensor *out)
{
    bool before = p[0] == 1, behind = p[2] == 1;

    out->device = out->index = -1;
    if ((!before && !behind) || (before && behind && p[1] > 1))
        return;
    unsigned type = behind ? p[0] : p[1];
    if (type >= ARRAY_SIZE(devices))
        return;
    out->device = (int)type;
    out->index = (int8_t)(behind ? p[1] : p[2]);
    if (out->index < 0)
        out->index = -1;
}

static bool read_dimensions(struct view *view, const uint8_t *p, struct tensor *out)
{
    const uint8_t *sizes = p + 8 * IMPL_SIZES, *strides = p + 8 * IMPL_STRIDES;
    uint64_t ndim = load64(p + 8 * IMPL_NDIM), product = 1;

    if (ndim > TENSOR_DIMENSIONS_MAX)
        return false;
    out->ndim = (unsigned)ndim;
    if (ndim > INLINE_DIMENSIONS) {
        sizes = view_read(view, load64(sizes), out->ndim * 16);
        strides = sizes ? sizes + 8 * ndim : NULL;
    }
    for (unsigned i = 0; sizes && i < out->ndim; i++) {
        out->sizes[i] = (int64_t)load64(sizes + 8 * i);
        out->strides[i] = (int64_t)load64(strides + 8 * i);
        if (out->sizes[i] < 0 || __builtin_mul_overflow(product, load64(sizes + 8 * i), &product))
            return false;
    }
    return sizes && product == out->numel;
}

/* How many elements lie between the first and behind the last. */
static uint64_t extent(const struct tensor *tensor)
{
    uint64_t last = 0, step;

    if (!tensor->numel)
        return 0;
    for (unsigned i = 0; i < tensor->ndim; i++)
        if (tensor->strides[i] < 0 ||
            __builtin_mul_overflow((uint64_t)tensor->strides[i], (uint64_t)tensor->sizes[i] - 1,
                                   &step) ||
            __builtin_add_overflow(last, step, &last))
            return UINT64_MAX;
    return last < UINT64_MAX ? last + 1 : last;
}

static bool is_device(const uint8_t *p, const struct tensor *tensor)
{
    return p[0] == tensor->device && (int8_t)p[1] == tensor->index;
}

static void read_storage(struct view *view, uint64_t at, uint64_t offset, struct tensor *out)
{
    const uint8_t *p = at & 7 || !at ? NULL : view_read(view, at, STORAGE_WORDS * 8);
    uint64_t elements = extent(out), end;
    unsigned data = p ? head_words(p) : 0;

    if (!data || elements == UINT64_MAX || __builtin_add_overflow(elements, offset, &end))
        return;
    uint64_t address = load64(p + 8 * data), bytes = load64(p + 8 * (data + STORAGE_BYTES));
    if (!is_device(p + 8 * (data + STORAGE_DEVICE), out) || bytes > STORAGE_BYTES_MAX ||
        end > bytes / out->type->size)
        return;
    out->storage = at;
    out->storage_bytes = bytes;
    out->data = address ? address + offset * out->type->size : 0;
}

static void read_counter(struct view *view, uint64_t at, struct tensor *out)
{
    const uint8_t *p = at & 7 || !at ? NULL : view_read(view, at, 32);
    unsigned words = p ? head_words(p) : 0;

    if (!words)
        return;
    out->counter = at + 8 * words;
    out->version = (uint32_t)load64(p + 8 * words);
}

/* Whether at `at` is what stands where there is no tensor: one for all, that isn't counted, without
 * elements and storage. */
static bool is_undefined(struct view *view, uint64_t at, const struct tensor *of)
{
    const uint8_t *p = view_read(view, at, (of->back + IMPL_TAIL) * 8);

    return p && !load64(p + 8 * of->head) && load64(p + 8 * (of->back + IMPL_NDIM)) == 1 &&
           !load64(p + 8 * (of->back + IMPL_SIZES)) && !load64(p + 8 * (of->back + IMPL_NUMEL));
}

bool tensor_is_alike(const struct tensor *a, const struct tensor *b)
{
    return a->type == b->type && a->ndim == b->ndim &&
           !memcmp(a->sizes, b->sizes, a->ndim * sizeof *a->sizes);
}

static bool read_impl(struct view *view, uint64_t impl, unsigned back, struct tensor *out);

/* .grad, and whether there is something that computed the tensor. */
static void read_autograd(struct view *view, uint64_t at, struct tensor *out)
{
    static const unsigned places[] = {5, 2}; /* behind a string of 32 bytes, or of 8 */
    uint8_t copy[AUTOGRAD_WORDS * 8];
    struct tensor gradient;

    out->knows_autograd = out->head && !at;
    const uint8_t *p = at & 7 || !at ? NULL : view_read(view, at, sizeof copy);
    if (!p)
        return;
    memcpy(copy, p, sizeof copy);
    for (size_t i = 0; i < ARRAY_SIZE(places) && !out->knows_autograd; i++) {
        uint64_t grad = load64(copy + 8 * places[i]);
        if (grad <= 4096 || grad & 7 || grad >> 47)
            continue;
        gradient = (struct tensor){0};
        if (is_undefined(view, grad, out))
            out->knows_autograd = true;
        else if (read_impl(view, grad, out->back, &gradient) && tensor_is_alike(&gradient, out)) {
            out->knows_autograd = true;
            out->gradient = grad;
        }
        out->has_node = out->knows_autograd && load64(copy + 8 * (places[i] + 1));
    }
}

/* Reads what is around the pointer back, which is `back` words in. Not what autograd knows. */
static bool read_impl(struct view *view, uint64_t impl, unsigned back, struct tensor *out)
{
    uint8_t copy[(IMPL_HEAD + IMPL_TAIL) * 8];
    const uint8_t *p = impl & 7 || !impl ? NULL : view_read(view, impl, (back + IMPL_TAIL) * 8);
    unsigned storage = p ? head_words(p) : 0;

    if (!p || back >= IMPL_HEAD)
        return false;
    memcpy(copy, p, (back + IMPL_TAIL) * 8);
    p = copy + 8 * back;
    unsigned type = p[8 * IMPL_TYPE] | (unsigned)p[8 * IMPL_TYPE + 1] << 8;
    out->impl = impl;
    out->back = back;
    out->head = storage;
    out->numel = load64(p + 8 * IMPL_NUMEL);
    out->type = type < ARRAY_SIZE(types) ? &types[type] : NULL;
    if (!out->type || !read_dimensions(view, p, out))
        return false;
    read_device(p + 8 * IMPL_TYPE + 2, out);
    if (!storage || (back != storage + IMPL_COUNTER + 1 && back != storage + IMPL_COUNTER + 2))
        return true; /* it is only known what it is */
    read_storage(view, load64(copy + 8 * storage), load64(p + 8 * IMPL_OFFSET), out);
    read_counter(view, load64(copy + 8 * (storage + IMPL_COUNTER)), out);
    out->autograd = load64(copy + 8 * (storage + IMPL_AUTOGRAD));
    return true;
}

int tensor_read_object(struct view *view, const struct offsets *offsets, uint64_t object,
                       struct tensor *out)
{
    static const int32_t fields[] = {OBJECT_IMPL, OBJECT_IMPL_FIRST};
    uint64_t impl;

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const uint8_t *head = object_field(view, object, offsets->object_size + fields[i], &impl) &&
                                      impl && !(impl & 7)
                                  ? view_read(view, impl, IMPL_HEAD * 8)
                                  : NULL;
        unsigned back = 0;
        while (head && back < IMPL_HEAD && (load64(head + 8 * back) & ~IMPL_OWNS) != object)
            back++;
        *out = (struct tensor){.object = object};
        if (head && back < IMPL_HEAD && read_impl(view, impl, back, out)) {
            read_autograd(view, out->autograd, out);
            return 0;
        }
        if (view_is_queued(view))
            return -EAGAIN; /* it isn't known yet whether it is that one */
    }
    return -EINVAL;
}

int tensor_read(struct view *view, const struct offsets *offsets, uint64_t object,
                struct tensor *out)
{
    uint64_t type;

    if (!object_type(view, offsets, object, &type) || !tensor_is_type(view, offsets, type))
        return -EINVAL;
    return tensor_read_object(view, offsets, object, out);
}

int tensor_read_gradient(struct view *view, const struct tensor *of, struct tensor *out)
{
    *out = (struct tensor){0};
    if (!of->gradient || !read_impl(view, of->gradient, of->back, out) || !tensor_is_alike(out, of))
        return -ENOENT;
    if (!view_read64(view, out->impl + 8ull * out->back, &out->object))
        out->object = 0;
    out->object &= ~IMPL_OWNS;
    return 0;
}

/* ---- as text ---- */

void tensor_add_shape(const struct tensor *tensor, struct text *out)
{
    text_putc(out, '[');
    for (unsigned i = 0; i < tensor->ndim; i++)
        text_printf(out, i ? ", %ld" : "%ld", tensor->sizes[i]);
    text_putc(out, ']');
}

void tensor_add_device(const struct tensor *tensor, struct text *out)
{
    if (tensor->device < 0)
        return;
    text_puts(out, devices[tensor->device]);
    if (tensor->index >= 0)
        text_printf(out, ":%d", tensor->index);
}

void tensor_add(const struct tensor *tensor, struct text *out)
{
    text_puts(out, tensor->type->name);
    tensor_add_shape(tensor, out);
    if (tensor->device >= 0) {
        text_putc(out, ' ');
        tensor_add_device(tensor, out);
    }
}
