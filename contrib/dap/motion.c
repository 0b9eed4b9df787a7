#include "contrib/dap/motion.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"
#include "fs/base/array.h"

#include <errno.h>
#include <fcntl.h>

static pid_t tid_of(const json_t *arguments) { return (pid_t)member_number(arguments, "threadId"); }

static json_t *fail_running(pid_t tid, char **why)
{
    return request_fail(why, "thread %d isn't stopped", (int)tid);
}

void motion_init(struct motion *motion) { *motion = (struct motion){.all = -1}; }

void motion_leave(struct motion *motion)
{
    if (motion->all >= 0)
        close(steal_fd(motion->all));
    while (motion->n)
        close(motion->threads[--motion->n].fd);
    free(motion->threads);
}

/* The file of a thread, 0: of all; -errno. */
static int file_of(struct session *session, pid_t tid)
{
    struct motion *motion = &session->motion;
    char name[40];

    if (!tid) {
        if (motion->all < 0)
            motion->all = files_open(&session->files, "ctl", O_RDWR | O_APPEND);
        return motion->all;
    }
    for (size_t i = 0; i < motion->n; i++)
        if (motion->threads[i].tid == tid)
            return motion->threads[i].fd;
    snprintf(name, sizeof name, "threads/%d/ctl", (int)tid);
    int fd = files_open(&session->files, name, O_RDWR | O_APPEND);
    if (fd >= 0 && ARRAY_GROW(motion->threads, motion->alloc, motion->n + 1) == 0)
        motion->threads[motion->n++] = (struct thread_file){tid, fd};
    return fd;
}

static void forget(struct motion *motion, pid_t tid)
{
    for (size_t i = 0; i < motion->n; i++)
        if (motion->threads[i].tid == tid) {
            close(motion->threads[i].fd);
            motion->threads[i] = motion->threads[--motion->n];
            return;
        }
}

static void write_verb(struct session *session, pid_t tid, const char *verb, struct reply *reply)
{
    char text[40];

    snprintf(text, sizeof text, "%s\n", verb);
    reply_deinit(reply);
    files_ask_open(file_of(session, tid), reply, text);
}

/* Whether a thread is held there, still. */
static bool is_held(struct session *session, pid_t tid, const json_t *stop)
{
    _cleanup_reply_ struct reply state = {0};
    char number[40];

    files_read(&session->files, &state, "threads/%d/ctl", (int)tid);
    snprintf(number, sizeof number, ", stop %lld,", (long long)member_number(stop, "stop"));
    return !state.error && !strncmp(state.text, "stopped", 7) && strstr(state.text, number);
}

/* Has a thread, 0: each, go on. Whether it hasn't: then *reply has the words, and its stop stands
 * as before. */
static bool give(struct session *session, pid_t tid, const char *verb, struct reply *reply)
{
    json_t *stop = session_stop_of(session, tid);
    bool stays = false;

    session_goes_on(session, tid);
    write_verb(session, tid, verb, reply);
    if (reply->error == ESRCH &&
        tid) { /* it has ended; or the file is of one that had this number */
        forget(&session->motion, tid);
        if (stop && is_held(session, tid, stop))
            write_verb(session, tid, verb, reply);
        else
            reply->error = 0;
    }
    if (reply->error && stop && is_held(session, tid, stop))
        stays = session_stops(session, tid, stop);
    json_decref(stop);
    return stays;
}

/* A step was answered already: the client learns that the thread is where it was. */
static void step(struct session *session, pid_t tid, const char *verb)
{
    _cleanup_reply_ struct reply reply = {0};
    bool stays = give(session, tid, verb, &reply);
    _cleanup_free_ char *words = reply.error ? reply_words(&reply) : NULL;

    breakpoints_gone_on(session);
    if (!words)
        return;
    session_is_leaving(session, tid);
    session_say(session, words);
    if (stays)
        session_tell(session, "stopped",
                     json_pack("{sssIsbso}", "reason", "step", "threadId", (json_int_t)tid,
                               "allThreadsStopped", 0, "text", text_of(words, strlen(words))));
}

/* The same, where the caller may not be the program's own code: then it goes on to that. */
static void step_over(struct session *session, pid_t tid, const char *verb)
{
    json_t *stop = session_stop_of(session, tid);

    if (stop && session->own_code && paths_is_own(&session->paths, member_words(stop, "file")))
        session_leaves(session, tid);
    json_decref(stop);
    step(session, tid, verb);
}

void motion_to_own(struct session *session, const json_t *arguments)
{
    if (is_held(session, tid_of(arguments), arguments)) /* and not elsewhere by now */
        step(session, tid_of(arguments), "here step own");
}

json_t *motion_step(struct session *session, const json_t *arguments, char **why)
{
    json_t *stop = session_stop_of(session, tid_of(arguments));

    json_decref(stop);
    return stop ? json_object() : fail_running(tid_of(arguments), why);
}

void motion_next_after(struct session *session, const json_t *arguments)
{
    step_over(session, tid_of(arguments), "here next");
}

void motion_in_after(struct session *session, const json_t *arguments)
{
    step(session, tid_of(arguments), session->own_code ? "here step own" : "here step");
}

void motion_out_after(struct session *session, const json_t *arguments)
{
    step_over(session, tid_of(arguments), "here finish");
}

json_t *motion_pause(struct session *session, const json_t *arguments, char **why)
{
    return json_object();
}

void motion_pause_after(struct session *session, const json_t *arguments)
{
    _cleanup_reply_ struct reply reply = {0};

    write_verb(session, tid_of(arguments), "here pause for " HOLD, &reply);
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
    /* unless that has let it go, and the client has it held elsewhere by now */
    if (tid_of(arguments) && is_held(session, tid_of(arguments), arguments))
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
    snprintf(text, sizeof text, "jump %d", target.depth);
    write_verb(session, tid, text, &reply);
    return reply.error ? request_fail_by(&reply, why) : json_object();
}

/* Tells of a jump: the thread has neither gone on nor stopped, as `events` has it; to a client it
 * has. */
void motion_goto_after(struct session *session, const json_t *arguments)
{
    json_int_t tid = tid_of(arguments);

    session_moves(session, (pid_t)tid);
    session_tell(session, "continued",
                 json_pack("{sIsb}", "threadId", tid, "allThreadsContinued", 0));
    session_tell(session, "stopped",
                 json_pack("{sssIsb}", "reason", "goto", "threadId", tid, "allThreadsStopped", 0));
}
