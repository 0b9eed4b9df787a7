/* A filter out of a target's kernel, as if it could be anything: the evaluation ends,
 * and stays within its memory. */
#include "fs/inject/seccomp.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sock_filter filter[BPF_MAXINSNS];
    struct seccomp_data call;

    if (size < sizeof call)
        return 0;
    memcpy(&call, data, sizeof call);
    data += sizeof call;
    size -= sizeof call;
    size_t n = size / sizeof *filter < BPF_MAXINSNS ? size / sizeof *filter : BPF_MAXINSNS;
    memcpy(filter, data, n * sizeof *filter);
    seccomp_evaluate(filter, n, &call);
    return 0;
}
