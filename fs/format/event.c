#include "fs/format/event.h"

#include "agent/base/clock.h"
#include "fs/recording/ring_reader.h"
#include "schema/schema.h"

#include <math.h>
#include <signal.h>
#include <string.h>

static bool is_time(double ts) { return isfinite(ts) && fabs(ts) < 1e15; }

static void add_time(struct text *out, double ts)
{
    if (is_time(ts))
        text_printf(out, "{\"ts\": %.6f", ts);
    else
        text_puts(out, "{\"ts\": null");
}

static void begin(struct text *out, double ts, const char *kind, pid_t pid)
{
    add_time(out, ts);
    text_printf(out, ", \"kind\": \"%s\", \"pid\": %d", kind, (int)pid);
}

/* Whether it is one object and can't break out of its line: a target may have written anything. */
static bool is_object(const char *bytes, size_t size)
{
    bool string = false;
    size_t depth = 0;

    for (size_t i = 0, n; i < size; i += n) {
        char c = bytes[i];
        n = utf8_length((const unsigned char *)bytes + i, size - i);
        if (!n || (unsigned char)c < ' ' || (i == 0 && c != '{'))
            return false;
        if (string && c == '\\' && i + 1 < size && bytes[i + 1] >= ' ')
            n = 2;
        else if (c == '"')
            string = !string;
        else if (!string && (c == '{' || c == '['))
            depth++;
        else if (!string && (c == '}' || c == ']') && --depth == 0)
            return c == '}' && i + 1 == size;
    }
    return false;
}

/* `"name": value`, the first of an object. */
static void add_member(struct text *out, const char *name, const struct ring_row *row,
                       unsigned column, bool object)
{
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    text_printf(out, "\"%s\": ", name);
    if (!bytes)
        text_puts(out, "null");
    else if (object && !cut && is_object(bytes, size))
        text_add(out, bytes, size);
    else
        text_add_json(out, bytes, size);
}

static void add_text(struct text *out, const char *name, const struct ring_row *row,
                     unsigned column, bool object)
{
    text_puts(out, ", ");
    add_member(out, name, row, column, object);
}

static void add_integer(struct text *out, const char *name, const struct ring_row *row,
                        unsigned column)
{
    int64_t value;

    text_printf(out, ", \"%s\": ", name);
    if (ring_integer(row, column, &value))
        text_printf(out, "%ld", (long)value);
    else
        text_puts(out, "null");
}

void event_text_row(pid_t pid, const struct ring_row *row, struct text *out)
{
    add_time(out, ring_real(row, EVENTS_TS));
    add_text(out, "kind", row, EVENTS_KIND, false);
    text_printf(out, ", \"pid\": %d", (int)pid);
    add_integer(out, "tid", row, EVENTS_TID);
    add_text(out, "name", row, EVENTS_NAME, false);
    add_text(out, "task", row, EVENTS_TASK, false);
    add_integer(out, "span", row, EVENTS_SPAN);
    add_text(out, "attrs", row, EVENTS_ATTRS, true);
    text_puts(out, "}\n");
}

/* Begins an event with where a thread was, and why: what hits, stops and their ends have in
 * common. */
static void begin_hit(struct text *out, double ts, const char *kind, pid_t pid,
                      const struct ring_row *row)
{
    begin(out, ts, kind, pid);
    add_integer(out, "tid", row, HITS_TID);
    add_integer(out, "id", row, HITS_ID);
}

static bool is_null(const struct ring_row *row, unsigned column) { return !row->words[column]; }

static void add_place(struct text *out, const struct ring_row *row)
{
    add_text(out, "func", row, HITS_FUNC, false);
    add_text(out, "file", row, HITS_FILE, false);
    add_integer(out, "lineno", row, HITS_LINENO);
}

void event_text_hit(pid_t pid, const struct ring_row *row, struct text *out)
{
    begin_hit(out, ring_real(row, HITS_TS), "hit", pid, row);
    add_integer(out, "hit", row, HITS_HIT);
    add_place(out, row);
    add_text(out, "stack", row, HITS_STACK, false);
    add_text(out, "captured", row, HITS_CAPTURED, true);
    add_text(out, "old_value", row, HITS_OLD_VALUE, false);
    add_text(out, "new_value", row, HITS_NEW_VALUE, false);
    add_integer(out, "address", row, HITS_ADDRESS);
    add_text(out, "error", row, HITS_ERROR, false);
    text_puts(out, "}\n");
}

void event_text_stop(pid_t pid, const struct ring_row *row, struct text *out)
{
    begin_hit(out, ring_real(row, HITS_TS), "stop", pid, row);
    add_integer(out, "stop", row, HITS_STOP);
    add_text(out, "reason", row, HITS_REASON, false);
    add_place(out, row);
    add_text(out, "captured", row, HITS_CAPTURED, true);
    add_text(out, "returned", row, HITS_RETURNED, false);
    if (is_null(row, HITS_EXCEPTION)) {
        text_puts(out, ", \"exception\": null");
    } else {
        text_puts(out, ", \"exception\": {");
        add_member(out, "type", row, HITS_EXCEPTION, false);
        text_puts(out, ", ");
        add_member(out, "message", row, HITS_MESSAGE, false);
        text_puts(out, "}");
    }
    add_text(out, "error", row, HITS_ERROR, false);
    text_puts(out, "}\n");
}

static bool is_word(const struct ring_row *row, unsigned column, const char *word)
{
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    return bytes && size == strlen(word) && !memcmp(bytes, word, size);
}

bool event_text_crash(pid_t pid, const struct ring_row *row, struct text *out)
{
    if (!is_word(row, CRASH_KIND, "exception") && !is_word(row, CRASH_KIND, "signal"))
        return false;
    begin(out, ring_real(row, CRASH_TS), "crash", pid);
    add_integer(out, "tid", row, CRASH_TID);
    add_integer(out, "crash", row, CRASH_CRASH);
    add_text(out, "type", row, CRASH_NAME, false);
    add_text(out, "message", row, CRASH_VALUE, false);
    add_text(out, "func", row, CRASH_FUNC, false);
    add_text(out, "file", row, CRASH_FILE, false);
    add_integer(out, "lineno", row, CRASH_LINENO);
    text_puts(out, "}\n");
    return true;
}

void event_text_blocked(pid_t pid, const struct ring_row *row, struct text *out)
{
    double duration = ring_real(row, LOOP_DURATION);

    begin(out, ring_real(row, LOOP_TS), "blocked", pid);
    add_integer(out, "tid", row, LOOP_TID);
    if (is_time(duration))
        text_printf(out, ", \"duration\": %.6f", duration);
    else
        text_puts(out, ", \"duration\": null");
    add_text(out, "task", row, LOOP_TASK, false);
    add_text(out, "coro", row, LOOP_CORO, false);
    add_text(out, "func", row, LOOP_FUNC, false);
    add_text(out, "file", row, LOOP_FILE, false);
    add_integer(out, "lineno", row, LOOP_LINENO);
    add_text(out, "stack", row, LOOP_STACK, false);
    text_puts(out, "}\n");
}

void event_text_breakpoint(pid_t pid, const struct ring_row *row, struct text *out)
{
    begin(out, ring_real(row, BREAKPOINTS_CHANGED), "breakpoint", pid);
    add_integer(out, "id", row, BREAKPOINTS_ID);
    add_text(out, "breakpoint", row, BREAKPOINTS_BREAKPOINT, false);
    add_text(out, "state", row, BREAKPOINTS_STATE, false);
    add_integer(out, "lineno", row, BREAKPOINTS_LINENO);
    add_text(out, "note", row, BREAKPOINTS_NOTE, false);
    text_puts(out, "}\n");
}

void event_text_thread(pid_t pid, pid_t tid, bool begins, const char *name, struct text *out)
{
    begin(out, realtime_s(), "thread", pid);
    text_printf(out, ", \"tid\": %d, \"state\": \"%s\", \"name\": ", (int)tid,
                begins ? "begin" : "end");
    if (*name)
        text_add_json(out, name, strlen(name));
    else
        text_puts(out, "null");
    text_puts(out, "}\n");
}

void event_text_child(pid_t pid, pid_t child, struct text *out)
{
    begin(out, realtime_s(), "child", pid);
    text_printf(out, ", \"child\": %d}\n", (int)child);
}

void event_text_agent(pid_t pid, bool attached, struct text *out)
{
    begin(out, realtime_s(), attached ? "attach" : "detach", pid);
    text_puts(out, "}\n");
}

void event_text_end(pid_t pid, const struct ending *ending, struct text *out)
{
    double ts = timespec_s(&ending->when);

    if (ending->how == ENDING_EXECUTED) {
        begin(out, ts, "exec", pid);
        text_puts(out, "}\n");
        return;
    }
    begin(out, ts, "exit", pid);
    if (ending->how == ENDING_EXITED)
        text_printf(out, ", \"status\": %d, \"signal\": null, \"name\": null}\n", ending->number);
    else if (ending->how == ENDING_KILLED && sigabbrev_np(ending->number))
        text_printf(out, ", \"status\": null, \"signal\": %d, \"name\": \"SIG%s\"}\n",
                    ending->number, sigabbrev_np(ending->number));
    else if (ending->how == ENDING_KILLED)
        text_printf(out, ", \"status\": null, \"signal\": %d, \"name\": null}\n", ending->number);
    else
        text_puts(out, ", \"status\": null, \"signal\": null, \"name\": null}\n");
}

void event_text_lost(pid_t pid, uint64_t count, struct text *out)
{
    begin(out, realtime_s(), "lost", pid);
    text_printf(out, ", \"count\": %lu}\n", (unsigned long)count);
}
