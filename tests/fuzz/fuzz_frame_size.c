/* Machine code of a target. */
#include "fs/remote/native/frame_size.h"
#include "fs/arch/insn.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct insn insn;
    int64_t depth;

    for (size_t at = 0; at < size; at++)
        if (insn_decode(data + at, size - at, at, &insn) &&
            (insn.size < 1 || insn.size > 15 || insn.size > size - at))
            abort();
    insn_call_before(data, size < 8 ? size : 8, 8, &insn);
    if (frame_size(data, size, 0x1000, 0x1000 + size / 2, &depth) == 0 && depth < 8)
        abort();
    return 0;
}
