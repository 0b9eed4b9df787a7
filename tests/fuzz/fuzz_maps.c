/* /proc/PID/maps holds paths that the target chose. */
#include "fs/proc/maps.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct maps maps;

    memcpy(text, data, size);
    text[size] = 0;
    if (maps_parse(text, size, &maps) < 0)
        return 0;
    for (size_t i = 0; i < maps.n; i++) {
        const struct mapping *m = &maps.items[i];
        if (m->start >= m->end || (i && m->start < m[-1].end))
            abort(); /* ascending, never empty, never overlapping */
        if (maps_find(&maps, m->start) != m || maps_find(&maps, m->end - 1) != m)
            abort();
        if (m->path < text || m->path + strlen(m->path) > text + size)
            abort();
    }
    maps_deinit(&maps);
    return 0;
}
