/* How a sum reads: one function for each format. Pure. */
#pragma once

#include "fs/base/text.h"
#include "fs/profile/sum.h"

/* Each returns 0 or -ENOMEM. */
typedef int sum_render(const struct sum *sum, struct text *out);

/* One line a stack, `root;...;leaf COUNT`, the largest first. Times are in microseconds, a
 * difference has its sign. For flamegraph.pl, inferno, speedscope. */
sum_render render_folded;
/* One line a function, the largest first: `self% total% self total function file:line`. Times are
 * in seconds. Where a function is on a stack more than once it counts once. */
sum_render render_top;
/* One line a source line, the largest first: `file:line self total`. */
sum_render render_lines;

/* A page that needs nothing else; a difference has two colours. */
sum_render render_flamegraph;
/* Of speedscope.app. */
sum_render render_speedscope;
/* Of profiler.firefox.com; wants a sum with moments. */
sum_render render_gecko;
/* Of `go tool pprof`, in gzip: bytes, not text. */
sum_render render_pprof;

/* A frame as in stacks.folded: no semicolon in it. */
void render_frame_folded(const struct profile_frame *frame, struct text *out);
/* A weight of that mode: seconds with six digits, or a number. */
void render_weight(enum profile_mode mode, int64_t weight, struct text *out);

/* What one function, or line, has. */
struct place_sum {
    struct profile_frame frame; /* names belong to the sum */
    int64_t self, total;        /* of a difference: how much more than before */
};
/* All of them, the largest first, owned by the caller; by_line: each line by itself, else
 * functions. -ENOMEM. */
int sum_places(const struct sum *sum, bool by_line, struct place_sum **out, size_t *n);
/* The weight of everything; of a difference, how much more than before. */
int64_t sum_whole(const struct sum *sum);
