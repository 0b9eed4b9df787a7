#include "contrib/dap/events.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/others.h"
#include "contrib/dap/session.h"

#include <errno.h>
#include <fcntl.h>

/* ---- stops ---- */

/* What the protocol calls a reason. */
static const char *reason_of(const char *reason, bool is_function)
{
    static const struct {
        const char *ours, *theirs;
    } reasons[] = {{"watch", "data breakpoint"}, {"raise", "exception"},
                   {"crash", "exception"},       {"step", "step"},
                   {"return", "step"},           {"pause", "pause"}};

    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (!strcmp(reasons[i].ours, reason))
            return reasons[i].theirs;
    return is_function ? "function breakpoint" : "breakpoint";
}

static void tell_stop(struct session *session, json_t *stop)
{
    const json_t *exception = json_object_get(stop, "exception"), *id = json_object_get(stop, "id");
    const char *returned = member_text(stop, "returned"), *error = member_text(stop, "error");
    _cleanup_free_ char *words = NULL;

    if (!session_hears(session, (pid_t)member_number(stop, "tid"), stop))
        return;
    struct line_kind line = breakpoints_find(&session->breakpoints, json_integer_value(id),
                                             json_number_value(json_object_get(stop, "ts")));
    if (line.goes) { /* the client has taken it back, and isn't told */
        session_order(session, LANE_ACT, "(tidy)", member_number(stop, "tid"),
                      member_number(stop, "stop"));
        return;
    }
    bool is_leaving = session_is_leaving(session, (pid_t)member_number(stop, "tid"));
    if (is_leaving && !strcmp(member_words(stop, "reason"), "step") &&
        !paths_is_own(&session->paths, member_words(stop, "file"))) {
        session_order(session, LANE_ACT, "(to own)", member_number(stop, "tid"),
                      member_number(stop, "stop"));
        return;
    }
    if (!session_stops(session, (pid_t)member_number(stop, "tid"), stop))
        return;
    /* before the client asks, as it nearly always does */
    session_order(session, LANE_LOOK, "(stack)", member_number(stop, "tid"),
                  member_number(stop, "stop"));
    json_t *body = json_pack("{sssIsb}", "reason",
                             reason_of(member_words(stop, "reason"), line.is_function), "threadId",
                             member_number(stop, "tid"), "allThreadsStopped", 0);
    if (line.is_ours && !line.is_program)
        json_object_set_new(body, "hitBreakpointIds", json_pack("[O]", id));
    if (json_is_object(exception)) {
        json_object_set(body, "text", json_object_get(exception, "type"));
        json_object_set(body, "description", json_object_get(exception, "message"));
    } else if (returned && asprintf(&words, "returned %s", returned) >= 0) {
        json_object_set_new(body, "text", text_of(words, strlen(words)));
    } else if (error) {
        json_object_set_new(body, "text", json_string(error));
    }
    session_tell(session, "stopped", body);
}

/* What stands behind a front of a line; NULL: there is no such line. New. */
static json_t *behind(const char *text, const char *front)
{
    size_t size = strlen(front);

    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, front, size))
            return text_of(line + size, strcspn(line + size, "\n"));
    return NULL;
}

/* The stop of a thread as its `ctl` tells it, as `events` would; NULL: it isn't held. New. file: of
 * its innermost frame of Python; NULL: there is none. */
static json_t *read_stop(json_int_t tid, json_t *file, const char *ctl)
{
    static const struct {
        const char *words, *reason;
    } reasons[] = {{"breakpoint ", "breakpoint"}, {"watchpoint ", "watch"},  {"a step", "step"},
                   {"the return", "return"},      {"an exception", "crash"}, {"pause", "pause"}};
    static const char front[] = "stopped by ", number[] = ", stop ";
    const char *why = ctl + sizeof front - 1, *reason = "pause", *found = NULL;

    if (strncmp(ctl, front, sizeof front - 1) != 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (!strncmp(why, reasons[i].words, strlen(reasons[i].words)))
            reason = reasons[i].reason;
    for (const char *p = strstr(ctl, number), *end = strchrnul(ctl, '\n'); p && p < end;
         p = strstr(p + 1, number))
        found = p + sizeof number - 1;
    json_int_t id = *reason == 'b' || *reason == 'w' ? atoll(why + sizeof "breakpoint") : 0;
    json_t *stop = json_pack("{sIsIss}", "tid", tid, "stop", found ? (json_int_t)atoll(found) : 0,
                             "reason", reason);
    json_t *returned = behind(ctl, "-> "), *raised = behind(ctl, "Exception: ");
    json_object_set_new(stop, "id", id ? json_integer(id) : json_null());
    if (file && strcmp(reason, "crash") != 0) /* its stack is gone */
        json_object_set(stop, "file", file);
    if (returned)
        json_object_set_new(stop, "returned", returned);
    if (raised) {
        const char *words = json_string_value(raised), *colon = strstr(words, ": ");
        size_t size = colon ? (size_t)(colon - words) : strlen(words);
        json_t *exception = json_object();
        json_object_set_new(exception, "type", json_stringn(words, size));
        json_object_set_new(exception, "message", json_string(colon ? colon + 2 : ""));
        json_object_set_new(stop, "exception", exception);
        if (*reason == 'b')
            json_object_set_new(stop, "reason", json_string("raise"));
    }
    json_decref(raised);
    return stop;
}

/* Tells of the threads that are held already. */
static void tell_held(struct session *session)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT tid, (SELECT file FROM backtrace WHERE backtrace.tid = "
                               "threads.tid AND frame_type = 'Python' ORDER BY depth LIMIT 1) AS "
                               "file FROM threads WHERE state = 'held'"),
           *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        _cleanup_reply_ struct reply ctl = {0};
        json_int_t tid = member_number(row, "tid");
        files_read(&session->files, &ctl, "threads/%d/ctl", (int)tid);
        json_t *stop = ctl.error ? NULL : read_stop(tid, json_object_get(row, "file"), ctl.text);
        if (stop)
            tell_stop(session, stop);
        json_decref(stop);
    }
    json_decref(rows);
}

static void tell_continue(struct session *session, json_t *event)
{
    json_int_t tid = member_number(event, "tid");

    if (session_goes_on(session, (pid_t)tid)) /* not as the client has asked for it */
        session_tell(session, "continued",
                     json_pack("{sIsb}", "threadId", tid, "allThreadsContinued", 0));
    session_order(session, LANE_ACT, "(tidy)", 0, 0);
}

/* ---- what is logged ---- */

/* What repr() of a str stands for, in place. */
static void unquote(char *text)
{
    size_t n = strlen(text);
    char *to = text;

    if (n < 2 || (text[0] != '\'' && text[0] != '"') || text[n - 1] != text[0])
        return;
    text[n - 1] = '\0';
    for (const char *p = text + 1; *p; p++) {
        static const char escapes[] = "n\nr\rt\t";
        const char *escape = p[0] == '\\' && p[1] ? strchr(escapes, p[1]) : NULL;
        if (escape && (escape - escapes) % 2 == 0)
            *to++ = escape[1], p++;
        else if (p[0] == '\\' && (p[1] == '\\' || p[1] == '\'' || p[1] == '"'))
            *to++ = *++p;
        else
            *to++ = *p;
    }
    *to = '\0';
}

/* A message that a line has logged, as what the program itself would have printed there. */
static void tell_message(struct session *session, const json_t *event, char *text)
{
    _cleanup_free_ char *line = NULL;
    json_int_t at = member_number(event, "lineno");

    unquote(text);
    if (asprintf(&line, "%s\n", text) < 0)
        return;
    session_tell(session, "output",
                 json_pack("{sssososI}", "category", "stdout", "output",
                           text_of(line, strlen(line)), "source",
                           paths_source(&session->paths, member_words(event, "file")), "line",
                           at - 1 + session->first_line));
}

/* What a line that logs has captured: its message, which is an f-string. */
static void tell_hit(struct session *session, json_t *event)
{
    json_t *captured = json_object_get(event, "captured"), *value;
    const char *name, *error = member_text(event, "error");
    struct line_kind line = breakpoints_find(&session->breakpoints, member_number(event, "id"),
                                             json_number_value(json_object_get(event, "ts")));
    _cleanup_free_ char *words = NULL;

    if (line.is_ours && error &&
        asprintf(&words, "[breakpoint %lld: %s]", (long long)member_number(event, "id"), error) >=
            0)
        session_say(session, words);
    if (!line.logs || error)
        return;
    json_object_foreach(captured, name, value)
    {
        _cleanup_free_ char *text = strdup(json_is_string(value) ? json_string_value(value) : "");
        if (text)
            tell_message(session, event, text);
    }
}

static void tell_breakpoint(struct session *session, json_t *event)
{
    json_t *body = breakpoints_changed(session, event);

    if (body)
        session_tell(session, "breakpoint", body);
}

static void tell_thread(struct session *session, json_t *event)
{
    bool begins = !strcmp(member_words(event, "state"), "begin");

    session_tell(session, "thread",
                 json_pack("{sssI}", "reason", begins ? "started" : "exited", "threadId",
                           member_number(event, "tid")));
}

static void tell_child(struct session *session, json_t *event)
{
    others_child(session, member_number(event, "child"));
}

/* probing.event(). */
static void tell_event(struct session *session, json_t *event)
{
    _cleanup_free_ char *attrs = json_dumps(json_object_get(event, "attrs"), JSON_ENCODE_ANY),
                        *words = NULL;

    if (asprintf(&words, "%s %s", member_words(event, "name"), attrs ? attrs : "") >= 0)
        session_say(session, words);
}

/* ---- */

/* False: it was the last one. */
static bool tell(struct session *session, json_t *event)
{
    static const struct {
        const char *kind;
        void (*tell)(struct session *session, json_t *event);
    } kinds[] = {{"stop", tell_stop},   {"continue", tell_continue},     {"hit", tell_hit},
                 {"event", tell_event}, {"breakpoint", tell_breakpoint}, {"thread", tell_thread},
                 {"child", tell_child}};
    const char *kind = member_words(event, "kind");

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (!strcmp(kinds[i].kind, kind))
            kinds[i].tell(session, event);
    if (!strcmp(kind, "lost")) {
        session_say(session, "[events were lost: more happened than could be told]");
        tell_held(session);
    }
    if (!strcmp(kind, "detach"))
        session_hears_anew(session);
    if (!strcmp(kind, "exec"))
        session_say(session, "[it executes another program now: attach again]");
    if (!strcmp(kind, "exit"))
        session_tell(session, "exited",
                     json_pack("{sI}", "exitCode", member_number(event, "status")));
    return strcmp(kind, "exit") != 0 && strcmp(kind, "exec") != 0;
}

static void *hear(void *arg)
{
    struct session *session = arg;
    FILE *events = fdopen(session->events, "r");
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    bool goes_on = events != NULL;

    tell_held(session);
    while (goes_on && getline(&line, &room, events) > 0) {
        json_t *event = json_loads(line, 0, NULL);
        goes_on = !json_is_object(event) || tell(session, event);
        json_decref(event);
    }
    if (events)
        fclose(events);
    if (goes_on)
        session_say(session, "[probefs is no longer mounted: all that was held goes on]");
    session_tell(session, "terminated", NULL);
    return NULL;
}

int events_begin(struct session *session)
{
    pthread_t thread;
    int r = pthread_create(&thread, NULL, hear, session);

    if (r == 0)
        pthread_detach(thread);
    return -r;
}
