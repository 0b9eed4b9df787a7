#include "fs/remote/objects/number.h"
#include "tests/unit/check.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

static void float_is(double value, const char *want)
{
    struct text t = TEXT_INIT;
    number_add_float(&t, value);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

static void complex_is(double real, double imag, const char *want)
{
    struct text t = TEXT_INIT;
    number_add_complex(&t, real, imag);
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

static void int_is(const uint32_t *limbs, unsigned n, bool negative, const char *want)
{
    struct text t = TEXT_INIT;
    CHECK(number_add_int(&t, limbs, n, negative));
    CHECK_STR(t.data, want);
    text_deinit(&t);
}

int main(void)
{
    float_is(0.0, "0.0");
    float_is(-0.0, "-0.0");
    float_is(1, "1.0");
    float_is(-1.5, "-1.5");
    float_is(0.1, "0.1");
    float_is(0.1 + 0.2, "0.30000000000000004");
    float_is(1e15, "1000000000000000.0");
    float_is(1e16, "1e+16");
    float_is(123456789012345678.0, "1.2345678901234568e+17");
    float_is(0.0001, "0.0001");
    float_is(0.00012345, "0.00012345");
    float_is(0.00001, "1e-05");
    float_is(1e22, "1e+22");
    float_is(1e23, "1e+23");
    float_is(DBL_TRUE_MIN, "5e-324");
    float_is(DBL_MAX, "1.7976931348623157e+308");
    float_is(DBL_MIN, "2.2250738585072014e-308");
    float_is(9007199254740993.0, "9007199254740992.0");
    /* powers of two, where the neighbour below is nearer than the one above */
    float_is(0x1p-44, "5.684341886080802e-14");
    float_is(0x1p+89, "6.189700196426902e+26");
    float_is(0x1p-1022, "2.2250738585072014e-308");
    float_is(INFINITY, "inf");
    float_is(-INFINITY, "-inf");
    float_is(NAN, "nan");

    complex_is(0, 1, "1j");
    complex_is(1, 2, "(1+2j)");
    complex_is(-1.5, -2e20, "(-1.5-2e+20j)");
    complex_is(-0.0, 1, "(-0+1j)");
    complex_is(0, -0.0, "-0j");
    complex_is(1, NAN, "(1+nanj)");

    int_is(NULL, 0, false, "0");
    int_is((uint32_t[]){1}, 1, true, "-1");
    int_is((uint32_t[]){0, 1}, 2, false, "1073741824");
    int_is((uint32_t[]){0, 0, 1 << 4}, 3, false, "18446744073709551616");
    int_is((uint32_t[]){0, 0, 1 << 4}, 3, true, "-18446744073709551616");
    int_is((uint32_t[]){0xffffffff}, 1, false, "1073741823"); /* bits that no digit has */
    int_is((uint32_t[]){0, 0, 0}, 3, false, "0");

    /* the largest: 4,300 digits and no more */
    static uint32_t limbs[NUMBER_LIMBS_MAX];
    struct text t = TEXT_INIT;
    memset(limbs, 0xff, sizeof limbs);
    CHECK(!number_add_int(&t, limbs, NUMBER_LIMBS_MAX, true));
    CHECK_INT(t.size, 0);
    CHECK(number_add_int(&t, limbs, NUMBER_LIMBS_MAX - 1, true));
    CHECK(t.size > 4290 && t.size <= NUMBER_DIGITS_MAX + 1);
    text_deinit(&t);
    return 0;
}
