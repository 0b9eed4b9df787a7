/* What a person writes behind `profile` in ctl: it is taken with values within their limits, or
 * refused in words with a place in the text. */
#include "fs/sampler/request.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile_request request = {0};
    struct text why = TEXT_INIT;
    char *text = malloc(size ? size : 1); /* nothing behind it: what reads on is seen */
    const char *at = NULL;

    memcpy(text, data, size);
    if (profile_request_read(text, size, &request, &at, &why) < 0) {
        if (!why.size || at < text || at > text + size)
            abort();
    } else if (request.verb == PROFILE_START) {
        const struct sampler_options *options = &request.options;
        if (options->hz < SAMPLER_HZ_MIN || options->hz > SAMPLER_HZ_MAX || !options->modes ||
            options->modes >> MODE_MODES || !(options->modes & SAMPLER_MODE(options->shown)) ||
            options->tid < 0 || request.duration > PROFILE_FOR_MAX_NS)
            abort();
    } else if (request.verb == PROFILE_MARK &&
               (!*request.mark || strchr(request.mark, '/') || strstr(request.mark, ".."))) {
        abort();
    }
    text_deinit(&why);
    free(text);
    return 0;
}
