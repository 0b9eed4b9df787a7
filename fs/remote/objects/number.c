#include "fs/remote/objects/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMB_BITS 30
#define LIMB_MASK 0x3fffffffu
#define DECIMAL_BASE 1000000000u
#define DECIMAL_DIGITS 9
#define FLOAT_DIGITS 17 /* always enough to tell two doubles apart */

bool number_add_int(struct text *out, const uint32_t *limbs, unsigned n, bool negative)
{
    uint32_t decimal[NUMBER_LIMBS_MAX + 8]; /* a digit of 10^9 has nearly 30 bits as well */
    unsigned size = 0;

    /* Horner's rule, from the most significant digit on */
    for (unsigned i = n; i-- > 0;) {
        uint32_t carry = limbs[i] & LIMB_MASK;
        for (unsigned k = 0; k < size; k++) {
            uint64_t z = (uint64_t)decimal[k] << LIMB_BITS | carry;
            carry = (uint32_t)(z / DECIMAL_BASE);
            decimal[k] = (uint32_t)(z % DECIMAL_BASE);
        }
        while (carry && size < sizeof decimal / sizeof *decimal) {
            decimal[size++] = carry % DECIMAL_BASE;
            carry /= DECIMAL_BASE;
        }
    }
    if (!size) {
        text_putc(out, '0');
        return true;
    }
    char top[16];
    int digits = snprintf(top, sizeof top, "%u", decimal[size - 1]);
    if (digits + DECIMAL_DIGITS * (size - 1) > NUMBER_DIGITS_MAX)
        return false;
    text_printf(out, "%s%s", negative ? "-" : "", top);
    for (unsigned i = size - 1; i-- > 0;)
        text_printf(out, "%0*u", DECIMAL_DIGITS, decimal[i]);
    return true;
}

/* Writes 0.DIGITS * 10^point, given DIGITS and an exponent, as a number to read back. */
static double read_back(const char *digits, int exponent)
{
    char buf[40];

    snprintf(buf, sizeof buf, "0.%se%d", digits, exponent);
    return strtod(buf, NULL);
}

/* Adds one unit in the last place. False where that would carry out of the first digit. */
static bool increment(char *digits)
{
    for (size_t i = strlen(digits); i-- > 0;) {
        if (digits[i] != '9') {
            digits[i]++;
            return true;
        }
        digits[i] = '0';
    }
    return false;
}

/* The fewest digits d1 d2 ... with value = 0.d1d2... * 10^*point, for a positive value. The
 * correctly rounded n digits read back as the value if any n digits do, except just above a power
 * of two, where the doubles below are denser than those above: there the next larger n digits
 * may do. */
static void shortest(double value, char digits[FLOAT_DIGITS + 1], int *point)
{
    for (int n = 1; n <= FLOAT_DIGITS; n++) {
        char buf[40];
        snprintf(buf, sizeof buf, "%.*e", n - 1, value);
        char *mark = strchr(buf, 'e');
        *point = atoi(mark + 1) + 1;
        digits[0] = buf[0];
        memcpy(digits + 1, buf + 2, (size_t)n - 1);
        digits[n] = 0;
        if (read_back(digits, *point) == value)
            break;
        char next[FLOAT_DIGITS + 1];
        memcpy(next, digits, sizeof next);
        if (increment(next) && read_back(next, *point) == value) {
            memcpy(digits, next, sizeof next);
            break;
        }
    }
    for (size_t n = strlen(digits); n > 1 && digits[n - 1] == '0'; n--)
        digits[n - 1] = 0;
}

static void add_float(struct text *out, double value, bool dot)
{
    char digits[FLOAT_DIGITS + 1];
    int point;

    if (isnan(value)) {
        text_puts(out, "nan");
        return;
    }
    if (signbit(value))
        text_putc(out, '-');
    if (isinf(value)) {
        text_puts(out, "inf");
        return;
    }
    if (value == 0) {
        text_puts(out, dot ? "0.0" : "0");
        return;
    }
    shortest(fabs(value), digits, &point);
    int n = (int)strlen(digits);
    if (point > 16 || point <= -4) { /* as Python/pystrtod.c format_float_short() */
        text_printf(out, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1,
                    point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else if (point <= 0) {
        text_printf(out, "0.%.*s%s", -point, "000", digits);
    } else if (n <= point) {
        text_puts(out, digits);
        for (int i = n; i < point; i++)
            text_putc(out, '0');
        text_puts(out, dot ? ".0" : "");
    } else {
        text_printf(out, "%.*s.%s", point, digits, digits + point);
    }
}

void number_add_float(struct text *out, double value) { add_float(out, value, true); }

void number_add_complex(struct text *out, double real, double imag)
{
    bool both = real != 0 || signbit(real);

    if (both) {
        text_putc(out, '(');
        add_float(out, real, false);
        if (isnan(imag) || !signbit(imag))
            text_putc(out, '+');
    }
    add_float(out, imag, false);
    text_puts(out, both ? "j)" : "j");
}
