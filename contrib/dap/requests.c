#include "agent/base/cleanup.h"
#include "contrib/dap/breakpoint_requests.h"
#include "contrib/dap/events.h"
#include "contrib/dap/member.h"
#include "contrib/dap/modules.h"
#include "contrib/dap/motion.h"
#include "contrib/dap/others.h"
#include "contrib/dap/session.h"
#include "contrib/dap/stack.h"
#include "contrib/dap/values.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <time.h>

#define READY_NAP_NS 20000000 /* until a program that has begun just now is asked again */
#define READY_NAPS 500        /* then it is told what holds it up */

/* ---- begin and end ---- */

static json_t *initialize(struct session *session, const json_t *arguments, char **why)
{
    static const char *const can[] = {"supportsConfigurationDoneRequest",
                                      "supportsFunctionBreakpoints",
                                      "supportsConditionalBreakpoints",
                                      "supportsHitConditionalBreakpoints",
                                      "supportsEvaluateForHovers",
                                      "supportsSetVariable",
                                      "supportsSetExpression",
                                      "supportsGotoTargetsRequest",
                                      "supportsCompletionsRequest",
                                      "supportsModulesRequest",
                                      "supportsExceptionInfoRequest",
                                      "supportsDelayedStackTraceLoading",
                                      "supportsLoadedSourcesRequest",
                                      "supportsLogPoints",
                                      "supportsDataBreakpoints",
                                      "supportsExceptionFilterOptions",
                                      "supportsClipboardContext",
                                      "supportsCancelRequest",
                                      "supportsSingleThreadExecutionRequests"};
    static const char one_class[] = "one class, as KeyError; it and those that are made of it";
    const char *format = member_text(arguments, "pathFormat");

    if (format && strcmp(format, "path") != 0)
        return request_fail(why, "sources are named by paths here, not by %.20s", format);
    session->first_line = !json_is_false(json_object_get(arguments, "linesStartAt1"));
    session->begins_others =
        json_is_true(json_object_get(arguments, "supportsStartDebuggingRequest"));
    json_t *body =
        json_pack("{s[{sssssbsbss}{sssssbsbss}{sssssb}]s[s]}", "exceptionBreakpointFilters",
                  "filter", "raised", "label", "Raised Exceptions", "default", 0,
                  "supportsCondition", 1, "conditionDescription", one_class, "filter",
                  "userUnhandled", "label", "User Uncaught Exceptions", "default", 0,
                  "supportsCondition", 1, "conditionDescription", one_class, "filter", "uncaught",
                  "label", "Uncaught Exceptions", "default", 0, "completionTriggerCharacters", ".");
    for (size_t i = 0; body && i < ARRAY_SIZE(can); i++)
        json_object_set_new(body, can[i], json_true());
    return body;
}

/* A number, or one as text, as pickers of processes give it. */
static int64_t read_pid(const json_t *arguments)
{
    const json_t *pid = json_object_get(arguments, "processId");

    return json_is_string(pid) ? atoll(json_string_value(pid)) : json_integer_value(pid);
}

/* The process's own row, and that there is somebody to ask. */
static json_t *read_process(struct session *session, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT cwd, command, (SELECT file FROM modules WHERE name = 'os' "
                               "AND interpreter = 0) AS os FROM process");

    return rows ? rows : request_fail_by(&reply, why);
}

static json_t *fail_attach(struct session *session, int r, char **why)
{
    if (r == -ENOENT)
        request_fail(why, "%s isn't there: no such Python process, or no probefs is mounted there",
                     session->files.directory);
    else if (r < 0)
        request_fail(why, "%s/events: %s", session->files.directory, strerror(-r));
    if (session->events >= 0)
        close(session->events);
    session->events = -1;
    free(steal_pointer(session->files.directory));
    return NULL;
}

/* Puts the agent in, and waits for a program that has begun just now. */
static void put_agent_in(struct session *session, struct reply *reply)
{
    const struct timespec nap = {.tv_nsec = READY_NAP_NS};

    for (int i = 0; i < READY_NAPS; i++) {
        reply_deinit(reply);
        files_ask(&session->files, reply, "attach\n", "ctl");
        bool is_early = reply->error && strstr(reply->text, "try again in a moment");
        if (!reply->error) {
            reply_deinit(reply);
            files_ask(&session->files, reply, "-- format: json\nNone\n", "eval");
            is_early = reply->error == EBUSY;
        }
        if (!is_early)
            return;
        nanosleep(&nap, NULL);
    }
}

static json_t *attach(struct session *session, const json_t *arguments, char **why)
{
    const char *mount = member_text(arguments, "mount");
    _cleanup_reply_ struct reply reply = {0};
    int64_t pid = read_pid(arguments);

    if (session->files.directory)
        return request_fail(why, "process %d is attached to already", (int)session->pid);
    if (pid <= 0 || pid > INT_MAX)
        return request_fail(why, "attach wants the processId of a running Python process");
    if (asprintf(&session->files.directory, "%s/%d", mount ? mount : session->mount, (int)pid) < 0)
        return request_fail(why, "out of memory");
    session->pid = (pid_t)pid;
    session->own_code = !json_is_false(json_object_get(arguments, "justMyCode"));
    session->native = !json_is_false(json_object_get(arguments, "nativeFrames"));
    /* before anything can happen */
    session->events = files_open(&session->files, "events", O_RDONLY);
    if (session->events < 0)
        return fail_attach(session, session->events, why);
    put_agent_in(session, &reply);
    if (reply.error)
        request_fail_by(&reply, why);
    json_t *rows = reply.error ? NULL : read_process(session, why), *row = json_array_get(rows, 0);
    if (!rows)
        return fail_attach(session, 0, why);
    paths_set(&session->paths, session->pid, member_text(row, "cwd"), member_text(row, "os"),
              json_object_get(arguments, "pathMappings"));
    session->process = json_pack("{sOsIsbss}", "name", json_object_get(row, "command"),
                                 "systemProcessId", (json_int_t)pid, "isLocalProcess", 1,
                                 "startMethod", "attach");
    json_decref(rows);
    breakpoints_of_program(session);
    _guard_mutex_(&session->lock);
    session->is_attached = true;
    return json_object();
}

static json_t *nothing(struct session *session, const json_t *arguments, char **why)
{
    return json_object();
}

static json_t *launch(struct session *session, const json_t *arguments, char **why)
{
    return request_fail(why, "probefs starts no program: attach to one that runs");
}

static json_t *terminate(struct session *session, const json_t *arguments, char **why)
{
    return request_fail(why, "the program was there before, and goes on: disconnect from it");
}

static json_t *restart(struct session *session, const json_t *arguments, char **why)
{
    return request_fail(why, "the program can't be started again from here: disconnect from it");
}

/* The client has said all that it wants at first: `attach` is answered, and it is told what
 * happens. */
static void configured(struct session *session, const json_t *arguments)
{
    json_t *attaching;

    {
        _guard_mutex_(&session->lock);
        attaching = steal_pointer(session->attaching);
    }
    if (!attaching)
        return;
    session_answer(session, attaching, json_object(), NULL);
    session_tell(session, "process", steal_pointer(session->process));
    session->wanted = json_incref(json_object_get(attaching, "arguments"));
    json_decref(attaching);
    if (events_begin(session) < 0)
        session_say(session, "no thread could be made that hears what happens: attach again");
    others_of_job(session);
}

/* ---- the table ---- */

static const struct request {
    const char *command;
    request_run *run;
    request_after *after;
    enum lane_kind lane;
    bool wants_process;
} requests[] = {
    {"initialize", initialize, NULL, LANE_ACT, false},
    {"attach", attach, NULL, LANE_ACT, false},
    {"launch", launch, NULL, LANE_ACT, false},
    {"configurationDone", nothing, configured, LANE_ACT, false},
    {"terminate", terminate, NULL, LANE_ACT, false},
    {"restart", restart, NULL, LANE_ACT, false},
    {"setBreakpoints", breakpoints_of_source, NULL, LANE_ACT, true},
    {"setFunctionBreakpoints", breakpoints_of_functions, NULL, LANE_ACT, true},
    {"dataBreakpointInfo", breakpoints_data_info, NULL, LANE_ACT, true},
    {"setDataBreakpoints", breakpoints_of_data, NULL, LANE_ACT, true},
    {"setExceptionBreakpoints", breakpoints_of_exceptions, NULL, LANE_ACT, true},
    {"continue", motion_continue, NULL, LANE_ACT, true},
    {"next", motion_step, motion_next_after, LANE_ACT, true},
    {"stepIn", motion_step, motion_in_after, LANE_ACT, true},
    {"stepOut", motion_step, motion_out_after, LANE_ACT, true},
    {"pause", motion_pause, motion_pause_after, LANE_ACT, true},
    {"gotoTargets", motion_goto_targets, NULL, LANE_ACT, true},
    {"goto", motion_goto, motion_goto_after, LANE_ACT, true},
    {"(tidy)", nothing, motion_tidy, LANE_ACT, true}, /* our own, which isn't answered */
    {"(to own)", nothing, motion_to_own, LANE_ACT, true},
    {"(stack)", nothing, stack_prepare, LANE_LOOK, true},
    {"threads", stack_threads, NULL, LANE_LOOK, true},
    {"stackTrace", stack_trace, modules_tell, LANE_LOOK, true},
    {"exceptionInfo", stack_exception, NULL, LANE_LOOK, true},
    {"source", stack_source, NULL, LANE_LOOK, true},
    {"scopes", values_scopes, NULL, LANE_LOOK, true},
    {"variables", values_variables, NULL, LANE_LOOK, true},
    {"modules", modules_list, NULL, LANE_LOOK, true},
    {"loadedSources", modules_sources, NULL, LANE_LOOK, true},
    {"setVariable", values_set, NULL, LANE_EVALUATE, true},
    {"setExpression", values_set_expression, NULL, LANE_EVALUATE, true},
    {"evaluate", values_evaluate, NULL, LANE_EVALUATE, true},
    {"completions", values_complete, NULL, LANE_EVALUATE, true},
};

static const struct request *find(const char *command)
{
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
        if (!strcmp(requests[i].command, command))
            return &requests[i];
    return NULL;
}

enum lane_kind requests_lane(const char *command)
{
    const struct request *request = find(command);
    return request ? request->lane : LANE_LOOK;
}

static bool is_attached(struct session *session)
{
    _guard_mutex_(&session->lock);

    return session->is_attached;
}

/* Answers `attach`, once the client has said all that it wants at first. */
static void answer_attach(struct session *session, json_t *request)
{
    {
        _guard_mutex_(&session->lock);
        session->attaching = json_incref(request);
    }
    session_tell(session, "initialized", NULL);
}

void requests_serve(struct session *session, json_t *message)
{
    const char *command = member_words(message, "command");
    const json_t *arguments = json_object_get(message, "arguments");
    const struct request *request = find(command);
    _cleanup_free_ char *why = NULL;
    json_t *body;

    if (!request)
        body = request_fail(&why, "there is no request %.100s here", command);
    else if (request->wants_process && !is_attached(session))
        body = request_fail(&why, "no process is attached");
    else
        body = request->run(session, arguments, &why);
    bool is_done = body != NULL;
    if (!is_done && lane_is_cancelled(&session->lanes[requests_lane(command)]))
        session_answer(session, message, NULL, "cancelled");
    else if (is_done && request->run == attach)
        answer_attach(session, message);
    else if (json_object_get(message, "seq"))
        session_answer(session, message, json_incref(body), why);
    json_decref(body);
    if (is_done && request->after)
        request->after(session, arguments);
}
