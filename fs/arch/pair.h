/* Two doubles that are computed with side by side. */
#pragma once

#if defined __x86_64__
#include <emmintrin.h>

typedef __m128d pair;

static inline pair pair_load(const double *x) { return _mm_loadu_pd(x); }
static inline pair pair_all(double x) { return _mm_set1_pd(x); }
/* Only the first; the other is 0. */
static inline pair pair_one(double x) { return _mm_set_sd(x); }
/* The first of one, the second of the other. */
static inline pair pair_join(pair first, pair second) { return _mm_move_sd(second, first); }
static inline pair pair_add_square(pair sum, pair x) { return _mm_add_pd(sum, _mm_mul_pd(x, x)); }
/* One that isn't a number is neither less nor greater: then it is `kept`. */
static inline pair pair_min(pair x, pair kept) { return _mm_min_pd(x, kept); }
static inline pair pair_max(pair x, pair kept) { return _mm_max_pd(x, kept); }
#elif defined __aarch64__
#include <arm_neon.h>

typedef float64x2_t pair;

static inline pair pair_load(const double *x) { return vld1q_f64(x); }
static inline pair pair_all(double x) { return vdupq_n_f64(x); }
static inline pair pair_one(double x) { return vsetq_lane_f64(x, vdupq_n_f64(0), 0); }
static inline pair pair_join(pair first, pair second)
{
    return vcopyq_laneq_f64(second, 0, first, 0);
}
static inline pair pair_add_square(pair sum, pair x) { return vaddq_f64(sum, vmulq_f64(x, x)); }
static inline pair pair_min(pair x, pair kept) { return vbslq_f64(vcltq_f64(x, kept), x, kept); }
static inline pair pair_max(pair x, pair kept) { return vbslq_f64(vcgtq_f64(x, kept), x, kept); }
#endif
