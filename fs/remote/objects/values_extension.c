/* What two extension modules keep in memory: numpy's scalars, and the tensors of PyTorch. Both are
 * instances of static types, whose names no Python code can forge. */
#include "fs/remote/objects/number.h"
#include "fs/remote/objects/values.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_ 40 /* longer than any name looked for */

static bool static_name(struct renderer *r, uint64_t type, char *name)
{
    uint64_t flags, addr;

    return object_field(r->view, type, r->offsets->type_flags, &flags) &&
           !(flags & TPFLAGS_HEAPTYPE) &&
           object_field(r->view, type, r->offsets->type_name, &addr) &&
           cstring_read(r->view, addr, name, NAME_MAX_);
}

/* ---- numpy ---- */

#define SCALAR_VALUE 16 /* PyFloatScalarObject.obval and the like: numpy/arrayscalars.h */

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023;
    double value = exponent == 31 ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);

    return bits & 0x8000 ? -value : value;
}

/* The half that is nearest. */
static double to_half(double value)
{
    int exponent;

    frexp(value, &exponent);
    double unit = ldexp(1, exponent < -13 ? -24 : exponent - 11);
    return rint(value / unit) * unit;
}

static double to_single(double value) { return (double)(float)value; }

/* The shortest decimal number that a narrower type rounds to this one. */
static double shortest(double value, double (*round)(double))
{
    char text[32];

    for (int digits = 0; isfinite(value) && digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, value);
        if (round(strtod(text, NULL)) == value)
            return strtod(text, NULL);
    }
    return value;
}

static double single(const uint8_t *p)
{
    float value;

    memcpy(&value, p, sizeof value);
    return shortest((double)value, to_single);
}

enum scalar { BOOL, SIGNED, UNSIGNED, HALF, SINGLE, COMPLEX };

static void add_scalar(struct text *out, enum scalar kind, unsigned size, const uint8_t *p)
{
    uint64_t bits = 0;

    memcpy(&bits, p, size);
    switch (kind) {
    case BOOL: text_puts(out, bits ? "True" : "False"); break;
    case SIGNED:
        text_printf(out, "%lld", (long long)(int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
        break;
    case UNSIGNED: text_printf(out, "%llu", (unsigned long long)bits); break;
    case HALF: number_add_float(out, shortest(half((uint16_t)bits), to_half)); break;
    case SINGLE: number_add_float(out, single(p)); break;
    case COMPLEX: number_add_complex(out, single(p), single(p + 4)); break;
    }
}

static bool render_scalar(struct renderer *r, uint64_t object, const struct object_class *class)
{
    static const struct {
        const char *name;
        enum scalar kind;
        unsigned size; /* bytes */
    } scalars[] = {
        {"bool_", BOOL, 1},      {"bool", BOOL, 1},       {"int8", SIGNED, 1},
        {"int16", SIGNED, 2},    {"int32", SIGNED, 4},    {"int64", SIGNED, 8},
        {"longlong", SIGNED, 8}, {"uint8", UNSIGNED, 1},  {"uint16", UNSIGNED, 2},
        {"uint32", UNSIGNED, 4}, {"uint64", UNSIGNED, 8}, {"ulonglong", UNSIGNED, 8},
        {"float16", HALF, 2},    {"float32", SINGLE, 4},  {"complex64", COMPLEX, 8},
    };
    char name[NAME_MAX_];

    if (!static_name(r, class->type, name) || strncmp(name, "numpy.", 6))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(scalars); i++) {
        if (strcmp(name + 6, scalars[i].name))
            continue;
        const uint8_t *p = view_read(r->view, object + SCALAR_VALUE, scalars[i].size);
        if (!p)
            return false;
        text_printf(r->out, "%s(", name);
        add_scalar(r->out, scalars[i].kind, scalars[i].size, p);
        text_putc(r->out, ')');
        return true;
    }
    return false;
}

/* ---- PyTorch ---- */

/* c10::TensorImpl, in words (c10/core/TensorImpl.h). What stands in front of the pointer back to
 * the Python object differs by version; behind it, all have alike the sizes and strides of up to
 * five dimensions, or where those of more are. */
#define IMPL_HEAD 12 /* words, in which that pointer is */
#define IMPL_NDIM 1  /* words behind it */
#define IMPL_SIZES 2
#define IMPL_NUMEL 13
#define IMPL_TYPE 14
#define IMPL_TAIL 15
#define INLINE_DIMENSIONS 5
#define DIMENSIONS_MAX 64

static const char *dtype_name(unsigned number)
{
    static const char *const names[] = {
        "uint8",           "int8",
        "int16",           "int32",
        "int64",           "float16",
        "float32",         "float64",
        "complex32",       "complex64",
        "complex128",      "bool",
        "qint8",           "quint8",
        "qint32",          "bfloat16",
        "quint4x2",        "quint2x4",
        "bits1x8",         "bits2x4",
        "bits4x2",         "bits8",
        "bits16",          "float8_e5m2",
        "float8_e4m3fn",   "float8_e5m2fnuz",
        "float8_e4m3fnuz", "uint16",
        "uint32",          "uint64",
    }; /* c10/core/ScalarType.h */

    return number < ARRAY_SIZE(names) ? names[number] : NULL;
}

static const char *device_name(unsigned number)
{
    static const char *const names[] = {
        "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
        "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
        "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone",
    }; /* c10/core/DeviceType.h */

    return number < ARRAY_SIZE(names) ? names[number] : NULL;
}

/* optional<Device>, three bytes: type and index, with the flag that they are set before them in old
 * versions, behind them in newer ones. Those that can be read either way are left out. */
static void add_device(struct text *out, const uint8_t *p)
{
    bool before = p[0] == 1, behind = p[2] == 1;

    if (before && behind && p[1] > 1)
        return;
    const char *name = behind ? device_name(p[0]) : before ? device_name(p[1]) : NULL;
    int8_t index = (int8_t)(behind ? p[1] : p[2]);
    if (name && index >= 0)
        text_printf(out, " %s:%d", name, index);
    else if (name)
        text_printf(out, " %s", name);
}

/* The pointer back to the Python object, or NULL; *at: its address. */
static const uint8_t *find_back(struct renderer *r, uint64_t impl, uint64_t object, uint64_t *at)
{
    const uint8_t *head = impl & 7 ? NULL : view_read(r->view, impl, IMPL_HEAD * 8);

    for (unsigned i = 0; head && i < IMPL_HEAD; i++)
        if (load64(head + 8 * i) == object) {
            *at = impl + 8 * i;
            return view_read(r->view, *at, IMPL_TAIL * 8);
        }
    return NULL;
}

static bool add_tensor(struct renderer *r, uint64_t impl, uint64_t object)
{
    uint64_t at, product = 1;

    const uint8_t *p = find_back(r, impl, object, &at);
    uint64_t ndim = p ? load64(p + 8 * IMPL_NDIM) : UINT64_MAX;
    if (ndim > DIMENSIONS_MAX)
        return false;
    uint64_t numel = load64(p + 8 * IMPL_NUMEL);
    const uint8_t *type = p + 8 * IMPL_TYPE, *sizes = p + 8 * IMPL_SIZES;
    if (ndim > INLINE_DIMENSIONS)
        sizes = view_read(r->view, load64(sizes), (uint32_t)ndim * 8);
    for (uint64_t i = 0; sizes && i < ndim; i++)
        product *= load64(sizes + 8 * i);
    const char *name = dtype_name(type[0] | (unsigned)type[1] << 8);
    if (!sizes || product != numel || !name) /* it is laid out in another way */
        return false;
    text_printf(r->out, "%s[", name);
    for (uint64_t i = 0; i < ndim; i++)
        text_printf(r->out, i ? ", %llu" : "%llu", (unsigned long long)load64(sizes + 8 * i));
    text_putc(r->out, ']');
    add_device(r->out, type + 2);
    return true;
}

/* THPVariable: the pointer to the TensorImpl is its first field, behind a flag in most versions. */
#define TENSOR_IMPL 24
#define TENSOR_IMPL_FIRST 16

struct bases {
    struct renderer *renderer;
    bool found;
};

static int is_tensor_base(void *arg, uint64_t type)
{
    struct bases *bases = arg;
    char name[NAME_MAX_];

    bases->found = static_name(bases->renderer, type, name) &&
                   (!strcmp(name, "torch._C._TensorBase") || !strcmp(name, "torch._C.TensorBase"));
    return bases->found;
}

static bool is_tensor(struct renderer *r, const struct object_class *class)
{
    struct bases bases = {.renderer = r};
    uint64_t mro, n;

    if (object_field(r->view, class->type, r->offsets->type_mro, &mro) && mro &&
        tuple_size(r->view, r->offsets, mro, &n) == 0 && n <= MRO_MAX)
        (void)tuple_iterate(r->view, r->offsets, mro, is_tensor_base, &bases, NULL);
    return bases.found;
}

static bool render_tensor(struct renderer *r, uint64_t object, const struct object_class *class)
{
    static const int32_t fields[] = {TENSOR_IMPL, TENSOR_IMPL_FIRST};
    uint64_t impl;

    if (!is_tensor(r, class))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (object_field(r->view, object, fields[i], &impl) && impl && add_tensor(r, impl, object))
            return true;
    return false;
}

bool render_extension(struct renderer *r, uint64_t object, const struct object_class *class)
{
    return render_scalar(r, object, class) || render_tensor(r, object, class);
}
