/* What `profile ...` asks for: the rest of a line of ctl, or what is behind -o profile= with blanks
 * for its colons.
 *
 *   [MODE...] [N hz] [for DURATION] [native|python] [children] [inside] [tid N]
 *   off | clear | mark NAME | status
 *
 * MODE: cpu gil nogil off wall faults alloc heap; `off` alone ends the profile. */
#pragma once

#include "fs/sampler/sampler.h"

#define PROFILE_FOR_MIN_NS UINT64_C(10000000)
#define PROFILE_FOR_MAX_NS (30 * UINT64_C(86400000000000))

struct profile_request {
    enum { PROFILE_STATUS, PROFILE_START, PROFILE_STOP, PROFILE_CLEAR, PROFILE_MARK } verb;
    struct sampler_options options; /* of PROFILE_START, as the next two */
    unsigned asked;                 /* hz, as written; a round rate is never taken */
    uint64_t duration;              /* ns; 0: until it is told otherwise */
    char mark[STORE_MARK_NAME_MAX + 1];
};

/* -EINVAL: why says what is wrong, and *at is where. */
int profile_request_read(const char *text, size_t size, struct profile_request *out,
                         const char **at, struct text *why);
