/* How far it is from one sampled byte to the next, and what a sample stands for: each byte that is
 * allocated is sampled with the same probability, 1 / mean, whatever sizes come in which order. No
 * function of libm, which the program may not have. */
#pragma once

#include <stdint.h>
#include <string.h>

/* The natural logarithm of a normal number above 0. */
static inline double gap_log(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & 0xfffffffffffffull) | 1023ull << 52;
    memcpy(&x, &bits, sizeof x); /* 1 to 2 */
    double t = (x - 1) / (x + 1), t2 = t * t, sum = 0;
    for (int i = 25; i > 0; i -= 2)
        sum = sum * t2 + 1.0 / i;
    return 2 * t * sum + exponent * 0.69314718055994531;
}

/* 1 - exp(-x), of an x from 0 on. */
static inline double gap_share(double x)
{
    int halved = 0;

    if (x > 64)
        return 1;
    for (; x > 0.5; x /= 2)
        halved++;
    double sum = 0; /* x - x^2 / 2! + x^3 / 3! - ... */
    for (int i = 16; i > 0; i--)
        sum = x / i * (1 - sum);
    while (halved--)
        sum *= 2 - sum;
    return sum;
}

/* Bytes to the next sample. random: not 0, and changed. */
static inline int64_t gap_next(uint64_t *random, double mean)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    double u = ((double)(*random >> 11) + 1) / 9007199254740993.0;
    return (int64_t)(-gap_log(u) * mean) + 1;
}

/* How many bytes a sample of that size stands for. */
static inline uint64_t gap_weight(uint64_t size, double mean)
{
    return size ? (uint64_t)((double)size / gap_share((double)size / mean) + 0.5) : 0;
}
