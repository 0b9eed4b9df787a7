/* Time in nanoseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t timespec_ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static inline struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* [s] */
static inline double timespec_s(const struct timespec *t) { return (double)timespec_ns(t) * 1e-9; }

/* CLOCK_REALTIME, since 1970. */
static inline uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return timespec_ns(&t);
}

/* CLOCK_REALTIME, since 1970 [s]. */
static inline double realtime_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return timespec_s(&t);
}

/* CLOCK_MONOTONIC. */
static inline uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return timespec_ns(&t);
}

/* CLOCK_THREAD_CPUTIME_ID: what the calling thread has used of a processor. */
static inline uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return timespec_ns(&t);
}

/* Sleeps for so long; less, where a signal is handled meanwhile. */
static inline void nap_ns(uint64_t ns)
{
    const struct timespec t = timespec_of(ns);
    nanosleep(&t, NULL);
}
