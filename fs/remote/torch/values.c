#include "fs/remote/torch/values.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"

#include <errno.h>
#include <complex.h>
#include <math.h>
#include <string.h>

#define PIECE (256u << 10) /* bytes that are read at once */
#define BATCH 1024         /* elements that are made numbers at once */

/* ---- elements as numbers ---- */

/* IEEE 754, by way of a float with the same fraction and an exponent that is too small by 112. */
static double half(uint16_t bits)
{
    uint32_t word = (uint32_t)(bits & 0x7fff) << 13;
    float value;

    memcpy(&value, &word, sizeof value);
    value *= 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00)
        value = bits & 0x3ff ? NAN : INFINITY;
    return bits & 0x8000 ? -(double)value : (double)value;
}

static double bfloat(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof value);
    return (double)value;
}

#define CONVERT(type)                     \
 for (size_t i = 0; i < n; i++) {         \
  type one;                               \
  memcpy(&one, p + i * step, sizeof one); \
  out[i] = (double)one;                   \
 }

static void convert_floats(const uint8_t *p, size_t n, size_t step, unsigned size, double *out)
{
    if (size == 8) {
        CONVERT(double)
    } else if (size == 4) {
        CONVERT(float)
    } else {
        for (size_t i = 0; i < n; i++)
            out[i] = half(load16(p + i * step));
    }
}

/* n elements, `step` bytes apart. */
static void convert(const struct tensor_type *type, const uint8_t *p, size_t n, size_t step,
                    double *out)
{
    switch (type->kind) {
    case TENSOR_FLOAT: convert_floats(p, n, step, type->size, out); break;
    case TENSOR_BFLOAT:
        for (size_t i = 0; i < n; i++)
            out[i] = bfloat(load16(p + i * step));
        break;
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
        case 1: CONVERT(int8_t) break;
        case 2: CONVERT(int16_t) break;
        case 4: CONVERT(int32_t) break;
        default: CONVERT(int64_t)
        }
        break;
    case TENSOR_UNSIGNED:
        switch (type->size) {
        case 1: CONVERT(uint8_t) break;
        case 2: CONVERT(uint16_t) break;
        case 4: CONVERT(uint32_t) break;
        default: CONVERT(uint64_t)
        }
        break;
    case TENSOR_OPAQUE: break;
    }
}

/* ---- adding up ---- */

struct sums {
    double squares[4], min[4], max[4]; /* side by side, so that one needn't wait for the other */
    uint64_t nan, inf;
};

static void add_one(struct sums *sums, unsigned lane, double x)
{
    sums->squares[lane] += x * x;
    sums->nan += x != x;
    sums->inf += x == (double)INFINITY || x == -(double)INFINITY;
    sums->min[lane] = x < sums->min[lane] ? x : sums->min[lane];
    sums->max[lane] = x > sums->max[lane] ? x : sums->max[lane];
}

static void add(struct sums *sums, const double *x, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (unsigned lane = 0; lane < 4; lane++)
            add_one(sums, lane, x[i + lane]);
    for (; i < n; i++)
        add_one(sums, 0, x[i]);
}

static void finish(const struct sums *sums, struct tensor_values *out)
{
    double squares = 0, min = (double)INFINITY, max = -(double)INFINITY;

    for (unsigned lane = 0; lane < 4; lane++) {
        squares += sums->squares[lane];
        min = sums->min[lane] < min ? sums->min[lane] : min;
        max = sums->max[lane] > max ? sums->max[lane] : max;
    }
    out->nan = sums->nan;
    out->inf = sums->inf;
    out->norm = sqrt(squares);
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
    for (unsigned lane = 0; lane < 4; lane++) {
        reading.sums.min[lane] = (double)INFINITY;
        reading.sums.max[lane] = -(double)INFINITY;
    }
    plan(tensor, &runs);
    int e = tensor->numel ? read_all(&reading, &runs) : 0;
    if (e)
        return e;
    out->n = tensor->numel;
    finish(&reading.sums, out);
    return 0;
}
