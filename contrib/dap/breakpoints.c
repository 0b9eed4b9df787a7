#include "contrib/dap/breakpoints.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"
#include "fs/base/array.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>

void breakpoints_init(struct breakpoints *breakpoints)
{
    *breakpoints = (struct breakpoints){.fd = -1, .caught = -1};
    pthread_mutex_init(&breakpoints->lock, NULL);
    pthread_cond_init(&breakpoints->added, NULL);
}

static void line_deinit(struct line *line)
{
    free(line->kind);
    free(line->text);
    json_decref(line->shown);
}

void breakpoints_leave(struct breakpoints *breakpoints)
{
    if (breakpoints->fd >= 0)
        close(steal_fd(breakpoints->fd));
    if (breakpoints->caught >= 0)
        close(steal_fd(breakpoints->caught));
}

/* Waits while the number of a new line isn't known. NULL: it is none of ours. The lock is held. */
static struct line *find_line(struct breakpoints *breakpoints, int64_t id, double ts)
{
    for (;;) {
        for (size_t i = 0; i < breakpoints->n; i++) {
            struct line *line = &breakpoints->lines[i];
            if (line->id == id && (!line->gone || ts <= line->gone))
                return line;
        }
        if (!id || !breakpoints->adding)
            return NULL;
        pthread_cond_wait(&breakpoints->added, &breakpoints->lock);
    }
}

static bool is_program(const struct line *line) { return !strcmp(line->kind, "program"); }

struct line_kind breakpoints_find(struct breakpoints *breakpoints, int64_t id, double ts)
{
    _guard_mutex_(&breakpoints->lock);
    const struct line *line = find_line(breakpoints, id, ts);

    if (!line)
        return (struct line_kind){0};
    return (struct line_kind){.is_ours = true,
                              .logs = line->logs,
                              .is_function = !strcmp(line->kind, "function"),
                              .is_program = is_program(line),
                              .is_leaving = !strcmp(line->kind, "exception") &&
                                            strstr(line->text, " leaving own") != NULL,
                              .goes = line->goes};
}

/* Whether one in a state may be hit; behind the state other words may stand. */
static bool is_armed_in(const char *state)
{
    return strncmp(state, "pending", 7) != 0 && strncmp(state, "disabled", 8) != 0;
}

/* Whether a line is armed, as an event has its state. One that has had as many hits as it was to
 * have is as the client wants it; a watch that is done may be of a frame that has returned. */
static bool is_armed_now(const struct line *line, const char *state)
{
    return is_armed_in(state) && (strcmp(line->kind, "data") != 0 || strcmp(state, "done") != 0);
}

/* What is shown of a line in the state that an event has; false: the same as before. */
static bool show_again(struct line *line, const json_t *event)
{
    bool is_armed = is_armed_now(line, member_words(event, "state"));
    json_int_t before = member_number(line->shown, "line"), at = member_number(event, "lineno");
    json_t *note = json_object_get(event, "note");

    at = before && at ? at : before;
    if (is_armed == json_is_true(json_object_get(line->shown, "verified")) && at == before)
        return false;
    json_t *shown = json_pack("{sIsb}", "id", (json_int_t)line->id, "verified", (int)is_armed);
    if (at)
        json_object_set_new(shown, "line", json_integer(at));
    if (json_is_string(note))
        json_object_set(shown, "message", note);
    json_decref(line->shown);
    line->shown = shown;
    return true;
}

json_t *breakpoints_changed(struct session *session, const json_t *event)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    double ts = json_number_value(json_object_get(event, "ts"));
    _guard_mutex_(&breakpoints->lock);
    struct line *line = find_line(breakpoints, member_number(event, "id"), ts);

    if (!line || line->goes)
        return NULL;
    if (!strcmp(member_words(event, "state"), "removed")) { /* not by the client */
        line->goes = true;
        line->gone = ts;
        if (is_program(line))
            return NULL;
        return json_pack("{sss{sIsb}}", "reason", "removed", "breakpoint", "id",
                         (json_int_t)line->id, "verified", 0);
    }
    if (!show_again(line, event) || is_program(line))
        return NULL;
    json_t *shown = json_copy(line->shown);
    json_int_t at = member_number(shown, "line");
    if (at)
        json_object_set_new(shown, "line", json_integer(at - 1 + session->first_line));
    return json_pack("{ssso}", "reason", "changed", "breakpoint", shown);
}

/* ---- the file ---- */

static void write_line(struct session *session, const char *text, struct reply *reply)
{
    int *fd = &session->breakpoints.fd;

    if (*fd < 0)
        *fd = files_open(&session->files, "breakpoints", O_RDWR | O_APPEND);
    files_ask_open(*fd, reply, text);
}

static bool holds(const json_t *stops, int64_t id)
{
    const char *tid;
    json_t *stop;

    json_object_foreach((json_t *)stops, tid,
                        stop) if (member_number(stop, "id") == id) return true;
    return false;
}

/* A line that is to go, and holds nobody; 0: there is none. */
static int64_t next_to_go(struct breakpoints *breakpoints, const json_t *stops)
{
    _guard_mutex_(&breakpoints->lock);

    for (size_t i = 0; i < breakpoints->n; i++) {
        const struct line *line = &breakpoints->lines[i];
        if (line->goes && !line->gone && !holds(stops, line->id))
            return line->id;
    }
    return 0;
}

/* The oldest ones that are gone are forgotten. */
static void set_gone(struct breakpoints *breakpoints, int64_t id)
{
    size_t gone = 0, oldest = 0;
    _guard_mutex_(&breakpoints->lock);

    for (size_t i = breakpoints->n; i-- > 0;) {
        struct line *line = &breakpoints->lines[i];
        if (line->id == id && line->goes && !line->gone)
            line->gone = realtime_s();
        gone += line->gone != 0;
        oldest = line->gone ? i : oldest;
    }
    if (gone <= GONE_MAX)
        return;
    line_deinit(&breakpoints->lines[oldest]);
    memmove(&breakpoints->lines[oldest], &breakpoints->lines[oldest + 1],
            (--breakpoints->n - oldest) * sizeof *breakpoints->lines);
}

static void take_out(struct session *session, const json_t *stops)
{
    char text[32];

    for (int64_t id; (id = next_to_go(&session->breakpoints, stops));) {
        _cleanup_reply_ struct reply reply = {0};
        snprintf(text, sizeof text, "-%lld\n", (long long)id);
        write_line(session, text, &reply);
        set_gone(&session->breakpoints, id);
    }
}

void breakpoints_gone_on(struct session *session)
{
    json_t *stops = session_stops_of_all(session);

    take_out(session, stops);
    json_decref(stops);
}

static void set_adding(struct breakpoints *breakpoints, bool adding)
{
    _guard_mutex_(&breakpoints->lock);

    breakpoints->adding = adding;
    pthread_cond_broadcast(&breakpoints->added);
}

/* The note behind the # of what was set: its state, and what else is to be known. */
static const char *note_of(const char *text)
{
    const char *note = NULL;

    for (const char *p = text; (p = strstr(p, "  # ")); p += 4)
        note = p + 4;
    return note;
}

/* A breakpoint as the client has it. line: the one that it wants, 0: none. */
static json_t *show(int64_t id, const char *text, json_int_t line)
{
    const char *note = note_of(text), *end = note ? note + strcspn(note, "\n") : NULL;
    const char *words = note ? strstr(note, ", ") : NULL,
               *used = note ? strstr(note, "line ") : NULL;
    json_t *shown =
        json_pack("{sIsb}", "id", (json_int_t)id, "verified", note && is_armed_in(note));

    if (used && line && isdigit((unsigned char)used[5]))
        line = atoll(used + 5);
    if (line)
        json_object_set_new(shown, "line", json_integer(line));
    if (words && words < end)
        json_object_set_new(shown, "message", text_of(words + 2, (size_t)(end - words - 2)));
    return shown;
}

/* line: the one that the client wants, 0: none. */
static json_t *refusal(const char *why, json_int_t line)
{
    json_t *shown = json_pack("{sbso}", "verified", 0, "message", text_of(why, strlen(why)));

    if (line)
        json_object_set_new(shown, "line", json_integer(line));
    return shown;
}

/* Puts a line in, in the place of one that the file takes for the same. The lock is held. */
static void put(struct breakpoints *breakpoints, struct line line)
{
    for (size_t i = 0; i < breakpoints->n; i++) {
        struct line *other = &breakpoints->lines[i];
        if (other->id == line.id && !other->gone) {
            line_deinit(other);
            *other = line;
            return;
        }
    }
    if (ARRAY_GROW(breakpoints->lines, breakpoints->alloc, breakpoints->n + 1) == 0)
        breakpoints->lines[breakpoints->n++] = line;
}

static json_t *add(struct session *session, const char *kind, const json_t *wanted)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    const char *text = member_words(wanted, "text");
    _cleanup_reply_ struct reply reply = {0};
    struct line line = {.logs = json_is_true(json_object_get(wanted, "logs"))};

    set_adding(breakpoints, true);
    write_line(session, text, &reply);
    line.id = reply.error ? 0 : strtoll(reply.text, NULL, 10);
    if (line.id > 0) {
        line.kind = strdup(kind);
        line.text = strdup(text);
        line.shown = show(line.id, reply.text, member_number(wanted, "line"));
        _guard_mutex_(&breakpoints->lock);
        if (line.kind && line.text && line.shown)
            put(breakpoints, line);
    }
    set_adding(breakpoints, false);
    if (line.id > 0)
        return json_incref(line.shown);
    _cleanup_free_ char *words = reply_words(&reply);
    return refusal(words ? words : "out of memory", member_number(wanted, "line"));
}

/* Finds the line that is wanted among those that are there; NULL: it isn't. The lock is held. */
static struct line *find_same(struct breakpoints *breakpoints, const char *kind, const char *text)
{
    for (size_t i = 0; i < breakpoints->n; i++) {
        struct line *line = &breakpoints->lines[i];
        if (!line->stays && !line->gone && !strcmp(line->kind, kind) && !strcmp(line->text, text))
            return line;
    }
    return NULL;
}

/* What is shown of the lines that are there already, null for others; those that nobody wants are
 * marked. */
static json_t *keep(struct breakpoints *breakpoints, const char *kind, const json_t *wanted)
{
    json_t *shown = json_array(), *one;
    size_t i;
    _guard_mutex_(&breakpoints->lock);

    json_array_foreach(wanted, i, one)
    {
        struct line *line = find_same(breakpoints, kind, member_words(one, "text"));
        if (line) {
            line->stays = true;
            line->goes = false;
        }
        json_array_append_new(shown, line ? json_incref(line->shown) : json_null());
    }
    for (size_t k = 0; k < breakpoints->n; k++) {
        struct line *line = &breakpoints->lines[k];
        line->goes |= !line->stays && !strcmp(line->kind, kind);
        line->stays = false;
    }
    return shown;
}

json_t *breakpoints_set(struct session *session, const char *kind, const json_t *wanted)
{
    json_t *shown = keep(&session->breakpoints, kind, wanted), *one;
    size_t i;

    breakpoints_gone_on(session);
    json_array_foreach(wanted, i, one)
    {
        const char *why = member_text(one, "why"), *stale = member_text(one, "stale");
        bool is_new = json_is_null(json_array_get(shown, i));
        if (why || (stale && is_new))
            json_array_set_new(shown, i, refusal(why ? why : stale, member_number(one, "line")));
        else if (is_new)
            json_array_set_new(shown, i, add(session, kind, one));
    }
    return json_pack("{so}", "breakpoints", shown);
}

/* ---- what nobody catches ---- */

json_t *breakpoints_catch(struct session *session, bool wanted)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    _cleanup_reply_ struct reply reply = {0};

    if (!wanted && breakpoints->caught >= 0)
        close(steal_fd(breakpoints->caught));
    if (!wanted || breakpoints->caught >= 0)
        return json_pack("{sb}", "verified", 1);
    _cleanup_close_ int fd = files_open(&session->files, "ctl", O_RDWR | O_APPEND);
    if (fd < 0)
        return refusal(strerror(-fd), 0);
    files_ask_open(fd, &reply, "here on-crash stop for " HOLD "\n");
    _cleanup_free_ char *words = reply.error ? reply_words(&reply) : NULL;
    if (words)
        return refusal(words, 0);
    breakpoints->caught = steal_fd(fd);
    return json_pack("{sb}", "verified", 1);
}
