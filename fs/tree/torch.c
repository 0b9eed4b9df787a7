/* torch/: the last profile that PyTorch made of some of its steps, from the rows of torch_profile.
 *
 *   trace.json   in Chrome's Trace Event Format, for Perfetto and chrome://tracing
 *   top          what took how long, by name: without what it called, and with it */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/strings.h"
#include "fs/process/process.h"
#include "fs/recording/recording.h"
#include "fs/remote/torch/models.h"
#include "fs/tree/file.h"
#include "schema/schema.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define EVENTS_MAX (1u << 20)

/* What ran from one moment to another. */
struct event {
    double ts, duration; /* [s] */
    int64_t thread;
    bool step;
    const char *device, *name; /* escaped */
};

struct trace {
    struct event *events;
    size_t n, alloc;
    struct strings *strings;
    struct text text; /* of the row that is read */
    int64_t run;
    uint64_t lost;
};

static void trace_deinit(struct trace *trace)
{
    free(trace->events);
    strings_free(trace->strings);
    text_deinit(&trace->text);
}

#define _cleanup_trace_ _cleanup_(trace_deinit)

/* ---- reading ---- */

static const char *keep(struct trace *trace, const struct ring_row *row, unsigned column)
{
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    text_clear(&trace->text);
    text_add_escaped(&trace->text, bytes ? bytes : "?", bytes ? size : 1);
    return trace->text.error
               ? NULL
               : strings_add(trace->strings, trace->text.data ? trace->text.data : "");
}

static int add_event(struct trace *trace, const struct ring_row *row)
{
    struct event event = {
        .ts = ring_real(row, TORCH_PROFILE_TS),
        .duration = ring_real(row, TORCH_PROFILE_DURATION),
    };

    if (!(fabs(event.ts) < 1e12) || !(event.duration >= 0 && event.duration < 1e12))
        return 0; /* nothing of ours */
    if (trace->n >= EVENTS_MAX) {
        trace->lost++;
        return 0;
    }
    (void)ring_integer(row, TORCH_PROFILE_THREAD, &event.thread);
    event.name = keep(trace, row, TORCH_PROFILE_KIND);
    event.step = event.name && !strcmp(event.name, "step");
    event.device = keep(trace, row, TORCH_PROFILE_DEVICE);
    event.name = keep(trace, row, TORCH_PROFILE_NAME);
    int r = event.device && event.name ? ARRAY_GROW(trace->events, trace->alloc, trace->n + 1)
                                       : -ENOMEM;
    if (r == 0)
        trace->events[trace->n++] = event;
    return r;
}

static int on_row(void *arg, const struct ring_row *row)
{
    struct trace *trace = arg;
    int64_t run;

    if (!row) {
        trace->n = 0;
        return 0;
    }
    if (!ring_integer(row, TORCH_PROFILE_RUN, &run) || run < trace->run)
        return 0;
    if (run > trace->run)
        trace->n = 0; /* a later one */
    trace->run = run;
    return add_event(trace, row);
}

/* Orders events by device and thread, and those that others are in behind them. */
static int in_order(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    int r = strcmp(x->device, y->device);

    if (r)
        return r;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    return x->duration > y->duration ? -1 : x->duration < y->duration;
}

static int trace_read(struct file_context *context, struct trace *trace)
{
    struct recording *recording = context->recording;
    struct ring_counts counts = {0};

    *trace = (struct trace){0};
    bool is_there = torch_profile_is_there(context);
    int r = is_there ? strings_new(&trace->strings) : 0;
    if (is_there && r == 0)
        r = recording_scan(recording, RECORDED_TORCH_PROFILE, on_row, trace, &counts);
    if (r == 0 && !trace->n) {
        struct recording_state state = {0};
        if (recording)
            recording_state(recording, RECORDED_TORCH_PROFILE, &state);
        text_puts(&context->why, state.on ? "its steps have not ended yet: read again"
                                          : "write `profile torch` to ctl first");
        r = -ENODATA;
    }
    trace->lost += counts.lost;
    if (r == 0)
        array_sort(trace->events, trace->n, sizeof *trace->events, in_order);
    return r;
}

bool torch_profile_is_there(struct file_context *context)
{
    return context->recording && recording_has(context->recording, RECORDED_TORCH_PROFILE);
}

bool torch_is_there(struct file_context *context)
{
    return torch_profile_is_there(context) || (context->target && torch_is_loaded(context->target));
}

/* ---- trace.json ---- */

/* A device is a process of the trace; the processor is the process itself. */
static void begin_device(const struct event *event, pid_t pid, unsigned number, struct text *out)
{
    text_printf(out,
                "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": ",
                number ? (int)number : (int)pid);
    text_add_json(out, event->device, strlen(event->device));
    text_puts(out, "}},\n");
}

static void add_json(const struct event *event, int pid, struct text *out)
{
    text_puts(out, "{\"ph\": \"X\", \"cat\": ");
    text_puts(out, event->step ? "\"step\", \"name\": \"step " : "\"op\", \"name\": ");
    if (event->step) {
        text_puts(out, event->name);
        text_putc(out, '"');
    } else {
        text_add_json(out, event->name, strlen(event->name));
    }
    text_printf(out, ", \"pid\": %d, \"tid\": %ld, \"ts\": %.3f, \"dur\": %.3f},\n", pid,
                (long)event->thread, event->ts * 1e6, event->duration * 1e6);
}

int torch_trace_render(struct file_context *context, struct text *out)
{
    _cleanup_trace_ struct trace trace;
    pid_t pid = context->process->pid;
    const char *device = NULL;
    int number = -1;

    int r = trace_read(context, &trace);
    if (r < 0)
        return r;
    text_puts(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (size_t i = 0; i < trace.n; i++) {
        const struct event *event = &trace.events[i];
        if (!device || strcmp(device, event->device)) {
            bool cpu = !strcmp(event->device, "cpu");
            number = cpu ? number : number < 1 ? 1 : number + 1;
            begin_device(event, pid, cpu ? 0 : (unsigned)number, out);
            device = event->device;
        }
        add_json(event, strcmp(device, "cpu") ? number : (int)pid, out);
    }
    text_printf(
        out, "{\"ph\": \"M\", \"name\": \"lost\", \"pid\": %d, \"args\": {\"events\": %lu}}\n]}\n",
        (int)pid, (unsigned long)trace.lost);
    return 0;
}

/* ---- top ---- */

struct portion {
    const char *device, *name;
    double own, total; /* [s] */
    uint64_t calls;
};

static int by_name(const void *a, const void *b)
{
    const struct portion *x = a, *y = b;
    int r = strcmp(x->device, y->device);

    return r ? r : strcmp(x->name, y->name);
}

static int by_own(const void *a, const void *b)
{
    const struct portion *x = a, *y = b;

    if (x->own != y->own)
        return x->own > y->own ? -1 : 1;
    return by_name(a, b);
}

/* Makes a portion of each event: what is within another one of its thread is none of that one's own
 * time. Returns how many. */
static size_t split(const struct trace *trace, struct portion *portions, size_t *open)
{
    size_t n = 0, depth = 0;
    const struct event *before = NULL;

    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        if (event->step)
            continue;
        if (before && (before->thread != event->thread || strcmp(before->device, event->device)))
            depth = 0;
        before = event;
        while (depth &&
               trace->events[open[depth - 1]].ts + trace->events[open[depth - 1]].duration <=
                   event->ts)
            depth--;
        portions[i] =
            (struct portion){event->device, event->name, event->duration, event->duration, 1};
        if (depth)
            portions[open[depth - 1]].own -= event->duration;
        open[depth++] = i;
    }
    for (size_t i = 0; i < trace->n; i++)
        if (!trace->events[i].step)
            portions[n++] = portions[i];
    return n;
}

/* Makes one of the portions of a name. */
static size_t sum_up(struct portion *portions, size_t n)
{
    size_t sums = 0;

    array_sort(portions, n, sizeof *portions, by_name);
    for (size_t i = 0; i < n; i++) {
        if (sums && by_name(&portions[sums - 1], &portions[i]) == 0) {
            portions[sums - 1].own += portions[i].own;
            portions[sums - 1].total += portions[i].total;
            portions[sums - 1].calls++;
        } else {
            portions[sums++] = portions[i];
        }
    }
    array_sort(portions, sums, sizeof *portions, by_own);
    return sums;
}

int torch_top_render(struct file_context *context, struct text *out)
{
    _cleanup_trace_ struct trace trace;
    double took = 0;
    size_t steps = 0;

    int r = trace_read(context, &trace);
    if (r < 0)
        return r;
    _cleanup_free_ struct portion *portions = calloc(trace.n, sizeof *portions);
    _cleanup_free_ size_t *open = calloc(trace.n, sizeof *open);
    if (!portions || !open)
        return -ENOMEM;
    for (size_t i = 0; i < trace.n; i++) {
        steps += trace.events[i].step;
        took += trace.events[i].step ? trace.events[i].duration : 0;
    }
    size_t n = sum_up(portions, split(&trace, portions, open));
    text_printf(out, "Steps: %zu\nSeconds: %.6f\nEvents: %zu\nLost: %lu\n\n", steps, took,
                trace.n - steps, (unsigned long)trace.lost);
    text_puts(out, "own total calls device name\n");
    for (size_t i = 0; i < n; i++)
        text_printf(out, "%.6f %.6f %lu %s %s\n", portions[i].own, portions[i].total,
                    (unsigned long)portions[i].calls, portions[i].device, portions[i].name);
    return 0;
}
