#include "contrib/dap/stack.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/modules.h"

json_t *stack_threads(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT tid AS id, ifnull(thread, tid) AS name FROM threads WHERE "
                               "depth > 0 OR state = 'held'");

    return rows ? json_pack("{so}", "threads", rows) : request_fail_by(&reply, why);
}

/* ---- stackTrace ---- */

/* Code that isn't the program's own is there, but doesn't catch the eye. */
static void show_source(struct session *session, const char *file, json_t *frame)
{
    json_t *source = paths_source(&session->paths, file);

    modules_see(session, file);
    if (session->own_code && !paths_is_own(&session->paths, file)) {
        json_object_set_new(frame, "presentationHint", json_string("subtle"));
        json_object_set_new(source, "presentationHint", json_string("deemphasize"));
        json_object_set_new(source, "origin", json_string("library"));
    }
    json_object_set_new(frame, "source", source);
}

static json_t *show_frame(struct session *session, const json_t *row, const struct place *place)
{
    const char *kind = member_words(row, "frame_type"), *func = member_text(row, "func");
    bool is_python = !strcmp(kind, "Python"), is_native = !strcmp(kind, "Native");
    int64_t number = is_python ? places_add(&session->places, *place)
                               : places_add(&session->places, (struct place){.kind = PLACE_NOTHING,
                                                                             .tid = place->tid});
    json_int_t line = member_number(row, "lineno");
    json_t *frame = json_pack("{sIsssIsI}", "id", (json_int_t)number, "name", func ? func : "??",
                              "line", line > 0 ? line - 1 + session->first_line : 0, "column",
                              (json_int_t)(is_python ? session->first_line : 0));

    if (is_python)
        show_source(session, member_words(row, "file"), frame);
    else
        json_object_set_new(frame, "presentationHint", json_string(is_native ? "subtle" : "label"));
    if (is_native) {
        char address[32];
        snprintf(address, sizeof address, "0x%llx", (long long)member_number(row, "address"));
        json_object_set_new(frame, "instructionPointerReference", json_string(address));
        json_object_set_new(frame, "source",
                            json_pack("{ssssss}", "name", member_words(row, "module"), "origin",
                                      "native", "presentationHint", "deemphasize"));
    }
    return frame;
}

/* The frames that a crash has recorded: of what an exception has left that nobody caught, the stack
 * is gone. */
static json_t *crash_rows(struct session *session, pid_t tid, struct reply *reply)
{
    return files_query(&session->files, reply,
                       "SELECT crash, depth, func, file, lineno, 'Python' AS frame_type FROM crash "
                       "WHERE kind = 'frame' AND crash = (SELECT max(crash) FROM crash WHERE tid = "
                       "%d AND kind = 'exception') ORDER BY depth",
                       (int)tid);
}

/* Of all rows of a thread, those that are shown: [*first, *end). Of one that is held from its
 * innermost Python frame on, since what is above that is how it is held; what begins the thread is
 * left out too. */
static void choose(const json_t *rows, bool is_held, size_t *first, size_t *end)
{
    const json_t *row;
    size_t i;

    *first = *end = 0;
    json_array_foreach(rows, i, row)
    {
        bool is_python = !strcmp(member_words(row, "frame_type"), "Python");
        if (is_python && !*end)
            *first = is_held ? i : 0;
        *end = is_python ? i + 1 : *end;
    }
    if (!*end && !is_held)
        *end = json_array_size(rows);
}

static json_t *stack_rows(struct session *session, pid_t tid, struct reply *reply)
{
    return files_query(&session->files, reply,
                       "SELECT depth, func, file, lineno, frame_type, module, address FROM "
                       "backtrace WHERE tid = %d%s",
                       (int)tid, session->native ? "" : " AND frame_type <> 'Native'");
}

/* All frames of a thread, as the client has them; NULL: *reply has the words. */
static json_t *read_stack(struct session *session, pid_t tid, const json_t *stop,
                          struct reply *reply)
{
    bool has_crashed = stop && !strcmp(member_words(stop, "reason"), "crash");
    json_t *rows = has_crashed ? crash_rows(session, tid, reply) : stack_rows(session, tid, reply),
           *frames = rows ? json_array() : NULL;
    size_t i = 0, end = json_array_size(rows);

    if (rows && !has_crashed && session->native)
        choose(rows, stop, &i, &end);
    for (; i < end; i++) {
        const json_t *row = json_array_get(rows, i);
        const struct place place = {.kind = PLACE_FRAME,
                                    .tid = tid,
                                    .depth = (int)member_number(row, "depth"),
                                    .crash = member_number(row, "crash")};
        json_array_append_new(frames, show_frame(session, row, &place));
    }
    json_decref(rows);
    return frames;
}

/* The stack of a thread, which stays the same as long as the thread is held there: clients ask for
 * it in pieces. */
static json_t *stack_of(struct session *session, pid_t tid, struct reply *reply)
{
    json_t *stop = session_stop_of(session, tid), *frames = session_stack(session, tid);

    if (!frames) {
        frames = read_stack(session, tid, stop, reply);
        if (frames && stop)
            session_keep_stack(session, tid, stop, frames);
    }
    json_decref(stop);
    return frames;
}

json_t *stack_trace(struct session *session, const json_t *arguments, char **why)
{
    json_int_t start = member_number(arguments, "startFrame"),
               levels = member_number(arguments, "levels");
    _cleanup_reply_ struct reply reply = {0};
    json_t *frames = stack_of(session, (pid_t)member_number(arguments, "threadId"), &reply),
           *piece = json_array(), *frame;
    size_t i;

    if (!frames) {
        json_decref(piece);
        return request_fail_by(&reply, why);
    }
    json_array_foreach(frames, i, frame) if ((json_int_t)i >= start &&
                                             (levels <= 0 || (json_int_t)i < start + levels))
        json_array_append(piece, frame);
    json_t *body = json_pack("{sosI}", "stackFrames", piece, "totalFrames",
                             (json_int_t)json_array_size(frames));
    json_decref(frames);
    return body;
}

void stack_prepare(struct session *session, const json_t *arguments)
{
    _cleanup_reply_ struct reply reply = {0};

    json_decref(stack_of(session, (pid_t)member_number(arguments, "threadId"), &reply));
}

/* ---- exceptionInfo ---- */

json_t *stack_exception(struct session *session, const json_t *arguments, char **why)
{
    pid_t tid = (pid_t)member_number(arguments, "threadId");
    json_t *stop = session_stop_of(session, tid), *exception = json_object_get(stop, "exception");
    bool has_crashed = !strcmp(member_words(stop, "reason"), "crash");
    struct line_kind line = breakpoints_find(&session->breakpoints, member_number(stop, "id"),
                                             json_number_value(json_object_get(stop, "ts")));
    _cleanup_reply_ struct reply trace = {0};

    if (!json_is_object(exception)) {
        json_decref(stop);
        return request_fail(why, "no exception holds thread %d", (int)tid);
    }
    const char *type = member_words(exception, "type"), *dot = strrchr(type, '.');
    json_t *details = json_pack("{sssssO}", "typeName", dot ? dot + 1 : type, "fullTypeName", type,
                                "message", json_object_get(exception, "message"));
    json_t *source = paths_source(&session->paths, member_words(stop, "file"));
    if (member_text(source, "path")) /* which debugpy tells beside what the protocol has */
        json_object_set(details, "source", json_object_get(source, "path"));
    json_decref(source);
    if (has_crashed)
        files_read(&session->files, &trace, "crash/traceback");
    if (has_crashed && !trace.error)
        json_object_set_new(details, "stackTrace", text_of(trace.text, trace.size));
    json_t *info = json_pack("{sssOssso}", "exceptionId", type, "description",
                             json_object_get(exception, "message"), "breakMode",
                             has_crashed       ? "unhandled"
                             : line.is_leaving ? "userUnhandled"
                                               : "always",
                             "details", details);
    json_decref(stop);
    return info;
}

/* ---- source ---- */

/* Reads a source as the process finds it on its disk; NULL: it doesn't. */
static json_t *read_from_disk(const struct session *session, const char *name)
{
    _cleanup_free_ char *path = NULL, *content = NULL;
    size_t room = 0;

    if (*name != '/' || asprintf(&path, "/proc/%d/root%s", (int)session->pid, name) < 0)
        return NULL;
    FILE *text = fopen(path, "re");
    ssize_t n = text ? getdelim(&content, &room, '\0', text) : -1;
    if (text)
        fclose(text);
    return n < 0 ? NULL : text_of(content, (size_t)n);
}

/* Reads it from sources/, where it is called by its path, with ! for /: of code that lies in no
 * file the process's linecache may have it. NULL: *reply has the words. */
static json_t *read_from_process(struct session *session, const char *name, struct reply *reply)
{
    _cleanup_free_ char *file = malloc(4 * strlen(name) + 1);
    char *to = file;

    if (!file)
        return NULL;
    for (; *name; name++)
        if (*name == '!')
            to = stpcpy(to, "\\x21");
        else
            *to++ = *name == '/' ? '!' : *name;
    *to = 0;
    files_read(&session->files, reply, "sources/%s", file);
    return reply->error ? NULL : text_of(reply->text, reply->size);
}

json_t *stack_source(struct session *session, const json_t *arguments, char **why)
{
    const json_t *of = json_object_get(arguments, "source");
    json_int_t number = member_number(of, "sourceReference");
    _cleanup_free_ char *name =
        paths_numbered(&session->paths,
                       number ? number : member_number(arguments, "sourceReference"));
    _cleanup_reply_ struct reply reply = {0};
    json_t *content = name ? read_from_disk(session, name) : NULL;

    if (name && !content)
        content = read_from_process(session, name, &reply);

    if (!name)
        return request_fail(why, "that source isn't known");
    return content ? json_pack("{soss}", "content", content, "mimeType", "text/x-python")
                   : request_fail(why, "the process has no file %s, and nobody else has its text",
                                  name);
}
