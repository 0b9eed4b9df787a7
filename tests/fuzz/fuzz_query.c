/* What anybody who may look at a process writes to its query file, in any pieces. */
#include "fs/tree/query.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/tables/provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = {0};
    const struct provider provider = {.tables = &colours_tables,
                                      .fill = provide,
                                      .arg = &seen,
                                      .deadline_ns = 20000000,
                                      .memory = 16 << 20};
    struct text pending = TEXT_INIT;
    size_t first = size ? data[0] % size : 0;

    for (int piece = 0; piece < 3; piece++) {
        struct text said = TEXT_INIT, why = TEXT_INIT;
        struct outcome outcome = {0};
        size_t before = pending.size;
        if (size && piece < 2)
            text_add(&pending, (const char *)data + (piece ? first : 0),
                     piece ? size - first : first);
        if (!pending.size)
            continue;
        const struct input input = {pending.data, pending.size, before, piece == 2};
        int r = query_feed(&provider, NULL, &input, &said, &why, &outcome);
        if (outcome.consumed > pending.size || outcome.passing > said.size ||
            (r < 0 && !why.size && r != -ENOMEM))
            abort();
        if (r < 0)
            outcome.consumed = pending.size;
        memmove(pending.data, pending.data + outcome.consumed, pending.size - outcome.consumed + 1);
        pending.size -= outcome.consumed;
        text_deinit(&said);
        text_deinit(&why);
    }
    text_deinit(&pending);
    return 0;
}
