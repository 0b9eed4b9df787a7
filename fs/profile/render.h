/* How a sum reads: one function for each format. Pure. */
#pragma once

#include "fs/base/text.h"
#include "fs/profile/sum.h"

/* A format of a profile: 0 or -ENOMEM. */
typedef int sum_render(const struct sum *sum, struct text *out);

/* One line a stack, `root;...;leaf COUNT`, the largest first. Times are in microseconds, a
 * difference has its sign. For flamegraph.pl, inferno, speedscope. */
sum_render render_folded;
/* One line a function, the largest first: `self% total% self total function place`. Times are
 * in seconds. Where a function is on a stack more than once it counts once.
 *
 * What a function waited, of off and wall, has a line of its own, which ends in the reason and in
 * those who called it, as far as most of it came by one way: `[futex] < get < next`. Threads that
 * hardly ran, and aren't the main one, are left out of wall: lines with # before the others say
 * how many, how long, and where. */
sum_render render_top;
/* One line a source line, the largest first: `file:line self total`. What was waited counts for the
 * line that waited. */
sum_render render_lines;

/* A page that needs nothing else; a difference has two colours. */
sum_render render_flamegraph;
/* The format of speedscope.app. */
sum_render render_speedscope;
/* The format of profiler.firefox.com; wants a sum with moments. */
sum_render render_gecko;
/* The format of `go tool pprof`, in gzip: bytes, not text. */
sum_render render_pprof;

/* A frame as in stacks.folded: no semicolon in it. */
void render_frame_folded(const struct profile_frame *frame, struct text *out);
/* A weight of that mode: seconds with six digits, or a number. */
void render_weight(enum profile_mode mode, int64_t weight, struct text *out);

/* What one line, or function, has. */
struct place_sum {
    struct profile_frame frame; /* names belong to the sum */
    const char *reason;         /* of a function that waited, why: "[futex]"; else "" */
    int64_t self, total;        /* of a difference: how much more than before */
    uint32_t place;             /* render_text.c's own */
};
/* All lines, the largest first, owned by the caller. -ENOMEM. */
int sum_lines(const struct sum *sum, struct place_sum **out, size_t *n);
/* The weight of everything; of a difference, how much more than before. */
int64_t sum_whole(const struct sum *sum);
