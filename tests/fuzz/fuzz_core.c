/* A core file may come from anybody: opening it, and looking for an interpreter in it, ends soon,
 * and what it says is mapped is ascending. */
#include "fs/proc/procfs.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/objects/runtime.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/probefs-fuzz-core-XXXXXX";

static void remove_it(void) { unlink(path); }

static void look(const struct core *core)
{
    const struct memory memory = {.core = core};
    struct text words = TEXT_INIT;
    struct lwp_list lwps;
    struct runtime runtime;
    struct maps maps;
    char line[256];

    for (size_t i = 0; i < core->maps.n; i++) {
        const struct mapping *m = &core->maps.items[i];
        if (m->start >= m->end || (i && m->start < m[-1].end))
            abort();
        (void)core_read(core, m->start, line, sizeof line);
        (void)core_read(core, m->end - 8, line, 16);
    }
    if (core_lwps(core, &lwps) < 0 || core_maps(core, &maps) < 0)
        abort();
    for (size_t i = 0; i < lwps.n; i++)
        if (!core_thread(core, lwps.items[i].tid) ||
            (i && lwps.items[i].tid <= lwps.items[i - 1].tid))
            abort();
    if (core_command(core, line, sizeof line) >= (ssize_t)sizeof line ||
        core_environment(core, line, sizeof line) >= (ssize_t)sizeof line)
        abort();
    core_missing(core, &words);
    core_add_signal(core, &words);
    text_deinit(&words);
    (void)runtime_find(&memory, &maps, &runtime);
    maps_deinit(&maps);
    lwp_list_deinit(&lwps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct text why = TEXT_INIT;
    struct core *core;

    if (fd < 0) {
        fd = mkstemp(path);
        atexit(remove_it);
    }
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    if (core_open(path, NULL, NULL, &core, &why) < 0)
        abort();
    if (core_parse(core, NULL, &why) == 0)
        look(core);
    else if (!why.size)
        abort();
    core_free(core);
    text_deinit(&why);
    return 0;
}
