/* crash/: what is left of the last exception that nobody caught, or of the last fatal signal. All
 * of it comes from the agent's rows and from what was taken down while a signal was handled:
 * nothing is asked.
 *
 *   traceback   as Python shows it, without the lines of source
 *   locals      as threads/<tid>/locals
 *   backtrace   of a signal: as <pid>/backtrace, when it came */
#include "agent/base/cleanup.h"
#include "fs/recording/last_crash.h"
#include "fs/tree/crash.h"
#include "fs/tree/source.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define DEPTHS_MAX 4096 /* frames that are looked at */

#define _cleanup_crash_ _cleanup_(last_crash_deinit)

static int64_t number_of(const struct ring_row *row, enum crash_column column)
{
    int64_t value;
    return ring_integer(row, column, &value) ? value : -1;
}

bool crash_is_there(struct file_context *context)
{
    _cleanup_crash_ struct last_crash crash;
    _cleanup_(text_deinit) struct text stacks = TEXT_INIT;

    if (!context->recording)
        return false;
    recording_add_crash(context->recording, &stacks);
    int r = last_crash_read(context->recording, &crash);
    return stacks.size || (r == 0 && crash.number);
}

/* ---- traceback ---- */

static void add_traceback_line(const struct ring_row *row, struct text *out)
{
    int64_t line = number_of(row, CRASH_LINENO);

    text_puts(out, "  File \"");
    last_crash_add(row, CRASH_FILE, "?", out);
    if (line > 0)
        text_printf(out, "\", line %ld, in ", line);
    else
        text_puts(out, "\", in ");
    last_crash_add(row, CRASH_FUNC, "?", out);
    text_putc(out, '\n');
}

/* The frames of a kind that follow `first`, outermost first. */
static void add_frames(const struct last_crash *crash, const struct ring_row *first,
                       enum crash_kind kind, struct text *out)
{
    const struct ring_row *rows[DEPTHS_MAX];
    size_t n = 0;

    for (const struct ring_row *row = first;
         n < DEPTHS_MAX && (row = last_crash_next(crash, row));) {
        enum crash_kind its = last_crash_kind(row);
        if (its == kind)
            rows[n++] = row;
        else if (its != CRASH_LOCAL)
            break;
    }
    if (n)
        text_puts(out, "Traceback (most recent call last):\n");
    for (size_t i = n; i-- > 0;) {
        add_traceback_line(rows[i], out);
        int64_t left_out =
            i ? number_of(rows[i], CRASH_DEPTH) - number_of(rows[i - 1], CRASH_DEPTH) - 1 : 0;
        if (left_out > 0)
            text_printf(out, "  ... (%ld more frames)\n", left_out);
    }
}

/* Python says __main__.Error without its module. */
static void add_type(const struct ring_row *row, struct text *out)
{
    static const char module[] = "__main__.";
    _cleanup_(text_deinit) struct text name = TEXT_INIT;

    last_crash_add(row, CRASH_NAME, "?", &name);
    bool main = name.data && !strncmp(name.data, module, sizeof module - 1);
    text_puts(out, name.data ? name.data + (main ? sizeof module - 1 : 0) : "?");
}

static void add_exception(const struct last_crash *crash, const struct ring_row *row,
                          struct text *out)
{
    uint32_t size = 0;
    bool cut;

    add_frames(crash, row, last_crash_kind(row) == CRASH_EXCEPTION ? CRASH_FRAME : CRASH_EARLIER,
               out);
    add_type(row, out);
    if (ring_text(row, CRASH_VALUE, &size, &cut) && size) {
        text_puts(out, ": ");
        last_crash_add(row, CRASH_VALUE, "", out);
    }
    text_putc(out, '\n');
}

/* The earliest comes first. */
static void add_chain(const struct last_crash *crash, struct text *out)
{
    const struct ring_row *rows[DEPTHS_MAX];
    size_t n = 0;

    for (const struct ring_row *row = NULL;
         n < DEPTHS_MAX && (row = last_crash_next(crash, row));) {
        enum crash_kind kind = last_crash_kind(row);
        if (kind == CRASH_EXCEPTION || kind == CRASH_CAUSE || kind == CRASH_CONTEXT)
            rows[n++] = row;
    }
    for (size_t i = n; i-- > 0;) {
        add_exception(crash, rows[i], out);
        enum crash_kind kind = last_crash_kind(rows[i]);
        if (kind == CRASH_CAUSE)
            text_puts(out,
                      "\nThe above exception was the direct cause of the following exception:\n\n");
        else if (kind == CRASH_CONTEXT)
            text_puts(out,
                      "\nDuring handling of the above exception, another exception occurred:\n\n");
    }
}

static void add_members(const struct last_crash *crash, struct text *out)
{
    unsigned n = 0;

    for (const struct ring_row *row = NULL; (row = last_crash_next(crash, row));)
        if (last_crash_kind(row) == CRASH_MEMBER) {
            text_printf(out, "\nSub-exception %u:\n\n", ++n);
            add_exception(crash, row, out);
        }
}

static void add_when(const struct ring_row *row, struct text *out)
{
    double ts = ring_real(row, CRASH_TS);

    text_printf(out, " in thread %ld", number_of(row, CRASH_TID));
    if (ts > 0 && ts < 1e12) {
        text_puts(out, " at ");
        text_add_time(out, (time_t)ts);
    }
    text_puts(out, ":\n");
}

static void add_signal(const struct ring_row *row, struct text *out)
{
    last_crash_add(row, CRASH_NAME, "?", out);
    text_puts(out, ": ");
    last_crash_add(row, CRASH_VALUE, "?", out);
    text_putc(out, '\n');
}

int crash_traceback_render(struct file_context *context, struct text *out)
{
    _cleanup_crash_ struct last_crash crash;

    int r = last_crash_read(context->recording, &crash);
    if (r < 0)
        return r;
    const struct ring_row *first = last_crash_next(&crash, NULL);
    enum crash_kind kind = first ? last_crash_kind(first) : CRASH_OTHER;
    if (kind == CRASH_SIGNAL) {
        text_puts(out, "Fatal signal");
        add_when(first, out);
        add_signal(first, out);
    } else if (kind == CRASH_EXCEPTION) {
        text_puts(out, "Exception");
        add_when(first, out);
        add_chain(&crash, out);
        add_members(&crash, out);
    }
    return 0;
}

/* ---- locals ---- */

static void add_local(const struct ring_row *row, const char *indent, struct text *out)
{
    uint32_t size;
    bool cut;

    text_puts(out, indent);
    if (ring_text(row, CRASH_NAME, &size, &cut)) {
        last_crash_add(row, CRASH_NAME, "", out);
        text_puts(out, " = ");
    }
    last_crash_add(row, CRASH_VALUE, "?", out);
    text_putc(out, '\n');
}

static void add_head(const struct ring_row *row, struct text *out)
{
    int64_t line = number_of(row, CRASH_LINENO);

    text_printf(out, "#%ld  ", number_of(row, CRASH_DEPTH));
    last_crash_add(row, CRASH_FUNC, "?", out);
    text_puts(out, " (");
    last_crash_add(row, CRASH_FILE, "?", out);
    if (line > 0)
        text_printf(out, ":%ld", line);
    text_puts(out, ")\n");
}

int crash_locals_render(struct file_context *context, struct text *out)
{
    _cleanup_crash_ struct last_crash crash;

    int r = last_crash_read(context->recording, &crash);
    if (r < 0)
        return r;
    for (const struct ring_row *row = NULL; (row = last_crash_next(&crash, row));) {
        enum crash_kind kind = last_crash_kind(row);
        if (kind == CRASH_FRAME)
            add_head(row, out);
        else if (kind == CRASH_LOCAL)
            add_local(row, "    ", out);
    }
    return 0;
}

int crash_frame_locals_render(struct file_context *context, struct text *out)
{
    _cleanup_crash_ struct last_crash crash;

    int r = last_crash_read(context->recording, &crash);
    if (r < 0)
        return r;
    for (const struct ring_row *row = NULL; (row = last_crash_next(&crash, row));)
        if (last_crash_kind(row) == CRASH_LOCAL &&
            number_of(row, CRASH_DEPTH) == (int64_t)context->depth)
            add_local(row, "", out);
    return 0;
}

/* ---- source ---- */

/* A text of a row as a string of its own; NULL: no memory, or too long. A path has no NUL in it. */
static char *copy(const struct ring_row *row, enum crash_column column)
{
    uint32_t size = 0;
    bool cut = false;
    const char *bytes = ring_text(row, column, &size, &cut);
    return cut ? NULL : strndup(bytes ? bytes : "", size);
}

int crash_source_render(struct file_context *context, struct text *out)
{
    _cleanup_crash_ struct last_crash crash;
    _cleanup_(text_deinit) struct text func = TEXT_INIT;
    _cleanup_(text_deinit) struct text file = TEXT_INIT;

    int r = last_crash_read(context->recording, &crash);
    const struct ring_row *row = r == 0 ? last_crash_frame(&crash, context->depth) : NULL;
    if (r < 0 || !row)
        return r;
    last_crash_add(row, CRASH_FUNC, "?", &func);
    last_crash_add(row, CRASH_FILE, "?", &file);
    _cleanup_free_ char *path = copy(row, CRASH_FILE);
    int64_t line = number_of(row, CRASH_LINENO);
    const struct source_place place = {
        .func = func.data ? func.data : "",
        .file = file.data ? file.data : "",
        .path = path ? path : "",
        .line = line > 0 && line < INT_MAX ? (int)line : -1,
    };
    source_add(context, &place, out);
    return 0;
}

/* ---- the rest ---- */

int crash_backtrace_render(struct file_context *context, struct text *out)
{
    recording_add_crash(context->recording, out);
    return 0;
}

static int depths_list(struct file_context *context, struct numbers *out)
{
    _cleanup_crash_ struct last_crash crash;
    size_t n = 0;

    int r = last_crash_read(context->recording, &crash);
    for (const struct ring_row *row = NULL;
         r == 0 && n < DEPTHS_MAX && (row = last_crash_next(&crash, row));) {
        int64_t depth = number_of(row, CRASH_DEPTH);
        if (last_crash_kind(row) != CRASH_FRAME || depth < 0 || depth > INT32_MAX)
            continue;
        n++;
        r = numbers_add(out, (unsigned)depth, NULL);
    }
    return r;
}

static int depths_find(struct file_context *context, unsigned value)
{
    _cleanup_crash_ struct last_crash crash;

    int r = last_crash_read(context->recording, &crash);
    if (r < 0)
        return r;
    return last_crash_frame(&crash, value) ? 0 : -ENOENT;
}

const struct naming crash_depths = {NUMBER_DEPTH, depths_list, depths_find};
