/* gecko.json: the Firefox profiler's processed format, version 57; newer ones upgrade it. One
 * thread a thread, and each sample at its time. */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <inttypes.h>

#define VERSION 57

enum category { OTHER, PYTHON, NATIVE };

/* Numbers of frames, functions and stacks within one thread's tables, + 1; 0: not there. */
struct thread_tables {
    const struct sum *sum;
    struct trie *strings; /* of all threads: its names */
    uint32_t *stacks, *frames, *funcs;
    uint32_t *frame_order, *func_order, *stack_order;
    size_t nframes, nfuncs, nstacks;
    struct trie functions; /* which frames are one function */
};

static uint32_t string(struct trie *strings, const char *text)
{
    struct profile_frame frame = {.func = text, .file = ""};
    uint32_t id;

    return trie_frame(strings, &frame, &id) < 0 ? 0 : strings->frames[id].func;
}

static enum category category(const struct profile_frame *frame)
{
    return frame->kind == PROFILE_PYTHON ? PYTHON : frame->kind == PROFILE_NATIVE ? NATIVE : OTHER;
}

/* "NAME":[...] of n values. */
#define COLUMN(out, name, n, format, value) \
 do {                                       \
  text_puts(out, ",\"" name "\":[");        \
  for (size_t i = 0; i < (n); i++) {        \
   text_puts(out, i ? "," : "");            \
   text_printf(out, format, value);         \
  }                                         \
  text_putc(out, ']');                      \
 } while (0)

static void add_constant(struct text *out, const char *name, size_t n, const char *value)
{
    text_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        text_printf(out, "%s%s", i ? "," : "", value);
    text_putc(out, ']');
}

static struct profile_frame frame_of(const struct thread_tables *tables, uint32_t frame)
{
    return trie_frame_of(&tables->sum->trie, frame);
}

static enum category stack_category(const struct thread_tables *tables, uint32_t node)
{
    struct profile_frame frame = frame_of(tables, tables->sum->trie.nodes[node].frame);

    return category(&frame);
}

/* Numbers what the thread's samples have. */
static int number(struct thread_tables *tables, uint32_t thread)
{
    const struct sum *sum = tables->sum;
    const struct trie *trie = &sum->trie;

    for (size_t i = 0; i < sum->nmoments; i++)
        if (sum->moments[i].thread == thread)
            tables->stacks[sum->moments[i].node] = 1;
    for (size_t node = trie->nnodes; --node > 0;)
        if (tables->stacks[node])
            tables->stacks[trie->nodes[node].parent] = 1;
    for (uint32_t node = 1; node < trie->nnodes; node++) {
        uint32_t frame = trie->nodes[node].frame, func;
        if (!tables->stacks[node])
            continue;
        tables->stack_order[tables->nstacks] = node;
        tables->stacks[node] = (uint32_t)++tables->nstacks;
        if (tables->frames[frame])
            continue;
        struct profile_frame function = frame_of(tables, frame);
        function.line = 0;
        if (trie_frame(&tables->functions, &function, &func) < 0)
            return -ENOMEM;
        if (func == tables->nfuncs)
            tables->func_order[tables->nfuncs++] = frame;
        tables->funcs[frame] = func;
        tables->frame_order[tables->nframes] = frame;
        tables->frames[frame] = (uint32_t)++tables->nframes;
    }
    return 0;
}

static void add_stacks(const struct thread_tables *tables, struct text *out)
{
    const struct trie *trie = &tables->sum->trie;
    size_t n = tables->nstacks;

    text_printf(out, ",\"stackTable\":{\"length\":%zu", n);
    COLUMN(out, "frame", n, "%u", tables->frames[trie->nodes[tables->stack_order[i]].frame] - 1);
    text_puts(out, ",\"prefix\":[");
    for (size_t i = 0; i < n; i++) {
        uint32_t parent = trie->nodes[tables->stack_order[i]].parent;
        text_puts(out, i ? "," : "");
        if (parent)
            text_printf(out, "%u", tables->stacks[parent] - 1);
        else
            text_puts(out, "null");
    }
    text_putc(out, ']');
    COLUMN(out, "category", n, "%d", stack_category(tables, tables->stack_order[i]));
    add_constant(out, "subcategory", n, "0");
    text_putc(out, '}');
}

static void add_frames(const struct thread_tables *tables, struct text *out)
{
    size_t n = tables->nframes;

    text_printf(out, ",\"frameTable\":{\"length\":%zu", n);
    add_constant(out, "address", n, "-1");
    add_constant(out, "inlineDepth", n, "0");
    text_puts(out, ",\"category\":[");
    for (size_t i = 0; i < n; i++) {
        struct profile_frame frame = frame_of(tables, tables->frame_order[i]);
        text_printf(out, "%s%d", i ? "," : "", category(&frame));
    }
    text_putc(out, ']');
    add_constant(out, "subcategory", n, "0");
    COLUMN(out, "func", n, "%u", tables->funcs[tables->frame_order[i]]);
    add_constant(out, "nativeSymbol", n, "null");
    add_constant(out, "innerWindowID", n, "0");
    add_constant(out, "implementation", n, "null");
    text_puts(out, ",\"line\":[");
    for (size_t i = 0; i < n; i++) {
        struct profile_frame frame = frame_of(tables, tables->frame_order[i]);
        text_puts(out, i ? "," : "");
        if (frame.line)
            text_printf(out, "%d", frame.line);
        else
            text_puts(out, "null");
    }
    text_putc(out, ']');
    add_constant(out, "column", n, "null");
    text_putc(out, '}');
}

static void add_funcs(const struct thread_tables *tables, struct text *out)
{
    size_t n = tables->nfuncs;

    text_printf(out, ",\"funcTable\":{\"length\":%zu", n);
    COLUMN(out, "name", n, "%u",
           string(tables->strings, frame_of(tables, tables->func_order[i]).func));
    add_constant(out, "isJS", n, "false");
    add_constant(out, "relevantForJS", n, "false");
    add_constant(out, "resource", n, "-1");
    text_puts(out, ",\"fileName\":[");
    for (size_t i = 0; i < n; i++) {
        struct profile_frame frame = frame_of(tables, tables->func_order[i]);
        text_puts(out, i ? "," : "");
        if (*frame.file)
            text_printf(out, "%u", string(tables->strings, frame.file));
        else
            text_puts(out, "null");
    }
    text_puts(out, "],\"lineNumber\":[");
    for (size_t i = 0; i < n; i++) {
        struct profile_frame frame = frame_of(tables, tables->func_order[i]);
        text_puts(out, i ? "," : "");
        if (frame.first_line)
            text_printf(out, "%d", frame.first_line);
        else
            text_puts(out, "null");
    }
    text_putc(out, ']');
    add_constant(out, "columnNumber", n, "null");
    text_putc(out, '}');
}

static void add_samples(const struct thread_tables *tables, uint32_t thread, struct text *out)
{
    const struct sum *sum = tables->sum;
    const char *unit = profile_mode_unit(sum->mode);
    bool time = !strcmp(unit, "ns");
    size_t n = 0;

    text_puts(out, ",\"samples\":{\"stack\":[");
    for (size_t i = 0; i < sum->nmoments; i++) {
        const struct sum_moment *moment = &sum->moments[i];
        if (moment->thread != thread)
            continue;
        text_puts(out, n++ ? "," : "");
        if (moment->node)
            text_printf(out, "%u", tables->stacks[moment->node] - 1);
        else
            text_puts(out, "null");
    }
    text_printf(out, "],\"length\":%zu,\"time\":[", n);
    n = 0;
    for (size_t i = 0; i < sum->nmoments; i++)
        if (sum->moments[i].thread == thread)
            text_printf(out, "%s%.3f", n++ ? "," : "",
                        sum->moments[i].when > sum->from
                            ? (double)(sum->moments[i].when - sum->from) * 1e-6
                            : 0.0);
    text_puts(out, "],\"weight\":[");
    n = 0;
    for (size_t i = 0; i < sum->nmoments; i++) {
        if (sum->moments[i].thread != thread)
            continue;
        text_puts(out, n++ ? "," : "");
        if (time)
            text_printf(out, "%.6f", (double)sum->moments[i].weight * 1e-6);
        else
            text_printf(out, "%" PRId64, sum->moments[i].weight);
    }
    text_printf(out, "],\"weightType\":\"%s\"}",
                time                     ? "tracing-ms"
                : !strcmp(unit, "bytes") ? "bytes"
                                         : "samples");
}

static void add_tables(const struct thread_tables *tables, uint32_t number, struct text *out)
{
    const struct sum_thread *thread = &tables->sum->threads[number];

    text_puts(out,
              "{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null,"
              "\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\"name\":");
    text_add_json(out, thread->name, strlen(thread->name));
    text_printf(out,
                ",\"isMainThread\":%s,\"processName\":\"%d\",\"pid\":\"%d\",\"tid\":%d,"
                "\"markers\":{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],\"phase\":[],"
                "\"category\":[],\"length\":0},\"resourceTable\":{\"lib\":[],\"name\":[],"
                "\"host\":[],\"type\":[],\"length\":0},\"nativeSymbols\":{\"libIndex\":[],"
                "\"address\":[],\"name\":[],\"functionSize\":[],\"length\":0}",
                thread->tid == thread->pid ? "true" : "false", (int)thread->pid, (int)thread->pid,
                (int)thread->tid);
    add_samples(tables, number, out);
    add_stacks(tables, out);
    add_frames(tables, out);
    add_funcs(tables, out);
    text_putc(out, '}');
}

static int add_thread(const struct sum *sum, uint32_t thread, struct trie *strings,
                      struct text *out)
{
    size_t nodes = sum->trie.nnodes, frames = sum->trie.nframes + 1;
    struct thread_tables tables = {.sum = sum, .strings = strings};
    /* stacks and their order, then the same of frames and functions */
    _cleanup_free_ uint32_t *numbers = calloc(2 * nodes + 4 * frames, sizeof *numbers);

    if (!numbers || trie_init(&tables.functions, 0, 0) < 0)
        return -ENOMEM;
    tables.stacks = numbers;
    tables.stack_order = numbers + nodes;
    tables.frames = numbers + 2 * nodes;
    tables.frame_order = tables.frames + frames;
    tables.funcs = tables.frame_order + frames;
    tables.func_order = tables.funcs + frames;
    int error = number(&tables, thread);
    if (!error)
        add_tables(&tables, thread, out);
    trie_deinit(&tables.functions);
    return error;
}

int render_gecko(const struct sum *sum, struct text *out)
{
    struct trie strings;
    int error = trie_init(&strings, 0, 0);

    if (error)
        return error;
    text_printf(
        out,
        "{\"meta\":{\"interval\":%.6f,\"startTime\":%.3f,\"processType\":0,\"product\":"
        "\"probefs\",\"stackwalk\":1,\"version\":32,\"preprocessedProfileVersion\":%d,"
        "\"symbolicated\":true,\"debug\":false,\"importedFrom\":\"probefs %s\","
        "\"usesOnlyOneStackType\":true,\"markerSchema\":[],\"sampleUnits\":{\"time\":\"ms\","
        "\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"},\"categories\":["
        "{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},"
        "{\"name\":\"Python\",\"color\":\"yellow\",\"subcategories\":[\"Other\"]},"
        "{\"name\":\"Native\",\"color\":\"blue\",\"subcategories\":[\"Other\"]}]},"
        "\"libs\":[],\"threads\":[",
        sum->period ? (double)sum->period * 1e-6 : 1.0, (double)(sum->wall_zero + sum->from) * 1e-6,
        VERSION, profile_mode_name(sum->mode));
    for (uint32_t i = 0; !error && i < sum->nthreads; i++) {
        if (i)
            text_putc(out, ',');
        error = add_thread(sum, i, &strings, out);
    }
    text_puts(out, "],\"shared\":{\"stringArray\":[");
    for (size_t i = 0; i < strings.nnames; i++) {
        text_puts(out, i ? "," : "");
        text_add_json(out, strings.names[i], strlen(strings.names[i]));
    }
    text_puts(out, "]}}\n");
    trie_deinit(&strings);
    return error;
}
