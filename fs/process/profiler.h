/* Starts profiles that nobody asked for one by one: of every process (-o profile), and of those
 * that a sampled one has started (`children`). A thread of its own looks once a second; it also
 * sees those that execute another program, and are to be sampled on. */
#pragma once

#include "fs/sampler/request.h"

struct profiler;
struct registry;

/* Makes a profiler that looks for nothing yet. registry outlives it. -ENOMEM. */
int profiler_new(struct registry *registry, struct profiler **out);
void profiler_free(struct profiler *profiler);

/* A profile has been started. -errno: its children aren't seen. */
int profiler_follow(struct profiler *profiler);
/* Every process is to be sampled from now on. */
int profiler_sample_all(struct profiler *profiler, const struct profile_request *request);
