#include "fs/remote/torch/values.h"

#include "agent/base/cleanup.h"
#include "fs/arch/pair.h"

#include <errno.h>
#include <complex.h>
#include <math.h>
#include <string.h>

#define PIECE (256u << 10) /* bytes that are read at once */
#define BATCH 1024         /* elements that are made numbers at once */
#define LANES 4            /* sums that are added up side by side, two in a register */

/* ---- elements as numbers ---- */

/* IEEE 754, by way of a float with the same fraction and an exponent that is too small by 112. */
static double half(uint16_t bits)
{
    uint32_t word = (uint32_t)(bits & 0x7fff) << 13, scaled;
    float value;

    memcpy(&value, &word, sizeof value);
    value *= 0x1p112f;
    memcpy(&scaled, &value, sizeof scaled);
    word = (bits & 0x7c00) == 0x7c00 ? word | 0x7f800000 : scaled; /* infinity and NaN */
    word |= (uint32_t)(bits & 0x8000) << 16;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

static double bfloat(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof value);
    return (double)value;
}

/* A function that makes n elements numbers, `step` bytes apart; several at a time where they lie
 * side by side. */
#define CONVERSION(name, type, number)                                            \
 static void convert_##name(const uint8_t *p, size_t n, size_t step, double *out) \
 {                                                                                \
  type element[LANES];                                                            \
  size_t i = 0;                                                                   \
                                                                                  \
  for (; step == sizeof *element && i + LANES <= n; i += LANES) {                 \
   memcpy(element, p + i * sizeof *element, sizeof element);                      \
   for (unsigned k = 0; k < LANES; k++)                                           \
    out[i + k] = number(element[k]);                                              \
  }                                                                               \
  for (; i < n; i++) {                                                            \
   memcpy(element, p + i * step, sizeof *element);                                \
   out[i] = number(*element);                                                     \
  }                                                                               \
 }

CONVERSION(double, double, )
CONVERSION(float, float, (double))
CONVERSION(half, uint16_t, half)
CONVERSION(bfloat, uint16_t, bfloat)
CONVERSION(int8, int8_t, (double))
CONVERSION(int16, int16_t, (double))
CONVERSION(int32, int32_t, (double))
CONVERSION(int64, int64_t, (double))
CONVERSION(uint8, uint8_t, (double))
CONVERSION(uint16, uint16_t, (double))
CONVERSION(uint32, uint32_t, (double))
CONVERSION(uint64, uint64_t, (double))

static void convert_floats(const uint8_t *p, size_t n, size_t step, unsigned size, double *out)
{
    switch (size) {
    case 8: convert_double(p, n, step, out); break;
    case 4: convert_float(p, n, step, out); break;
    default: convert_half(p, n, step, out);
    }
}

/* n elements, `step` bytes apart. */
static void convert(const struct tensor_type *type, const uint8_t *p, size_t n, size_t step,
                    double *out)
{
    switch (type->kind) {
    case TENSOR_FLOAT: convert_floats(p, n, step, type->size, out); break;
    case TENSOR_BFLOAT: convert_bfloat(p, n, step, out); break;
    case TENSOR_COMPLEX: {
        double imaginary[BATCH];
        convert_floats(p, n, step, type->size / 2, out);
        convert_floats(p + type->size / 2, n, step, type->size / 2, imaginary);
        for (size_t i = 0; i < n; i++)
            out[i] = cabs(__builtin_complex(out[i], imaginary[i])); /* hypot() wants a newer libc */
        break;
    }
    case TENSOR_SIGNED:
        switch (type->size) {
        case 1: convert_int8(p, n, step, out); break;
        case 2: convert_int16(p, n, step, out); break;
        case 4: convert_int32(p, n, step, out); break;
        default: convert_int64(p, n, step, out);
        }
        break;
    case TENSOR_UNSIGNED:
        switch (type->size) {
        case 1: convert_uint8(p, n, step, out); break;
        case 2: convert_uint16(p, n, step, out); break;
        case 4: convert_uint32(p, n, step, out); break;
        default: convert_uint64(p, n, step, out);
        }
        break;
    case TENSOR_OPAQUE: break;
    }
}

/* ---- adding up ---- */

/* Side by side, so that one needn't wait for the other: of a batch, element i goes to sum i %
 * LANES, what is left behind the last whole LANES of them to the first one. */
struct sums {
    pair squares[LANES / 2], min[LANES / 2], max[LANES / 2];
    uint64_t nan, inf;
};

/* One that isn't a number is neither less nor greater: of these two, min and max keep theirs. */
static void add_pair(struct sums *sums, unsigned i, pair x)
{
    sums->squares[i] = pair_add_square(sums->squares[i], x);
    sums->min[i] = pair_min(x, sums->min[i]);
    sums->max[i] = pair_max(x, sums->max[i]);
}

/* As add_pair() of the first of a pair. */
static void add_one(struct sums *sums, double one)
{
    pair x = pair_one(one);

    *sums->squares = pair_add_square(*sums->squares, x); /* and 0 to the second */
    *sums->min = pair_join(pair_min(x, *sums->min), *sums->min);
    *sums->max = pair_join(pair_max(x, *sums->max), *sums->max);
}

static double sum_squares(const struct sums *sums)
{
    double squares = 0;

    for (unsigned lane = 0; lane < LANES; lane++)
        squares += sums->squares[lane / 2][lane % 2];
    return squares;
}

static void add(struct sums *sums, const double *x, size_t n)
{
    struct sums s = *sums; /* in registers */
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        add_pair(&s, 0, pair_load(x + i));
        add_pair(&s, 1, pair_load(x + i + 2));
    }
    for (; i < n; i++)
        add_one(&s, x[i]);
    if (!isfinite(sum_squares(&s))) /* else there is neither among them */
        for (i = 0; i < n; i++) {
            s.nan += x[i] != x[i];
            s.inf += fabs(x[i]) == (double)INFINITY;
        }
    *sums = s;
}

static void finish(const struct sums *sums, struct tensor_values *out)
{
    double min = (double)INFINITY, max = -(double)INFINITY;

    for (unsigned lane = 0; lane < LANES; lane++) {
        double least = sums->min[lane / 2][lane % 2], most = sums->max[lane / 2][lane % 2];
        min = least < min ? least : min;
        max = most > max ? most : max;
    }
    out->nan = sums->nan;
    out->inf = sums->inf;
    out->norm = sqrt(sum_squares(sums));
    out->min = out->n > out->nan ? min : (double)NAN;
    out->max = out->n > out->nan ? max : (double)NAN;
}

/* ---- memory ---- */

struct dimension {
    uint64_t size, stride; /* in elements */
};

/* A tensor's elements as runs that lie alike: `n` elements, `step` bytes apart, in each; and the
 * dimensions that the runs are counted by. */
struct value_runs {
    uint64_t n, step;
    struct dimension outer[TENSOR_DIMENSIONS_MAX];
    unsigned nouter;
};

static void order(struct dimension *dimensions, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        for (unsigned k = i; k && dimensions[k - 1].stride > dimensions[k].stride; k--) {
            struct dimension moved = dimensions[k];
            dimensions[k] = dimensions[k - 1];
            dimensions[k - 1] = moved;
        }
}

/* The order of elements makes no difference: dimensions that lie in one another become one. */
static void plan(const struct tensor *tensor, struct value_runs *out)
{
    struct dimension dimensions[TENSOR_DIMENSIONS_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] > 1)
            dimensions[n++] =
                (struct dimension){(uint64_t)tensor->sizes[i], (uint64_t)tensor->strides[i]};
    order(dimensions, n);
    *out = (struct value_runs){.n = 1, .step = tensor->type->size};
    for (unsigned i = 0; i < n; i++) {
        const struct dimension *d = &dimensions[i];
        if (out->n == 1 && !out->nouter) {
            out->n = d->size;
            out->step = d->stride * tensor->type->size;
        } else if (!out->nouter && d->stride * tensor->type->size == out->n * out->step) {
            out->n *= d->size;
        } else {
            out->outer[out->nouter++] = *d;
        }
    }
}

struct reading {
    const struct memory *memory;
    const struct tensor *tensor;
    int (*unwanted)(const void *arg);
    const void *arg;
    uint8_t *buffer; /* PIECE bytes */
    struct sums sums;
    uint64_t bytes; /* read since `unwanted` was asked last */
};

static int read_piece(struct reading *r, uint64_t address, uint64_t n, uint64_t step)
{
    double numbers[BATCH];
    unsigned size = r->tensor->type->size;
    uint32_t length = (uint32_t)((n - 1) * step + size);

    r->bytes += length + 64;
    if (r->unwanted && r->bytes > PIECE) {
        int e = r->unwanted(r->arg);
        r->bytes = 0;
        if (e)
            return e;
    }
    int e = memory_read(r->memory, address, r->buffer, length);
    for (uint64_t i = 0; e == 0 && i < n; i += BATCH) {
        size_t some = (size_t)(n - i < BATCH ? n - i : BATCH);
        convert(r->tensor->type, r->buffer + i * step, some, step, numbers);
        add(&r->sums, numbers, some);
    }
    return e;
}

static int read_run(struct reading *r, uint64_t address, uint64_t n, uint64_t step)
{
    uint64_t size = r->tensor->type->size;
    uint64_t each = step ? (PIECE - size) / step + 1 : PIECE; /* an expanded one has the same */
    int e = 0;

    for (uint64_t i = 0; e == 0 && i < n; i += each)
        e = read_piece(r, address + i * step, n - i < each ? n - i : each, step);
    return e;
}

static int read_all(struct reading *r, const struct value_runs *runs)
{
    uint64_t at[TENSOR_DIMENSIONS_MAX] = {0}, address = r->tensor->data;
    unsigned i = 0;
    int e = 0;

    while (e == 0 && i <= runs->nouter) {
        e = read_run(r, address, runs->n, runs->step);
        for (i = 0; i < runs->nouter; i++) { /* the next one, as a counter goes on */
            uint64_t step = runs->outer[i].stride * r->tensor->type->size;
            address += step;
            if (++at[i] < runs->outer[i].size)
                break;
            address -= at[i] * step;
            at[i] = 0;
        }
        if (i == runs->nouter)
            break;
    }
    return e;
}

int tensor_values_read(const struct memory *memory, const struct tensor *tensor,
                       int (*unwanted)(const void *arg), const void *arg, struct tensor_values *out)
{
    struct reading reading = {
        .memory = memory,
        .tensor = tensor,
        .unwanted = unwanted,
        .arg = arg,
    };
    struct value_runs runs;

    if (tensor->type->kind == TENSOR_OPAQUE || tensor->device != 0 || !tensor->storage ||
        (tensor->numel && !tensor->data))
        return -EOPNOTSUPP;
    _cleanup_free_ uint8_t *buffer = reading.buffer = malloc(PIECE);
    if (!buffer)
        return -ENOMEM;
    for (unsigned i = 0; i < LANES / 2; i++) {
        reading.sums.min[i] = pair_all((double)INFINITY);
        reading.sums.max[i] = pair_all(-(double)INFINITY);
    }
    plan(tensor, &runs);
    int e = tensor->numel ? read_all(&reading, &runs) : 0;
    if (e)
        return e;
    out->n = tensor->numel;
    finish(&reading.sums, out);
    return 0;
}
