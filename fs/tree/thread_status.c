/* threads/<tid>/status: one thread, one `Key: value` a line. */
#include "agent/base/cleanup.h"
#include "fs/format/held.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/from_snapshot.h"

static const char *gil_of(const struct thread *thread)
{
    return thread->holds_gil ? "holds" : thread->waits_gil ? "waits" : "no";
}

static const char *const collecting_names[] = {
    [COLLECTING_NO] = "no",
    [COLLECTING_YES] = "yes",
    [COLLECTING_UNKNOWN] = "unknown",
};

static void add_thread(const struct thread *t, struct text *out)
{
    text_printf(out, "Tid: %d\nName: %s\nMain: %s\nState: ", (int)t->tid, t->name,
                t->is_main ? "yes" : "no");
    thread_describe(t, out);
    if (standing_said(&t->standing)) {
        text_puts(out, "\nStands: ");
        standing_add(&t->standing, out);
    }
    text_printf(out, "\nGil: %s\n", gil_of(t));
    if (t->tstate)
        text_printf(out,
                    "HandlesException: %s\nCollectsGarbage: %s\nInterpreter: %ld\nIdent: %lu\n",
                    t->handles_exception ? "yes" : "no", collecting_names[t->collecting],
                    (long)t->interp_id, t->thread_id);
    text_printf(out, "Depth: %zu\n", t->depth);
    text_printf(out, "CpuUser: %.2f\nCpuSystem: %.2f\n", (double)t->cpu_user_ns / 1e9,
                (double)t->cpu_system_ns / 1e9);
}

static void add_stop(struct file_context *context, struct text *out)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};

    if (held_list_read(context->target, NULL, &list) < 0)
        return;
    const struct held *held = held_find(&list, context->tid);
    text_puts(out, "Stopped: ");
    if (held)
        held_text(context->target, held, out);
    else
        text_puts(out, "no");
    text_putc(out, '\n');
}

int thread_status_render(struct file_context *context, struct text *out)
{
    int r = snapshot_each_thread(context, false, add_thread, out);
    if (r == 0)
        add_stop(context, out);
    return r;
}
