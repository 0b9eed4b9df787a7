/* A pattern, and after a NUL the text it is searched in. */
#include "fs/sql/regexp.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t pattern = nul ? (size_t)(nul - data) : size;
    struct regexp *regexp;
    const char *why = NULL;

    if (regexp_new((const char *)data, pattern, &regexp, &why) < 0) {
        if (!why)
            abort();
        return 0;
    }
    size_t text = nul ? size - pattern - 1 : 0;
    regexp_search(regexp, nul ? (const char *)nul + 1 : "", text < 4096 ? text : 4096, NULL, NULL);
    regexp_free(regexp);
    return 0;
}
