#include "fs/inject/script/offsets.h"

#include "fs/proc/procfs.h"
#include "fs/remote/objects/object.h"

#include <errno.h>

#define TRIES 3 /* to read sys.modules, which may be changing */

static int read_word(const struct target *target, uint64_t addr, uint64_t *out)
{
    return memory_read(&target->memory, addr, out, sizeof *out);
}

static int find_interpreter(struct target *target, uint64_t *out)
{
    const struct offsets *o = &target->runtime.offsets;
    uint64_t interp, id;

    int r = read_word(target, target->runtime.addr + (uint64_t)o->rt_interpreters_head, &interp);
    for (int i = 0; r == 0 && interp && i < WALK_INTERPRETERS_MAX; i++) {
        r = read_word(target, interp + (uint64_t)o->interp_id, &id);
        if (r == 0 && id == 0) {
            *out = interp;
            return 0;
        }
        if (r == 0)
            r = read_word(target, interp + (uint64_t)o->interp_next, &interp);
    }
    return r < 0 && r != -EFAULT ? r : -ESRCH;
}

/* The module __main__ is made late at the start: from then on the interpreter can run a script
 * from a file. (A process that has just executed the same program again may have its structures at
 * the same addresses.) */
static bool has_begun(const struct target *target, uint64_t interp)
{
    const struct offsets *o = &target->runtime.offsets;
    uint64_t modules, module;
    bool found = false;
    struct view *view;

    if (view_new(&target->memory, &view) < 0)
        return false;
    for (int i = 0; i < TRIES && !found; i++) {
        view_reset(view);
        found = object_field(view, interp, o->interp_modules, &modules) &&
                dict_lookup_str(view, o, modules, "__main__", &module) == 0;
    }
    view_free(view);
    return found;
}

static int refuse_version(const struct runtime *runtime, struct text *why)
{
    if (*runtime->why)
        text_puts(why, runtime->why);
    else
        text_printf(why, "CPython %u.%u can't be asked to run a script: that came with 3.14",
                    runtime->version >> 24, runtime->version >> 16 & 255);
    return -EOPNOTSUPP;
}

int script_offsets_read(struct target *target, struct script_offsets *out, struct text *why)
{
    uint8_t blob[DEBUG_OFFSETS_SIZE];
    struct script_offsets found = {0};
    int32_t enabled;

    if (!target->runtime.supported || target->runtime.version >> 16 < 0x030e)
        return refuse_version(&target->runtime, why);
    int r = memory_read(&target->memory, target->runtime.addr, blob, sizeof blob);
    if (r == 0)
        r = offsets_parse_debugger(blob, sizeof blob, &found.offsets);
    if (r == -EINVAL)
        text_puts(why, "what the interpreter says of its remote debugging makes no sense");
    if (r == -EINVAL || r == -EOPNOTSUPP)
        return -EOPNOTSUPP;
    if (r == 0)
        r = find_interpreter(target, &found.interp);
    if (r == 0 && !has_begun(target, found.interp)) {
        text_puts(why, "the interpreter is only starting; try again in a moment");
        return -EAGAIN;
    }
    if (r == 0)
        r = memory_read(&target->memory, found.interp + (uint64_t)found.offsets.enabled, &enabled,
                        sizeof enabled);
    if (r < 0)
        return r == -EFAULT ? -ESRCH : r;
    if (enabled != 1) {
        text_puts(why, "remote debugging is disabled in the process: it was started with "
                       "-X disable-remote-debug or PYTHON_DISABLE_REMOTE_DEBUG");
        return -EOPNOTSUPP;
    }
    *out = found;
    return 0;
}
