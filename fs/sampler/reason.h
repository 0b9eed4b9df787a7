/* Why a thread is off the processor, as the innermost frame of its stack. */
#pragma once

#include <stddef.h>

#define SAMPLER_REASON_MAX 40 /* bytes, with the NUL */

/* Says why a thread sleeps, by the system call that it sleeps in: "[futex]", "[epoll]", "[poll]",
 * "[io]", "[sleep]", "[wait]", else "[NAME]"; "[kernel]" for -1, as for a page that comes from a
 * disk. */
void sampler_reason(int syscall, char out[SAMPLER_REASON_MAX]);
