#include "fs/remote/objects/version.h"

#include "fs/remote/objects/object.h"

void version_add(uint32_t version, struct text *out)
{
    static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};

    if (!version) {
        text_puts(out, "unknown");
        return;
    }
    text_printf(out, "%u.%u", version >> 24, version >> 16 & 0xff);
    if (version & 0xff)
        text_printf(out, ".%u", version >> 8 & 0xff);
    if (levels[version >> 4 & 0xf])
        text_printf(out, "%s%u", levels[version >> 4 & 0xf], version & 0xf);
}

const char *version_implementation(const struct runtime *runtime)
{
    return runtime->free_threaded ? "CPython, free-threaded" : "CPython";
}

uint32_t version_read(const struct memory *m, const struct runtime *runtime)
{
    const struct offsets *o = &runtime->offsets;
    uint64_t interp, sys, value;
    int64_t version = 0;
    struct view *view;

    if (!runtime->supported || view_new(m, &view) < 0)
        return 0;
    if (!object_field(view, runtime->addr, o->rt_interpreters_head, &interp) ||
        !object_field(view, interp, o->interp_sysdict, &sys) ||
        dict_lookup_str(view, o, sys, "hexversion", &value) < 0 ||
        int_to_i64(view, o, value, &version) < 0 || version >> 16 != runtime->version >> 16)
        version = 0;
    view_free(view);
    return (uint32_t)version;
}
