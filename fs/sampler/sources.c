#include "fs/sampler/sampler.h"

const struct sampler_source *const sampler_sources[] = {&sampler_bpf, &sampler_inside,
                                                        &sampler_timer, &sampler_allocations, NULL};
