#include "fs/process/collectives.h"

#include "agent/base/cleanup.h"
#include "fs/format/backtrace.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/frames/locals.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/values.h"
#include "fs/remote/since/since.h"
#include "fs/remote/torch/models.h"
#include "schema/rows.h"
#include "schema/schema.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VARIABLES_MAX 8       /* that are told of the caller */
#define VARIABLE_BYTES_MAX 40 /* of a value: a longer one isn't told */

/* ---- whose frames they are ---- */

/* torch/distributed/distributed_c10d.py, PyTorch 1.8 to 2.14: those that wait for other ranks. */
static bool is_blocking(const char *func)
{
    static const char *const names[] = {
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_multigpu",
        "all_gather_object",
        "all_gather_single",
        "all_reduce",
        "all_reduce_coalesced",
        "all_reduce_multigpu",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "batch_isend_irecv",
        "broadcast",
        "broadcast_multigpu",
        "broadcast_object_list",
        "destroy_process_group",
        "gather",
        "gather_into_tensor",
        "gather_object",
        "gather_single",
        "init_process_group",
        "irecv",
        "isend",
        "monitored_barrier",
        "new_group",
        "recv",
        "recv_object_list",
        "reduce",
        "reduce_multigpu",
        "reduce_scatter",
        "reduce_scatter_multigpu",
        "reduce_scatter_single",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "send",
        "send_object_list",
        "shrink_group",
        "split_group",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(func, names[i]))
            return true;
    return false;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && !strcmp(text + n - m, end);
}

static bool is_torch(const struct frame *frame)
{
    return frame->kind == FRAME_PYTHON && strstr(frame->file, "/torch/");
}

/* PyTorch, Python's own modules, what was installed beside them. */
static bool is_library(const struct frame *frame)
{
    return is_torch(frame) || *frame->file == '<' || strstr(frame->file, "-packages/") ||
           strstr(frame->file, "/lib/python3");
}

/* Whether a frame is a collective's. Functional collectives return at once: nobody waits in them
 * but in wait_tensor(). */
static bool is_collective(const struct frame *frame)
{
    if (frame->kind != FRAME_PYTHON)
        return false;
    if (ends_in(frame->file, "/torch/distributed/_functional_collectives.py"))
        return !strcmp(frame->func, "wait_tensor");
    return ends_in(frame->file, "/torch/distributed/distributed_c10d.py") &&
           is_blocking(frame->func);
}

static bool is_native_collective(const struct frame *frame)
{
    return frame->kind == FRAME_NATIVE && frame->func && !strncmp(frame->func, "c10d::", 6);
}

/* ---- variables ---- */

/* What is read of one thread, within a moment. */
struct reading {
    const struct offsets *offsets;
    struct view *view;
    const struct frame *call, *caller; /* NULL: there is none */
    const struct torch_groups *groups;
    struct collective now, *out;
    struct text variables;
    unsigned nvariables;
};

static bool is_plain(const struct reading *r, uint64_t reference)
{
    struct object_class class;
    uint64_t object = stackref_object(r->offsets, reference);

    if (!object) /* an int that is in the reference itself */
        return true;
    if (object_classify(r->view, r->offsets, object, &class) < 0 || !class.exact)
        return false;
    return class.kind == OBJECT_BOOL || class.kind == OBJECT_INT || class.kind == OBJECT_FLOAT ||
           class.kind == OBJECT_STR;
}

static int visit_variable(void *arg, const struct local *local)
{
    _cleanup_(text_deinit) struct text name = TEXT_INIT, value = TEXT_INIT;
    struct reading *r = arg;

    if (!local->name || r->nvariables == VARIABLES_MAX || !is_plain(r, local->reference))
        return 0;
    if (str_decode(r->view, r->offsets, local->name, VARIABLE_BYTES_MAX, &name) != 0 ||
        !value_add_stackref(r->view, r->offsets, local->reference, &value))
        return 0;
    if (name.size + value.size > VARIABLE_BYTES_MAX || name.error || value.error ||
        r->variables.size + name.size + value.size + 2 >= sizeof r->now.variables)
        return 0;
    text_printf(&r->variables, "%s%s=%s", r->nvariables++ ? "\n" : "", name.data, value.data);
    return 0;
}

/* "float32[64, 32] cpu" */
static void take_tensor(struct reading *r, uint64_t reference)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct collective *now = &r->now;

    if (now->has_shape || !value_add_stackref(r->view, r->offsets, reference, &text) ||
        !text.data || text.error)
        return;
    char *open = strchr(text.data, '['), *close = strchr(text.data, ']');
    if (!open || open == text.data || !close || text.data[0] == '<' ||
        strspn(open + 1, "0123456789, ") != (size_t)(close - open - 1) ||
        strcspn(text.data, "('\"{ ") < (size_t)(open - text.data))
        return;
    *open = *close = 0;
    if ((size_t)(open - text.data) >= sizeof now->dtype ||
        (size_t)(close - open) > sizeof now->shape)
        return;
    snprintf(now->dtype, sizeof now->dtype, "%s", text.data);
    snprintf(now->shape, sizeof now->shape, "%s", open + 1);
    now->has_shape = true;
}

/* None is the default group. */
static void take_group(struct reading *r, uint64_t reference)
{
    uint64_t object = stackref_object(r->offsets, reference);
    const struct torch_its_group *group = NULL;
    struct object_class class;

    if (object && object_classify(r->view, r->offsets, object, &class) == 0 &&
        class.kind == OBJECT_NONE && r->groups->n)
        group = &r->groups->items[0];
    for (size_t i = 0; object && i < r->groups->n && !group; i++)
        if (r->groups->items[i].object == object)
            group = &r->groups->items[i];
    if (group)
        snprintf(r->now.group, sizeof r->now.group, "%s", group->name);
}

static int visit_argument(void *arg, const struct local *local)
{
    static const char *const tensors[] = {"tensor", "input_tensor", "input", "output_tensor",
                                          "output"};
    struct reading *r = arg;

    if (!local->name)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(tensors); i++)
        if (str_equals(r->view, r->offsets, local->name, tensors[i])) {
            take_tensor(r, local->reference);
            return 0;
        }
    if (str_equals(r->view, r->offsets, local->name, "group"))
        take_group(r, local->reference);
    else if (strstr(r->now.op, "send")
                 ? str_equals(r->view, r->offsets, local->name, "dst")
                 : strstr(r->now.op, "recv") && str_equals(r->view, r->offsets, local->name, "src"))
        (void)int_to_i64(r->view, r->offsets, stackref_object(r->offsets, local->reference),
                         &r->now.peer);
    return 0;
}

static bool is_same(const struct raw_frame *raw, const struct frame *frame)
{
    return frame && raw->addr == frame->address && raw->code == frame->code;
}

static int visit_stack(void *arg, struct view *view, const struct raw_stack *stack)
{
    struct reading *r = arg;

    r->view = view;
    r->now = *r->out;
    r->nvariables = 0;
    text_clear(&r->variables);
    for (size_t i = 0; i < stack->nframes; i++) {
        const struct raw_frame *raw = &stack->frames[i];
        if (is_same(raw, r->call))
            (void)locals_iterate(view, r->offsets, raw->addr, raw->code, visit_argument, r);
        else if (is_same(raw, r->caller))
            (void)locals_iterate(view, r->offsets, raw->addr, raw->code, visit_variable, r);
    }
    return 0;
}

/* Whoever has gone on since is in it no more, as far as is known: he has no variables. */
static int read_variables(struct target *target, const struct torch_groups *groups,
                          const struct frame *call, const struct frame *caller,
                          struct collective *out)
{
    struct reading r = {
        .offsets = &target->runtime.offsets,
        .groups = groups,
        .call = call,
        .caller = caller,
        .out = out,
    };

    int e = snapshot_visit(target, out->tid, visit_stack, &r);
    if (e == 0) {
        *out = r.now;
        if (r.variables.size)
            snprintf(out->variables, sizeof out->variables, "%s", r.variables.data);
    }
    text_deinit(&r.variables);
    return e == -ESRCH || e == -ETIMEDOUT ? 0 : e;
}

/* ---- one thread ---- */

static struct collective *add(struct collectives *out, enum collective_kind kind,
                              const struct thread *thread)
{
    if (out->n == COLLECTIVES_MAX)
        return NULL;
    struct collective *one = &out->items[out->n++];
    *one = (struct collective){
        .kind = kind,
        .tid = thread ? thread->tid : 0,
        .seq = -1,
        .start = NAN,
        .peer = -1,
        .line = -1,
    };
    if (thread) {
        one->standing = thread->standing;
        if (thread->state == THREAD_IDLE)
            snprintf(one->wait, sizeof one->wait, "%s", thread->wait);
        else
            snprintf(one->wait, sizeof one->wait, "%s", thread_state_name(thread->state));
        if (*thread->held)
            snprintf(one->wait, sizeof one->wait, "held, %s", thread->held);
    }
    return one;
}

static void set_place(struct collective *one, const struct frame *frame)
{
    snprintf(one->func, sizeof one->func, "%s", frame->func);
    snprintf(one->file, sizeof one->file, "%s", frame->file);
    one->line = frame->line;
}

/* The innermost frame of the program from `i` on; nframes: there is none. */
static size_t find_own(const struct thread *thread, size_t i)
{
    while (i < thread->nframes &&
           (thread->frames[i].kind != FRAME_PYTHON || is_library(&thread->frames[i])))
        i++;
    return i;
}

/* Objects are sent by collectives of tensors: "all_gather of all_gather_object". */
static int add_stack(struct target *target, const struct thread *thread, struct collectives *out)
{
    size_t inner = 0, outer, own;

    while (inner < thread->nframes && !is_collective(&thread->frames[inner]))
        inner++;
    struct collective *one = inner < thread->nframes ? add(out, COLLECTIVE_STACK, thread) : NULL;
    if (!one)
        return 0;
    outer = inner;
    for (size_t i = inner; i < thread->nframes && is_torch(&thread->frames[i]); i++)
        if (is_collective(&thread->frames[i]))
            outer = i;
    if (outer > inner)
        snprintf(one->op, sizeof one->op, "%s of %s", thread->frames[inner].func,
                 thread->frames[outer].func);
    else
        snprintf(one->op, sizeof one->op, "%s", thread->frames[inner].func);
    own = find_own(thread, outer);
    const struct frame *caller = own < thread->nframes ? &thread->frames[own] : NULL;
    if (caller)
        set_place(one, caller);
    return read_variables(target, &out->groups, &thread->frames[inner], caller, one);
}

/* The innermost of its native frames that is of c10d. */
static bool add_native(const struct thread *thread, struct collectives *out)
{
    for (size_t i = 0; i < thread->nframes; i++) {
        if (!is_native_collective(&thread->frames[i]))
            continue;
        struct collective *one = add(out, COLLECTIVE_NATIVE, thread);
        size_t own = find_own(thread, i);
        if (!one)
            return false;
        snprintf(one->op, sizeof one->op, "%s", thread->frames[i].func);
        if (own < thread->nframes)
            set_place(one, &thread->frames[own]);
        return true;
    }
    return false;
}

/* Adds where the main thread is: the library's function that the program has called, if it is in
 * one, and the program's. */
static void add_elsewhere(const struct snapshot *snapshot, struct collectives *out)
{
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        if (!thread->is_main)
            continue;
        struct collective *one = add(out, COLLECTIVE_NONE, thread);
        if (!one)
            return;
        size_t own = find_own(thread, 0), called = own;
        while (called-- > 0)
            if (thread->frames[called].kind == FRAME_PYTHON) {
                snprintf(one->op, sizeof one->op, "%s", thread->frames[called].func);
                break;
            }
        if (own < thread->nframes)
            set_place(one, &thread->frames[own]);
        return;
    }
}

/* Threads that run Python: others do what these have asked for. */
static int add_natives(struct target *target, struct recording *recording, struct collectives *out)
{
    const struct snapshot_options options = {.native = true};
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
    size_t before = out->n;

    int r = held_snapshot(target, recording, &options, &snapshot);
    if (r < 0)
        return r;
    since_threads(target, snapshot);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        if (snapshot->threads[i].tstate && !add_native(&snapshot->threads[i], out) &&
            out->n == COLLECTIVES_MAX)
            break;
    if (out->n == before)
        add_elsewhere(snapshot, out);
    return 0;
}

static int add_threads(struct target *target, struct recording *recording, struct collectives *out)
{
    const struct snapshot_options options = {0};
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int r = held_snapshot(target, recording, &options, &snapshot);
    if (r < 0)
        return r;
    since_threads(target, snapshot);
    for (size_t i = 0; i < snapshot->nthreads && r == 0; i++)
        r = add_stack(target, &snapshot->threads[i], out);
    return r == 0 && !out->n && out->groups.n ? add_natives(target, recording, out) : r;
}

/* ---- what was recorded ---- */

static bool is_text(const struct ring_row *row, unsigned column, const char *wanted)
{
    uint32_t size;
    bool cut;

    const char *text = ring_text(row, column, &size, &cut);
    return text && size == strlen(wanted) && !memcmp(text, wanted, size);
}

static void take_count(struct collectives *out, const struct ring_row *row)
{
    for (size_t i = 0; i < out->groups.n; i++) {
        int64_t seq;
        if (!is_text(row, COLLECTIVES_GROUP_NAME, out->groups.items[i].name) ||
            !ring_integer(row, COLLECTIVES_SEQ, &seq))
            continue;
        out->counts[i].seq = seq;
        out->counts[i].since = ring_real(row, COLLECTIVES_START);
    }
}

/* The last call of the thread that is in one, if it is of that group and not over: its own. */
static void take_call(struct collectives *out, const struct ring_row *row)
{
    int64_t tid, seq;

    if (!ring_integer(row, COLLECTIVES_TID, &tid))
        return;
    for (size_t i = 0; i < out->n; i++) {
        struct collective *one = &out->items[i];
        bool is_open = isnan(ring_real(row, COLLECTIVES_DURATION)) &&
                       is_text(row, COLLECTIVES_GROUP_NAME, one->group);
        if (one->kind != COLLECTIVE_STACK || one->tid != tid)
            continue;
        one->seq = is_open && ring_integer(row, COLLECTIVES_SEQ, &seq) ? seq : -1;
        one->start = is_open ? ring_real(row, COLLECTIVES_START) : (double)NAN;
    }
}

static void take_called(struct collectives *out, const struct ring_row *row)
{
    int64_t seq;

    if (!is_text(row, COLLECTIVES_SOURCE, "recorded") || !ring_integer(row, COLLECTIVES_SEQ, &seq))
        return;
    for (size_t i = 0; i < out->groups.n; i++)
        if (is_text(row, COLLECTIVES_GROUP_NAME, out->groups.items[i].name) &&
            seq > out->counts[i].called)
            out->counts[i].called = seq;
}

static int take_row(void *arg, const struct ring_row *row)
{
    struct collectives *out = arg;

    if (row && is_text(row, COLLECTIVES_SOURCE, "counter")) {
        take_count(out, row);
    } else if (row) {
        take_call(out, row);
        take_called(out, row);
    }
    return 0;
}

/* Whether another thread is in a collective of that group too, or in one whose group isn't known:
 * then nobody knows which of them began last. */
static bool has_other(const struct collectives *out, const struct collective *one)
{
    for (size_t i = 0; i < out->n; i++) {
        const struct collective *other = &out->items[i];
        if (other != one && other->kind != COLLECTIVE_NONE &&
            (!*other->group || !strcmp(other->group, one->group)))
            return true;
    }
    return false;
}

/* Numbers the waits. Who waits in a collective of which no call was recorded waits in the last one
 * that was counted, if no call of that one was recorded either: PyTorch counts those that begin,
 * and the only thread that is in one has begun none since. Where a call was recorded, it is of
 * another thread that doesn't wait for it (yet), or it is over. */
static void number_waits(struct collectives *out)
{
    for (size_t i = 0; i < out->n; i++) {
        struct collective *one = &out->items[i];
        if (has_other(out, one))
            continue;
        for (size_t k = 0; k < out->groups.n; k++)
            if (one->kind == COLLECTIVE_STACK && one->seq < 0 && isnan(one->start) &&
                one->standing.kind == STANDS && *one->group && one->peer < 0 &&
                !strcmp(one->group, out->groups.items[k].name) &&
                out->counts[k].called < out->counts[k].seq)
                one->seq = out->counts[k].seq;
    }
}

static int read_recorded(struct recording *recording, struct collectives *out)
{
    struct ring_counts counts;

    if (!recording || !recording_has(recording, RECORDED_COLLECTIVES))
        return 0;
    int r = recording_scan(recording, RECORDED_COLLECTIVES, take_row, out, &counts);
    if (r == 0)
        number_waits(out);
    return r;
}

int collectives_read(struct target *target, struct recording *recording, struct text *why,
                     struct collectives *out)
{
    out->n = 0;
    int r = torch_groups_read(target, &out->groups);
    if (r < 0 && (r != -ENOENT || !torch_is_loaded(target)))
        return r;
    for (size_t i = 0; i < out->groups.n; i++)
        out->counts[i] = (struct collective_count){.seq = -1, .since = NAN, .called = -1};
    r = add_threads(target, recording, out);
    if (r < 0)
        return snapshot_explain(target, 0, r, why);
    if (!out->groups.n && !out->n)
        return -ENOENT;
    return read_recorded(recording, out);
}

/* ---- what somebody else says ---- */

static void make_word(char *text, size_t size, bool lines)
{
    text[size - 1] = 0;
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if ((*p < 0x20 && !(lines && *p == '\n')) || *p == 0x7f ||
            (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            *p = '?';
}

static bool make_sane_one(struct collective *c)
{
    make_word(c->op, sizeof c->op, false);
    make_word(c->group, sizeof c->group, false);
    make_word(c->shape, sizeof c->shape, false);
    make_word(c->dtype, sizeof c->dtype, false);
    make_word(c->func, sizeof c->func, false);
    make_word(c->file, sizeof c->file, false);
    make_word(c->variables, sizeof c->variables, true);
    make_word(c->wait, sizeof c->wait, false);
    c->has_shape = *(unsigned char *)&c->has_shape & 1;
    c->standing.at_least = *(unsigned char *)&c->standing.at_least & 1;
    return (unsigned)c->kind <= COLLECTIVE_NONE && (unsigned)c->standing.kind <= SEEN_AWAITING &&
           c->seq >= -1 && c->peer >= -1;
}

bool collectives_make_sane(void *bytes)
{
    struct collectives *its = bytes;
    bool sane = its->n <= COLLECTIVES_MAX && its->groups.n <= TORCH_GROUPS_MAX;

    its->groups.cut = *(unsigned char *)&its->groups.cut & 1;
    for (size_t i = 0; sane && i < its->n; i++)
        sane = make_sane_one(&its->items[i]);
    for (size_t i = 0; sane && i < its->groups.n; i++) {
        struct torch_its_group *group = &its->groups.items[i];
        make_word(group->name, sizeof group->name, false);
        make_word(group->backend, sizeof group->backend, false);
        sane = group->size >= -1 && its->counts[i].seq >= -1;
    }
    return sane;
}
