#include "contrib/dap/session.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/message.h"

#include <errno.h>
#include <stdarg.h>

static json_t *checked(json_t *made)
{
    if (made)
        return made;
    fputs("probefs-dap: out of memory\n", stderr);
    exit(1);
}

static void send_message(struct session *session, json_t *message)
{
    _guard_mutex_(&session->out_lock);

    json_object_set_new(message, "seq", json_integer(++session->seq));
    message_write(session->out, message); /* a client that has left is seen by the reader */
    json_decref(message);
}

void session_tell(struct session *session, const char *event, json_t *body)
{
    json_t *message = checked(json_pack("{ssss}", "type", "event", "event", event));

    if (body)
        json_object_set_new(message, "body", body);
    send_message(session, message);
}

void session_ask(struct session *session, const char *command, json_t *arguments)
{
    send_message(session, checked(json_pack("{ssssso}", "type", "request", "command", command,
                                            "arguments", checked(arguments))));
}

void session_say(struct session *session, const char *words)
{
    _cleanup_free_ char *line = NULL;

    if (asprintf(&line, "%s\n", words) >= 0)
        session_tell(session, "output",
                     json_pack("{ssso}", "category", "console", "output",
                               text_of(line, strlen(line))));
}

void session_answer(struct session *session, const json_t *request, json_t *body, const char *why)
{
    json_t *message = checked(
        json_pack("{sssOsOsb}", "type", "response", "request_seq", json_object_get(request, "seq"),
                  "command", json_object_get(request, "command"), "success", body != NULL));

    why = why ? why : "out of memory";
    if (!body)
        json_object_set_new(message, "message", text_of(why, strlen(why)));
    if (!body) /* which is what clients show */
        body = json_pack("{s{sisssbs{so}}}", "error", "id", 1, "format", "{words}", "showUser", 1,
                         "variables", "words", text_of(why, strlen(why)));
    json_object_set_new(message, "body", body);
    send_message(session, message);
}

json_t *request_fail(char **why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (vasprintf(why, format, args) < 0)
        *why = NULL;
    va_end(args);
    return NULL;
}

json_t *request_fail_by(const struct reply *reply, char **why)
{
    *why = reply_words(reply);
    return NULL;
}

/* ---- threads that are held ---- */

struct name {
    char text[24];
};

static struct name name_of(pid_t tid)
{
    struct name name;

    snprintf(name.text, sizeof name.text, "%d", (int)tid);
    return name;
}

bool session_hears(struct session *session, pid_t tid, const json_t *stop)
{
    struct name name = name_of(tid);
    json_int_t number = member_number(stop, "stop");
    _guard_mutex_(&session->lock);

    if (number && number <= member_number(session->news, name.text))
        return false;
    json_object_set_new(session->news, name.text, json_integer(number));
    return true;
}

void session_hears_anew(struct session *session)
{
    _guard_mutex_(&session->lock);

    json_object_clear(session->news);
}

bool session_stops(struct session *session, pid_t tid, json_t *stop)
{
    struct name name = name_of(tid);
    _guard_mutex_(&session->lock);

    const json_t *known = json_object_get(session->stops, name.text);
    if (known && member_number(known, "stop") >= member_number(stop, "stop"))
        return false;
    json_object_set(session->stops, name.text, stop);
    return true;
}

bool session_goes_on(struct session *session, pid_t tid)
{
    session_moves(session, tid);
    _guard_mutex_(&session->lock);
    return json_object_del(session->stops, name_of(tid).text) == 0;
}

void session_moves(struct session *session, pid_t tid)
{
    places_forget(&session->places, tid);
    _guard_mutex_(&session->lock);
    json_object_del(session->stacks, name_of(tid).text);
}

json_t *session_stop_of(struct session *session, pid_t tid)
{
    _guard_mutex_(&session->lock);

    return json_incref(json_object_get(session->stops, name_of(tid).text));
}

json_t *session_stops_of_all(struct session *session)
{
    _guard_mutex_(&session->lock);

    return checked(json_copy(session->stops));
}

bool session_is_leaving(struct session *session, pid_t tid)
{
    _guard_mutex_(&session->lock);

    return json_object_del(session->leaving, name_of(tid).text) == 0;
}

void session_leaves(struct session *session, pid_t tid)
{
    _guard_mutex_(&session->lock);

    json_object_set_new(session->leaving, name_of(tid).text, json_true());
}

json_t *session_stack(struct session *session, pid_t tid)
{
    _guard_mutex_(&session->lock);

    return json_incref(json_object_get(session->stacks, name_of(tid).text));
}

void session_keep_stack(struct session *session, pid_t tid, const json_t *stop, json_t *frames)
{
    _guard_mutex_(&session->lock);

    if (json_object_get(session->stops, name_of(tid).text) == stop)
        json_object_set(session->stacks, name_of(tid).text, frames);
}

/* ---- its life ---- */

void session_order(struct session *session, enum lane_kind lane, const char *command,
                   json_int_t tid, json_int_t stop)
{
    json_t *order = checked(
        json_pack("{sss{sIsI}}", "command", command, "arguments", "threadId", tid, "stop", stop));

    lane_add(&session->lanes[lane], order);
    json_decref(order);
}

static void serve(void *arg, json_t *request) { requests_serve(arg, request); }

static struct session *session_new(const char *mount, int out)
{
    struct session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    session->mount = mount;
    session->out = out;
    session->events = -1;
    session->first_line = 1;
    pthread_mutex_init(&session->out_lock, NULL);
    pthread_mutex_init(&session->lock, NULL);
    files_init(&session->files);
    paths_init(&session->paths);
    places_init(&session->places);
    breakpoints_init(&session->breakpoints);
    motion_init(&session->motion);
    modules_init(&session->modules);
    session->stops = checked(json_object());
    session->stacks = checked(json_object());
    session->news = checked(json_object());
    session->leaving = checked(json_object());
    for (int i = 0; i < LANES; i++)
        if (lane_start(&session->lanes[i], serve, session) < 0)
            return NULL;
    return session;
}

/* `cancel` of a request, which nothing may hold up. */
static void cancel(struct session *session, const json_t *request)
{
    json_int_t seq = member_number(json_object_get(request, "arguments"), "requestId");

    for (int i = 0; i < LANES; i++) {
        json_t *waited = lane_cancel(&session->lanes[i], seq);
        if (waited)
            session_answer(session, waited, NULL, "cancelled");
        json_decref(waited);
    }
    session_answer(session, request, json_object(), NULL);
}

/* False: it was the last one. */
static bool take(struct session *session, json_t *request)
{
    const char *type = member_text(request, "type"), *command = member_text(request, "command");

    if (!type || strcmp(type, "request") != 0 || !command)
        return true;
    if (!strcmp(command, "disconnect"))
        return false;
    if (!strcmp(command, "cancel"))
        cancel(session, request);
    else
        lane_add(&session->lanes[requests_lane(command)], request);
    return true;
}

/* Leaves the process as if nobody had been there: what it has set lives as long as its files. */
static void leave(struct session *session)
{
    for (int i = 0; i < LANES; i++)
        lane_stop(&session->lanes[i]);
    breakpoints_leave(&session->breakpoints);
    motion_leave(&session->motion);
}

void session_run(const char *mount, FILE *in, int out)
{
    struct session *session = session_new(mount, out);
    json_t *request = NULL;
    bool goes_on = session != NULL;

    while (goes_on) {
        int r = message_read(in, &request);
        if (r == -EBADMSG)
            continue;
        if (r < 0)
            break;
        goes_on = take(session, request);
        if (goes_on)
            json_decref(steal_pointer(request));
    }
    if (!session)
        return;
    leave(session);
    if (request) /* to disconnect */
        session_answer(session, request, json_object(), NULL);
    json_decref(request);
}
