/* What two extension modules keep in memory: numpy's scalars, and the tensors of PyTorch. Both are
 * instances of static types, whose names no Python code can forge. */
#include "fs/remote/objects/number.h"
#include "fs/remote/objects/tensor.h"
#include "fs/remote/objects/values.h"

#include "agent/base/cleanup.h"

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

#define SCALAR_VALUE 0 /* PyFloatScalarObject.obval and the like: numpy/arrayscalars.h */

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
        const uint8_t *p = view_read(r->view,
                                     object + (uint32_t)r->offsets->object_size + SCALAR_VALUE,
                                     scalars[i].size);
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

static bool render_tensor(struct renderer *r, uint64_t object, const struct object_class *class)
{
    struct tensor tensor;

    if (!tensor_is_type(r->view, r->offsets, class->type) ||
        tensor_read_object(r->view, r->offsets, object, &tensor) < 0)
        return false;
    tensor_add(&tensor, r->out);
    return true;
}

bool render_extension(struct renderer *r, uint64_t object, const struct object_class *class)
{
    return render_scalar(r, object, class) || render_tensor(r, object, class);
}
