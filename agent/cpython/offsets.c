#include "agent/cpython/offsets.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"

#include <errno.h>
#include <string.h>

/* One per supported minor, ascending, and one more where it can be built without a GIL. */
static const struct offsets table[] = {
#include "agent/cpython/offsets_table.h"
};

bool offsets_for_build(uint32_t version, bool free_threaded, struct offsets *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].version >> 16 == version >> 16 &&
            (table[i].gil_enabled >= 0) == free_threaded) {
            *out = table[i];
            return true;
        }
    return false;
}

bool offsets_for_version(uint32_t version, struct offsets *out)
{
    return offsets_for_build(version, false, out);
}

/* _Py_DebugOffsets is a cookie, the version, the free-threaded flag, then one group of 64-bit
 * numbers for each structure: its size, then offsets within it. Every minor has put new ones in
 * the middle, hence one list a minor. Where a number goes: */
struct slot {
    enum {
        GROUP,
        FIELD,
        SKIP,
        ABSENT,
        GIL,
        GIL_LOCKED,
        GIL_HOLDER,
        GC,
        GC_COLLECTING,
        GC_FRAME,
        SIZE
    } kind;
    size_t field; /* FIELD, ABSENT, SIZE: offsetof(struct offsets, ...) */
};

/* clang-format off */
#define G {GROUP, 0}                                   /* begins a structure: its size */
#define GS(name) {GROUP, offsetof(struct offsets, name)} /* the same, and the size is wanted */
#define F(name) {FIELD, offsetof(struct offsets, name)}
#define A(name) {ABSENT, offsetof(struct offsets, name)} /* of some builds; 0 stands in others */
#define Z(name) {SIZE, offsetof(struct offsets, name)} /* a size, not an offset */
#define S {SKIP, 0}

static const struct slot slots_3_13[] = {
    G, S, F(rt_interpreters_head),
    G, F(interp_id), F(interp_next), F(interp_threads_head), {GC, 0}, F(interp_modules),
        F(interp_sysdict), S, F(interp_gil), {GIL, 0}, A(gil_enabled), {GIL_LOCKED, 0},
        {GIL_HOLDER, 0},
    GS(tstate_size), S, F(tstate_next), F(tstate_interp), F(tstate_frame), F(tstate_thread_id),
        F(tstate_native_thread_id), F(tstate_datastack_chunk), S,
    G, F(frame_previous), F(frame_code), F(frame_instr), F(frame_localsplus), F(frame_owner),
    GS(code_size), F(code_filename), F(code_name), F(code_qualname), F(code_linetable),
        F(code_firstlineno), F(code_argcount), F(code_localsplusnames), F(code_localspluskinds),
        F(code_adaptive),
    GS(object_size), F(object_type),
    GS(type_size), F(type_name), S, F(type_flags),
    G, F(tuple_items), S,
    G, F(list_items), S,
    G, F(dict_keys), F(dict_values),
    G, F(float_value),
    G, F(long_tag), F(long_digits),
    G, F(bytes_size), F(bytes_data),
    G, F(unicode_state), F(unicode_length), Z(unicode_ascii_size),
    G, {GC_COLLECTING, 0},
};

static const struct slot slots_3_14[] = {
    G, S, F(rt_interpreters_head),
    G, F(interp_id), F(interp_next), F(interp_threads_head), S, {GC, 0}, F(interp_modules),
        F(interp_sysdict), S, F(interp_gil), {GIL, 0}, A(gil_enabled), {GIL_LOCKED, 0},
        {GIL_HOLDER, 0},
        F(interp_code_generation), S,
    GS(tstate_size), S, F(tstate_next), F(tstate_interp), F(tstate_frame), F(tstate_thread_id),
        F(tstate_native_thread_id), F(tstate_datastack_chunk), S,
    G, F(frame_previous), F(frame_code), F(frame_instr), F(frame_localsplus), F(frame_owner),
        F(frame_stacktop), A(frame_tlbc_index),
    GS(code_size), F(code_filename), F(code_name), F(code_qualname), F(code_linetable),
        F(code_firstlineno), F(code_argcount), F(code_localsplusnames), F(code_localspluskinds),
        F(code_adaptive), A(code_tlbc),
    GS(object_size), F(object_type),
    GS(type_size), F(type_name), S, F(type_flags),
    G, F(tuple_items), S,
    G, F(list_items), S,
    G, F(set_used), F(set_table), F(set_mask),
    G, F(dict_keys), F(dict_values),
    G, F(float_value),
    G, F(long_tag), F(long_digits),
    G, F(bytes_size), F(bytes_data),
    G, F(unicode_state), F(unicode_length), Z(unicode_ascii_size),
    G, {GC_COLLECTING, 0},
    G, F(gen_name), F(gen_iframe), F(gen_frame_state),
};

static const struct slot slots_3_15[] = {
    G, S, F(rt_interpreters_head),
    G, F(interp_id), F(interp_next), F(interp_threads_head), S, {GC, 0}, F(interp_modules),
        F(interp_sysdict), S, F(interp_gil), {GIL, 0}, A(gil_enabled), {GIL_LOCKED, 0},
        {GIL_HOLDER, 0},
        F(interp_code_generation), S,
    GS(tstate_size), S, F(tstate_next), F(tstate_interp), F(tstate_frame), S, S, S,
        F(tstate_thread_id), F(tstate_native_thread_id), F(tstate_datastack_chunk), S, S, S,
        F(tstate_current_exception), S,
    {SKIP, 0}, /* err_stackitem has no size */
    G, F(frame_previous), F(frame_code), F(frame_instr), F(frame_localsplus), F(frame_owner),
        F(frame_stacktop), A(frame_tlbc_index),
    GS(code_size), F(code_filename), F(code_name), F(code_qualname), F(code_linetable),
        F(code_firstlineno), F(code_argcount), F(code_localsplusnames), F(code_localspluskinds),
        F(code_adaptive), A(code_tlbc),
    GS(object_size), F(object_type),
    GS(type_size), F(type_name), S, F(type_flags), F(type_basicsize), F(type_dictoffset),
    G, F(heaptype_cached_keys),
    G, F(tuple_items), S,
    G, F(list_items), S,
    G, F(set_used), F(set_table), F(set_mask),
    G, F(dict_keys), F(dict_values),
    G, F(float_value),
    G, F(long_tag), F(long_digits),
    G, F(bytes_size), F(bytes_data),
    G, F(unicode_state), F(unicode_length), Z(unicode_ascii_size), Z(unicode_compact_size),
    G, {GC_COLLECTING, 0}, {GC_FRAME, 0}, S, S,
    G, F(gen_name), F(gen_iframe), F(gen_frame_state),
};
/* clang-format on */

static const struct {
    uint32_t minor; /* PY_VERSION_HEX >> 16 */
    const struct slot *slots;
    size_t n;
} debug_layouts[] = {
    {0x030d, slots_3_13, ARRAY_SIZE(slots_3_13)},
    {0x030e, slots_3_14, ARRAY_SIZE(slots_3_14)},
    {0x030f, slots_3_15, ARRAY_SIZE(slots_3_15)},
};

/* From 3.14 on two groups without a size follow: struct _llist_node, struct _debugger_support. */
#define DEBUGGER_MINOR 0x030e
#define LLIST_FIELDS 2

/* No structure of CPython is larger: PyInterpreterState, the largest, has some 400 KiB. */
#define STRUCT_MAX (4u << 20)
#define HEAD 24 /* cookie, version, free_threaded */

static int32_t *field_of(struct offsets *o, size_t field)
{
    return (int32_t *)(void *)((char *)o + field);
}

static void put(struct offsets *o, size_t field, uint64_t value)
{
    *field_of(o, field) = (int32_t)value;
}

static int read_slots(const uint8_t *blob, const struct slot *slots, size_t n, struct offsets *o)
{
    uint64_t size = STRUCT_MAX, gil = 0, locked = 0, holder = 0, gc = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t value = load64(blob + HEAD + 8 * i);
        if (slots[i].kind != SKIP && value > (slots[i].kind == GROUP ? STRUCT_MAX : size))
            return -EINVAL;
        switch (slots[i].kind) {
        case GROUP:
            size = value;
            if (slots[i].field)
                put(o, slots[i].field, value);
            break;
        case FIELD:
        case SIZE: put(o, slots[i].field, value); break;
        case ABSENT:
            if (*field_of(o, slots[i].field) >= 0)
                put(o, slots[i].field, value);
            break;
        case SKIP: break;
        case GIL: gil = value; break;
        case GIL_LOCKED: locked = value; break;
        case GIL_HOLDER: holder = value; break;
        case GC: gc = value; break;
        case GC_COLLECTING:
            put(o, offsetof(struct offsets, interp_gc_collecting), gc + value);
            break;
        case GC_FRAME: put(o, offsetof(struct offsets, interp_gc_frame), gc + value); break;
        }
    }
    if (locked < gil || locked - gil > 4096 || holder < gil || holder - gil > 4096)
        return -EINVAL;
    o->gil_locked = (int32_t)(locked - gil);
    o->gil_last_holder = (int32_t)(holder - gil);
    return 0;
}

/* The few fields on which everything rests, and how they must relate in every version. */
static bool plausible(const struct offsets *o)
{
    const int32_t pointers[] = {
        o->rt_interpreters_head, o->interp_next,
        o->interp_threads_head,  o->interp_gil,
        o->tstate_next,          o->tstate_interp,
        o->tstate_frame,         o->tstate_datastack_chunk,
        o->frame_previous,       o->frame_code,
        o->frame_instr,          o->frame_localsplus,
        o->code_filename,        o->code_name,
        o->code_qualname,        o->code_linetable,
        o->object_type,          o->tuple_items,
        o->list_items,           o->dict_keys,
        o->dict_values,
    };

    for (size_t i = 0; i < ARRAY_SIZE(pointers); i++)
        if (pointers[i] & 7)
            return false;
    return o->tstate_size <= 64 << 10 && o->frame_localsplus <= 1024 && o->code_adaptive >= 64 &&
           o->code_adaptive <= 4096 && o->code_size <= 4096 && o->unicode_ascii_size >= 32 &&
           o->unicode_ascii_size <= 256 && o->bytes_data <= 256 && o->object_type >= 8 &&
           o->object_size == o->object_type + 8 && o->object_size <= 64 &&
           (o->code_tlbc < 0 || (o->code_tlbc >= 64 && o->code_tlbc < o->code_adaptive)) &&
           o->frame_tlbc_index < o->frame_localsplus;
}

int offsets_parse_debug(const uint8_t *blob, size_t size, struct offsets *out, uint32_t *version,
                        bool *free_threaded)
{
    struct offsets o;

    if (size < HEAD || memcmp(blob, "xdebugpy", 8))
        return -EINVAL;
    *version = (uint32_t)load64(blob + 8);
    *free_threaded = load64(blob + 16) != 0;
    for (size_t i = 0; i < ARRAY_SIZE(debug_layouts); i++) {
        if (debug_layouts[i].minor != *version >> 16)
            continue;
        if (size < HEAD + 8 * debug_layouts[i].n ||
            !offsets_for_build(*version, *free_threaded, &o))
            return -EINVAL;
        int r = read_slots(blob, debug_layouts[i].slots, debug_layouts[i].n, &o);
        if (r < 0)
            return r;
        /* not among the debug offsets, but always the field behind */
        o.tstate_datastack_top = o.tstate_datastack_chunk + 8;
        o.version = *version;
        if (!plausible(&o))
            return -EINVAL;
        *out = o;
        return 0;
    }
    return -EOPNOTSUPP;
}

#define SCRIPT_PATH_MIN 64
#define SCRIPT_PATH_MAX 4096

static bool plausible_debugger(const struct debugger_offsets *d, const struct offsets *o)
{
    int64_t path = (int64_t)d->support + d->script_path;

    return !(d->runtime_finalizing & 7) && !(d->eval_breaker & 7) && !(d->support & 3) &&
           !(d->pending_call & 3) && !(d->enabled & 3) && d->eval_breaker + 8 <= d->support &&
           d->pending_call + 4 <= d->script_path && d->script_path_size >= SCRIPT_PATH_MIN &&
           d->script_path_size <= SCRIPT_PATH_MAX && path + d->script_path_size <= o->tstate_size;
}

int offsets_parse_debugger(const uint8_t *blob, size_t size, struct debugger_offsets *out)
{
    struct offsets o;
    struct debugger_offsets d;
    uint32_t version;
    bool free_threaded;

    int r = offsets_parse_debug(blob, size, &o, &version, &free_threaded);
    if (r < 0)
        return r;
    if (version >> 16 < DEBUGGER_MINOR)
        return -EOPNOTSUPP;
    size_t at = HEAD;
    for (size_t i = 0; i < ARRAY_SIZE(debug_layouts); i++)
        if (debug_layouts[i].minor == version >> 16)
            at += 8 * (debug_layouts[i].n + LLIST_FIELDS);
    /* in the order in which they lie */
    int32_t *const fields[] = {&d.eval_breaker, &d.support,     &d.enabled,
                               &d.pending_call, &d.script_path, &d.script_path_size};
    if (size < at + 8 * ARRAY_SIZE(fields))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        uint64_t value = load64(blob + at + 8 * i);
        if (value > STRUCT_MAX)
            return -EINVAL;
        *fields[i] = (int32_t)value;
    }
    uint64_t finalizing = load64(blob + HEAD + 8); /* behind the size of _PyRuntimeState */
    if (finalizing > STRUCT_MAX)
        return -EINVAL;
    d.runtime_finalizing = (int32_t)finalizing;
    if (!plausible_debugger(&d, &o))
        return -EINVAL;
    *out = d;
    return 0;
}
