/* What the elements of tensors come to, beside what plain loops over the same numbers say. */
#include "fs/remote/torch/values.h"
#include "tests/unit/check.h"

#include <math.h>

#define BASE 0x10000000u
#define ELEMENTS_MAX 5000

static const struct tensor_type float16 = {"float16", 2, TENSOR_FLOAT};
static const struct tensor_type float32 = {"float32", 4, TENSOR_FLOAT};
static const struct tensor_type float64 = {"float64", 8, TENSOR_FLOAT};
static const struct tensor_type uint8 = {"uint8", 1, TENSOR_UNSIGNED};

static struct tensor_values read(const struct tensor_type *type, const void *data, size_t size,
                                 int64_t n, int64_t stride)
{
    struct memory_image image = {BASE, data, size};
    struct memory memory = {.pid = -1, .image = &image};
    struct tensor tensor = {
        .type = type,
        .ndim = 1,
        .sizes = {n},
        .strides = {stride},
        .numel = (uint64_t)n,
        .storage = BASE,
        .data = BASE,
    };
    struct tensor_values values;

    CHECK_INT(tensor_values_read(&memory, &tensor, NULL, NULL, &values), 0);
    CHECK_INT(values.n, n);
    return values;
}

static bool is_same(double a, double b) { return a == b || (a != a && b != b); }

/* In whichever order they are added up, whole numbers come to the same. */
static void check_floats(const float *x, size_t n, size_t stride)
{
    struct tensor_values seen =
        read(&float32, x, ((n - 1) * stride + 1) * sizeof *x, (int64_t)n, (int64_t)stride);
    uint64_t nan = 0, inf = 0;
    double squares = 0, min = (double)INFINITY, max = -(double)INFINITY;

    for (size_t i = 0; i < n; i++) {
        double one = (double)x[i * stride];
        squares += one * one;
        nan += one != one;
        inf += isinf(one) != 0;
        min = one < min ? one : min;
        max = one > max ? one : max;
    }
    CHECK_INT(seen.nan, nan);
    CHECK_INT(seen.inf, inf);
    CHECK(is_same(seen.norm, sqrt(squares)));
    CHECK(is_same(seen.min, nan < n ? min : (double)NAN));
    CHECK(is_same(seen.max, nan < n ? max : (double)NAN));
}

/* What isn't finite, and what is least, at each place of vectors of each length, also behind the
 * first batch. */
static void places(size_t before)
{
    static float x[ELEMENTS_MAX];
    const float odd[] = {NAN, INFINITY, -INFINITY, 1e4f, -1e4f};

    for (size_t n = before + 1; n < before + 10; n++)
        for (size_t at = before; at < n; at++)
            for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
                for (size_t k = 0; k < n; k++)
                    x[k] = (float)(k % 7) + 1;
                x[at] = odd[i];
                check_floats(x, n, 1);
                x[n / 2] = NAN;
                check_floats(x, n, 1);
                check_floats(x, (n + 2) / 3, 3);
            }
}

/* All of them. */
static void halves(void)
{
    uint16_t bits;

    for (unsigned i = 0; i <= UINT16_MAX; i++) {
        unsigned exponent = i >> 10 & 31, fraction = i & 1023;
        double sign = i & 0x8000 ? -1 : 1;
        double want = exponent == 31 ? (fraction ? (double)NAN : sign * (double)INFINITY)
                      : exponent     ? sign * ldexp(1024 + fraction, (int)exponent - 25)
                                     : sign * ldexp(fraction, -24);
        bits = (uint16_t)i;
        struct tensor_values seen = read(&float16, &bits, sizeof bits, 1, 1);
        CHECK(is_same(seen.min, want) && is_same(seen.max, want));
        CHECK_INT(seen.nan, exponent == 31 && fraction);
        CHECK_INT(seen.inf, exponent == 31 && !fraction);
    }
}

/* The squares of what is finite may be too large: then nothing is taken for what isn't. */
static void large_ones(void)
{
    double x[] = {1e300, -1e300, 3, 4, 5};
    struct tensor_values seen = read(&float64, x, sizeof x, 5, 1);

    CHECK(isinf(seen.norm) && seen.min == -1e300 && seen.max == 1e300);
    CHECK_INT(seen.nan + seen.inf, 0);
}

static void bytes(void)
{
    uint8_t x[3000];

    for (unsigned i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i % 251);
    struct tensor_values seen = read(&uint8, x, sizeof x, sizeof x, 1);
    CHECK(seen.min == 0 && seen.max == 250);
    seen = read(&uint8, x, sizeof x, 100, 5);
    CHECK(seen.min == 0 && seen.max == 250);
}

int main(void)
{
    places(0);
    places(1020);
    halves();
    large_ones();
    bytes();
    return 0;
}
