#include "fs/remote/version.h"

#include "fs/remote/object.h"

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
