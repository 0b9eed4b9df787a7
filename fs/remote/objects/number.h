/* Numbers as Python's repr() writes them. */
#pragma once

#include "fs/base/text.h"

#include <stdint.h>

/* sys.int_info.default_max_str_digits, and as many digits of 30 bits
 * (Include/cpython/longintrepr.h) as that needs. */
#define NUMBER_DIGITS_MAX 4300
#define NUMBER_LIMBS_MAX 477

/* An int of n <= NUMBER_LIMBS_MAX digits of 30 bits, least significant first. False, and nothing
 * added: it has more than NUMBER_DIGITS_MAX decimal digits. */
bool number_add_int(struct text *out, const uint32_t *limbs, unsigned n, bool negative);
/* The shortest text that reads back as the same float: 0.1, 1e+16, -0.0, inf, nan. */
void number_add_float(struct text *out, double value);
/* (1+2j), 1j, (-0-1j) */
void number_add_complex(struct text *out, double real, double imag);
