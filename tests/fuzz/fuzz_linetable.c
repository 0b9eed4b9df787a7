/* Line tables: any bytes must give some table, with rows in order and answers out of its rows. */
#include "fs/remote/objects/linetable.h"
#include "fs/remote/memory/memory.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct linetable table;

    if (size < 5)
        return 0;
    enum linetable_format format = data[0] % (LINETABLE_LOCATIONS + 1);
    if (linetable_decode(format, data + 5, size - 5, (int)load32(data + 1), &table) < 0)
        return 0;
    for (size_t i = 0; i < table.n; i++) {
        const struct linetable_row *row = &table.rows[i];
        if (i && row->start <= row[-1].start)
            abort();
        if (linetable_line(&table, row->start) != row->line)
            abort();
        if (i && linetable_line(&table, (int64_t)row->start - 1) != row[-1].line)
            abort();
    }
    linetable_line(&table, INT64_MAX);
    if (linetable_line(&table, -1) != table.first_line)
        abort();
    linetable_deinit(&table);
    return 0;
}
