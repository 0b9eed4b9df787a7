/* cores/<name>/status: what the core file is of, and what of it is there; one `Key: value` a line.
 */
#include "agent/base/cleanup.h"
#include "fs/format/identity.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/file.h"

#include <string.h>

#define CMDLINE_MAX 4096 /* bytes shown of a command line */

static void add_word(const char *key, const char *word, struct text *out)
{
    text_printf(out, "%s: ", key);
    text_add_escaped(out, word, strlen(word));
    text_putc(out, '\n');
}

static void add_death(const struct core *core, struct text *out)
{
    if (!core->signal) {
        text_puts(out, "Signal: none, it was dumped alive\n");
        return;
    }
    text_puts(out, "Signal: ");
    core_add_signal(core, out);
    text_printf(out, "\nFaulted: %d\n", (int)core->faulted);
}

static void add_file(const struct core *core, struct text *out)
{
    _cleanup_(text_deinit) struct text missing = TEXT_INIT;
    uint64_t size = (uint64_t)core->stat.st_size;

    add_word("Core", core->path, out);
    text_printf(out, "Size: %lu\n", size);
    if (core->wanted > size)
        text_printf(out, "Truncated: %lu bytes are missing at its end\n", core->wanted - size);
    text_puts(out, "Dumped: ");
    text_add_time(out, core->stat.st_mtim.tv_sec);
    text_putc(out, '\n');
    if (core_missing(core, &missing))
        text_printf(out, "Missing: %s\n", missing.data);
}

int core_status_render(struct file_context *context, struct text *out)
{
    const struct core *core = context->target->core;
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
    const struct snapshot_options options = {0};
    char line[CMDLINE_MAX + 1];

    add_file(core, out);
    text_printf(out, "Pid: %d\nPPid: %d\n", (int)core->pid, (int)core->ppid);
    identity_version(context->target, out);
    if (core->executable >= 0)
        add_word("Executable", core->objects[core->executable].path, out);
    if (core_command(core, line, sizeof line) > 0)
        add_word("Cmdline", line, out);
    add_death(core, out);
    text_printf(out, "Uid: %u\nGid: %u\nThreads: %zu\n", core->uid, core->gid, core->lwps.n);
    if (context->target->runtime.supported &&
        snapshot_take(context->target, &options, &snapshot) == 0)
        identity_interpreter(snapshot, out);
    return 0;
}
