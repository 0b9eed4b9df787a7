#include "contrib/dap/motion.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"

#include <errno.h>

static pid_t tid_of(const json_t *arguments) { return (pid_t)member_number(arguments, "threadId"); }

static json_t *fail_running(pid_t tid, char **why)
{
    return request_fail(why, "thread %d isn't stopped", (int)tid);
}

static void write_verb(struct session *session, pid_t tid, const char *verb, struct reply *reply)
{
    char text[40];

    snprintf(text, sizeof text, "%s\n", verb);
    if (tid)
        files_ask(&session->files, reply, text, "threads/%d/ctl", (int)tid);
    else
        files_ask(&session->files, reply, text, "ctl");
}

/* Has a thread go on; where it refuses, and is held still, its stop stands as before. */
static void give(struct session *session, pid_t tid, const char *verb, struct reply *reply)
{
    json_t *stop = session_stop_of(session, tid);
    _cleanup_reply_ struct reply state = {0};

    session_goes_on(session, tid);
    write_verb(session, tid, verb, reply);
    if (reply->error && stop) {
        files_read(&session->files, &state, "threads/%d/ctl", (int)tid);
        if (!state.error && !strncmp(state.text, "stopped", 7))
            session_stops(session, tid, stop);
    }
    json_decref(stop);
}

/* A step was answered already: the client learns that the thread is where it was. */
static void step(struct session *session, pid_t tid, const char *verb)
{
    _cleanup_reply_ struct reply reply = {0};

    session_gives(session, tid);
    give(session, tid, verb, &reply);
    breakpoints_gone_on(session);
    _cleanup_free_ char *words = reply.error ? reply_words(&reply) : NULL;
    if (!words)
        return;
    session_say(session, words);
    session_tell(session, "stopped",
                 json_pack("{sssIsbso}", "reason", "step", "threadId", (json_int_t)tid,
                           "allThreadsStopped", 0, "text", text_of(words, strlen(words))));
}

json_t *motion_step(struct session *session, const json_t *arguments, char **why)
{
    json_t *stop = session_stop_of(session, tid_of(arguments));

    json_decref(stop);
    return stop ? json_object() : fail_running(tid_of(arguments), why);
}

void motion_next_after(struct session *session, const json_t *arguments)
{
    step(session, tid_of(arguments), "next");
}

void motion_in_after(struct session *session, const json_t *arguments)
{
    step(session, tid_of(arguments), session->own_code ? "step own" : "step");
}

void motion_out_after(struct session *session, const json_t *arguments)
{
    step(session, tid_of(arguments), "finish");
}

json_t *motion_pause(struct session *session, const json_t *arguments, char **why)
{
    return json_object();
}

void motion_pause_after(struct session *session, const json_t *arguments)
{
    _cleanup_reply_ struct reply reply = {0};

    session_gives(session, tid_of(arguments));
    write_verb(session, tid_of(arguments), "pause", &reply);
    _cleanup_free_ char *words = reply.error ? reply_words(&reply) : NULL;
    if (words)
        session_say(session, words);
}

/* Without a thread all that are held go on. */
json_t *motion_continue(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    pid_t tid = tid_of(arguments);
    const char *name;
    json_t *stop;

    if (!tid) {
        json_t *stops = session_stops_of_all(session);
        json_object_foreach(stops, name, stop)
            session_goes_on(session, (pid_t)member_number(stop, "tid"));
        json_decref(stops);
    }
    give(session, tid, "continue", &reply);
    breakpoints_gone_on(session);
    return reply.error ? request_fail_by(&reply, why)
                       : json_pack("{sb}", "allThreadsContinued", !tid);
}

void motion_tidy(struct session *session, const json_t *arguments)
{
    _cleanup_reply_ struct reply reply = {0};

    breakpoints_gone_on(session);
    if (tid_of(arguments)) /* unless that has let it go */
        write_verb(session, tid_of(arguments), "continue", &reply);
}

/* ---- to another line ---- */

json_t *motion_goto_targets(struct session *session, const json_t *arguments, char **why)
{
    char *name = paths_remote(&session->paths, json_object_get(arguments, "source"));
    json_int_t line = member_number(arguments, "line");

    if (!name)
        return request_fail(why, "gotoTargets wants a source");
    const struct place target = {.kind = PLACE_TARGET,
                                 .depth = (int)(line + 1 - session->first_line),
                                 .path = name};
    return json_pack("{s[{sIsssI}]}", "targets", "id",
                     (json_int_t)places_add(&session->places, target), "label", "this line", "line",
                     line);
}

json_t *motion_goto(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    _cleanup_place_ struct place target = {0};
    pid_t tid = tid_of(arguments);
    char text[40];

    if (!places_find(&session->places, member_number(arguments, "targetId"), &target) ||
        target.kind != PLACE_TARGET)
        return request_fail(why, "there is no such target: ask for gotoTargets first");
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT file FROM backtrace WHERE tid = %d AND depth = 0", (int)tid);
    bool is_same =
        paths_are_same(&session->paths, member_text(json_array_get(rows, 0), "file"), target.path);
    json_decref(rows);
    if (!is_same)
        return request_fail(why, "a thread can jump only within the function that it is in");
    reply_deinit(&reply);
    snprintf(text, sizeof text, "jump %d\n", target.depth);
    files_ask(&session->files, &reply, text, "threads/%d/ctl", (int)tid);
    return reply.error ? request_fail_by(&reply, why) : json_object();
}

/* It has neither gone on nor stopped, as `events` has it; to a client it has. */
void motion_goto_after(struct session *session, const json_t *arguments)
{
    json_int_t tid = tid_of(arguments);

    session_moves(session, (pid_t)tid);
    session_tell(session, "continued",
                 json_pack("{sIsb}", "threadId", tid, "allThreadsContinued", 0));
    session_tell(session, "stopped",
                 json_pack("{sssIsb}", "reason", "goto", "threadId", tid, "allThreadsStopped", 0));
}

/* ---- the end ---- */

void motion_leave(struct session *session)
{
    json_t *stops = session_stops_of_all(session), *stop;
    const char *name;

    json_object_foreach(stops, name, stop)
    {
        _cleanup_reply_ struct reply reply = {0};
        if (session_holds(session, stop))
            write_verb(session, (pid_t)member_number(stop, "tid"), "continue", &reply);
    }
    json_decref(stops);
}
