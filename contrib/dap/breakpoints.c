#include "contrib/dap/breakpoints.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"
#include "fs/base/array.h"

#include <ctype.h>
#include <errno.h>

void breakpoints_init(struct breakpoints *breakpoints)
{
    *breakpoints = (struct breakpoints){0};
    pthread_mutex_init(&breakpoints->lock, NULL);
    pthread_cond_init(&breakpoints->added, NULL);
}

static void line_deinit(struct line *line)
{
    free(line->kind);
    free(line->text);
    json_decref(line->shown);
}

void breakpoints_deinit(struct breakpoints *breakpoints)
{
    while (breakpoints->n)
        line_deinit(&breakpoints->lines[--breakpoints->n]);
    free(breakpoints->lines);
    free(breakpoints->on_crash);
    pthread_cond_destroy(&breakpoints->added);
    pthread_mutex_destroy(&breakpoints->lock);
}

struct line_kind breakpoints_find(struct breakpoints *breakpoints, int64_t id, double ts)
{
    _guard_mutex_(&breakpoints->lock);

    for (;;) {
        for (size_t i = 0; i < breakpoints->n; i++) {
            const struct line *line = &breakpoints->lines[i];
            if (line->id == id && (!line->gone || ts <= line->gone))
                return (struct line_kind){.is_ours = true,
                                          .logs = line->logs,
                                          .is_function = !strcmp(line->kind, "function"),
                                          .goes = line->goes};
        }
        if (!id || !breakpoints->adding)
            return (struct line_kind){0};
        pthread_cond_wait(&breakpoints->added, &breakpoints->lock);
    }
}

/* ---- the file ---- */

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
        files_ask(&session->files, &reply, text, "breakpoints");
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

/* As the client has it. line: the one that it wants, 0: none. */
static json_t *show(int64_t id, const char *text, json_int_t line)
{
    const char *note = note_of(text), *end = note ? note + strcspn(note, "\n") : NULL;
    const char *words = note ? strstr(note, ", ") : NULL,
               *used = note ? strstr(note, "line ") : NULL;
    json_t *shown = json_pack("{sIsb}", "id", (json_int_t)id, "verified",
                              note && strncmp(note, "pending", 7) != 0);

    if (used && line && isdigit((unsigned char)used[5]))
        line = atoll(used + 5);
    if (line)
        json_object_set_new(shown, "line", json_integer(line));
    if (words && words < end)
        json_object_set_new(shown, "message", text_of(words + 2, (size_t)(end - words - 2)));
    return shown;
}

static json_t *refusal(const char *why)
{
    return json_pack("{sbso}", "verified", 0, "message", text_of(why, strlen(why)));
}

static json_t *add(struct session *session, const char *kind, const json_t *wanted)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    const char *text = member_words(wanted, "text");
    _cleanup_reply_ struct reply reply = {0};
    struct line line = {.logs = json_is_true(json_object_get(wanted, "logs"))};

    set_adding(breakpoints, true);
    files_ask(&session->files, &reply, text, "breakpoints");
    line.id = reply.error ? 0 : strtoll(reply.text, NULL, 10);
    if (line.id > 0) {
        line.kind = strdup(kind);
        line.text = strdup(text);
        line.shown = show(line.id, reply.text, member_number(wanted, "line"));
        _guard_mutex_(&breakpoints->lock);
        if (line.kind && line.text && line.shown &&
            ARRAY_GROW(breakpoints->lines, breakpoints->alloc, breakpoints->n + 1) == 0)
            breakpoints->lines[breakpoints->n++] = line;
    }
    set_adding(breakpoints, false);
    if (line.id > 0)
        return json_incref(line.shown);
    _cleanup_free_ char *words = reply_words(&reply);
    return refusal(words ? words : "out of memory");
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
        const char *why = member_text(one, "why");
        if (why)
            json_array_set_new(shown, i, refusal(why));
        else if (json_is_null(json_array_get(shown, i)))
            json_array_set_new(shown, i, add(session, kind, one));
    }
    return json_pack("{so}", "breakpoints", shown);
}

/* ---- what nobody catches ---- */

static const char front[] = "OnCrash: ";

static char *read_on_crash(struct session *session)
{
    _cleanup_reply_ struct reply reply = {0};

    files_read(&session->files, &reply, "ctl");
    const char *found = reply.error ? NULL : strstr(reply.text, front);
    return found ? strndup(found + sizeof front - 1, strcspn(found + sizeof front - 1, "\n"))
                 : strdup("off");
}

static int write_on_crash(struct session *session, const char *what, struct reply *reply)
{
    _cleanup_free_ char *text = NULL;

    if (asprintf(&text, "on-crash %s\n", what) < 0)
        return -ENOMEM;
    files_ask(&session->files, reply, text, "ctl");
    return -reply->error;
}

json_t *breakpoints_catch(struct session *session, bool wanted)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    _cleanup_reply_ struct reply reply = {0};
    int r = 0;

    if (wanted && !breakpoints->on_crash) {
        _cleanup_free_ char *before = read_on_crash(session);
        r = write_on_crash(session, "stop", &reply);
        breakpoints->on_crash = r == 0 ? steal_pointer(before) : NULL;
        breakpoints->has_caught |= r == 0;
    } else if (!wanted && breakpoints->on_crash) {
        write_on_crash(session, breakpoints->on_crash, &reply);
        free(steal_pointer(breakpoints->on_crash));
    }
    _cleanup_free_ char *words = r < 0 ? reply_words(&reply) : NULL;
    return words ? refusal(words) : json_pack("{sb}", "verified", 1);
}

void breakpoints_leave(struct session *session)
{
    struct breakpoints *breakpoints = &session->breakpoints;
    json_t *nothing = json_object();

    for (size_t i = 0; i < breakpoints->n; i++)
        breakpoints->lines[i].goes = true;
    take_out(session, nothing);
    json_decref(nothing);
    json_decref(breakpoints_catch(session, false));
}
