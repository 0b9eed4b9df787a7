/* Symbol names are the target's. */
#include "fs/remote/native/demangle.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char out[DEMANGLE_MAX], *name = malloc(size + 3);

    memcpy(name, "_Z", 2);
    memcpy(name + 2, data, size);
    name[size + 2] = 0;
    demangle(name, out);
    name[1] = 'R';
    demangle(name, out);
    demangle(name + 2, out);
    free(name);
    return 0;
}
