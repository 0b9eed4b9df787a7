#include "contrib/dap/breakpoint_requests.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/values.h"

#include <errno.h>

/* One line of the file in the making. */
struct making {
    char *text;
    size_t size;
    FILE *out;
    const char *why; /* it can't be made */
};

static void begin(struct making *making)
{
    *making = (struct making){0};
    making->out = open_memstream(&making->text, &making->size);
    if (!making->out) {
        fputs("probefs-dap: out of memory\n", stderr);
        exit(1);
    }
}

/* What is wanted, for breakpoints_set(). line: the one that the client has named, 0: none. */
static json_t *end(struct making *making, json_int_t line, bool logs)
{
    fputc('\n', making->out);
    fclose(making->out);
    json_t *wanted = json_pack("{sIsb}", "line", line, "logs", logs);
    json_object_set_new(wanted, "text", text_of(making->text, making->size));
    if (making->why)
        json_object_set_new(wanted, "why", json_string(making->why));
    free(making->text);
    return wanted;
}

static json_t *refuse(const char *why) { return json_pack("{ssss}", "text", "", "why", why); }

/* The operator of a hit condition, and its number. */
static void add_count(struct making *making, const char *text)
{
    const char *sign = text + strspn(text, " ");
    size_t size = strcspn(sign, " 0123456789");
    char *rest;
    long count = strtol(sign + size, &rest, 10);
    bool is_or_equal = size == 2 && sign[1] == '=';

    if (count < 1 || rest[strspn(rest, " ")])
        size = 3;
    if (size == 0 || (is_or_equal && *sign == '='))
        fprintf(making->out, " after %ld x 1", count - 1);
    else if (size == 1 && *sign == '%')
        fprintf(making->out, " every %ld", count);
    else if (*sign == '>' && (size == 1 || is_or_equal))
        fprintf(making->out, " after %ld", count - is_or_equal);
    else if (*sign == '<' && (is_or_equal || (size == 1 && count > 1)))
        fprintf(making->out, " x %ld", count - !is_or_equal);
    else
        making->why = "a hit count is written as 3, >3, >=3, <3, <=3 or %3";
}

static void add_conditions(struct making *making, const json_t *wanted)
{
    const char *condition = member_words(wanted, "condition"),
               *hits = member_words(wanted, "hitCondition");

    if (strpbrk(condition, "\r\n"))
        making->why = "a condition is one line of Python";
    else if (*condition)
        fprintf(making->out, " if %s", condition);
    if (*hits)
        add_count(making, hits);
}

/* The part of a message that is text, as it stands in a literal. */
static void add_character(FILE *out, char c)
{
    if (c == '\\' || c == '\'')
        fprintf(out, "\\%c", c);
    else if (c == '\n' || c == '\r')
        fputs(c == '\n' ? "\\n" : "\\r", out);
    else
        fputc(c, out);
}

/* A message of the protocol's is an f-string of Python's: what stands in {} is evaluated. */
static void add_message(struct making *making, const char *message)
{
    int depth = 0;

    fputs(" {f'''", making->out);
    for (const char *p = message; *p; p++) {
        bool is_twice = !depth && (*p == '{' || *p == '}') && p[1] == *p;
        if (is_twice) {
            fprintf(making->out, "%c%c", *p, *p);
            p++;
            continue;
        }
        depth += *p == '{';
        if (depth && *p != '\n' && *p != '\r')
            fputc(*p, making->out);
        else if (depth)
            fputc(' ', making->out);
        else
            add_character(making->out, *p);
        depth -= depth && *p == '}';
    }
    fputs("'''}", making->out);
}

/* A whole line: where is what stands behind `stop`, comment what stands at its end. */
static json_t *make(const char *where, const json_t *wanted, json_int_t line, const char *comment)
{
    const char *message = member_words(wanted, "logMessage");
    struct making making;

    begin(&making);
    fprintf(making.out, "here %s %s", *message ? "log" : "stop for " HOLD, where);
    if (*message)
        add_message(&making, message);
    add_conditions(&making, wanted);
    fputs(comment, making.out);
    return end(&making, line, *message);
}

static char *quote(const char *name)
{
    char mark = strchr(name, '"') ? '\'' : '"', *quoted;

    if (strpbrk(name, "\r\n") || strchr(name, mark))
        return NULL;
    return asprintf(&quoted, "%c%s%c", mark, name, mark) < 0 ? NULL : quoted;
}

json_t *breakpoints_of_source(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_free_ char *name = paths_remote(&session->paths, json_object_get(arguments, "source"));
    _cleanup_free_ char *quoted = name ? quote(name) : NULL;
    json_t *wanted = json_array(), *one, *answer, *shown;
    size_t i;

    if (!quoted)
        return request_fail(why, "breakpoints want a source with a path without line breaks");
    json_array_foreach(json_object_get(arguments, "breakpoints"), i, one)
    {
        _cleanup_free_ char *where = NULL;
        json_int_t line = member_number(one, "line") + 1 - session->first_line;
        if (asprintf(&where, "%s:%lld", quoted, (long long)line) >= 0)
            json_array_append_new(wanted, make(where, one, line, ""));
    }
    answer = breakpoints_set(session, name, wanted);
    json_decref(wanted);
    json_array_foreach(json_object_get(answer, "breakpoints"), i, shown)
    {
        json_int_t line = member_number(shown, "line");
        if (line && session->first_line != 1) {
            json_t *copy = json_copy(shown);
            json_object_set_new(copy, "line", json_integer(line - 1 + session->first_line));
            json_array_set_new(json_object_get(answer, "breakpoints"), i, copy);
        }
    }
    return answer;
}

json_t *breakpoints_of_functions(struct session *session, const json_t *arguments, char **why)
{
    json_t *wanted = json_array(), *one;
    size_t i;

    json_array_foreach(json_object_get(arguments, "breakpoints"), i, one)
    {
        _cleanup_free_ char *where = NULL;
        const char *name = member_words(one, "name");
        size_t size = strcspn(name, " (\r\n");
        if (!size || (name[size] && strcmp(name + size, "()") != 0))
            json_array_append_new(wanted, refuse("a function is written as NAME, or MODULE.NAME"));
        else if (asprintf(&where, "%.*s()", (int)size, name) >= 0)
            json_array_append_new(wanted, make(where, one, 0, ""));
    }
    json_t *answer = breakpoints_set(session, "function", wanted);
    json_decref(wanted);
    return answer;
}

void breakpoints_of_program(struct session *session)
{
    json_t *wanted = json_pack("[o]", make("breakpoint()", NULL, 0, ""));
    json_t *answer = breakpoints_set(session, "program", wanted);
    const json_t *shown = json_array_get(json_object_get(answer, "breakpoints"), 0);
    const char *why = member_text(shown, "message");
    _cleanup_free_ char *words = NULL;

    if (!json_is_true(json_object_get(shown, "verified")) && why &&
        asprintf(&words, "[the program's own breakpoint() doesn't stop: %s]", why) >= 0)
        session_say(session, words);
    json_decref(answer);
    json_decref(wanted);
}

/* ---- data ---- */

/* In a dataId, before the number of the place: the file takes it for a comment. What a frame has
 * can be watched anew as long as the thread stands where it was asked for. */
#define PLACE "  # "

/* Where the comment of a dataId begins; its end: it has none. */
static const char *comment_of(const char *data)
{
    const char *found = NULL;

    for (const char *at = data; (at = strstr(at, PLACE)); at++)
        found = at;
    return found ? found : data + strlen(data);
}

static json_t *make_watch(struct session *session, const char *data, const json_t *wanted)
{
    const char *comment = comment_of(data);
    _cleanup_place_ struct place place = {0};
    _cleanup_free_ char *where = NULL;

    if (asprintf(&where, "watch %.*s", (int)(comment - data), data) < 0)
        return refuse("out of memory");
    json_t *made = make(where, wanted, 0, comment);
    if (*comment && !places_find(&session->places, atoll(comment + strlen(PLACE)), &place))
        json_object_set_new(made, "stale",
                            json_string("that value isn't known any more: its thread has gone on"));
    return made;
}

json_t *breakpoints_data_info(struct session *session, const json_t *arguments, char **why)
{
    const char *name = member_words(arguments, "name");
    json_int_t number = member_number(arguments, "variablesReference"),
               frame = number ? number : member_number(arguments, "frameId");
    _cleanup_free_ char *path = number ? values_path(session, number, name) : strdup(name),
                        *data = NULL;
    pid_t tid;
    int depth;

    if (!path || !*path || strpbrk(path, "\r\n"))
        return json_pack("{snss}", "dataId", "description",
                         "there is no expression for that value");
    if (values_frame(session, frame, &tid, &depth) &&
        asprintf(&data, "%s in %d/%d" PLACE "%lld", path, (int)tid, depth, (long long)frame) < 0)
        data = NULL;
    return json_pack("{sssss[s]}", "dataId", data ? data : path, "description", path, "accessTypes",
                     "write");
}

json_t *breakpoints_of_data(struct session *session, const json_t *arguments, char **why)
{
    json_t *wanted = json_array(), *one;
    size_t i;

    json_array_foreach(json_object_get(arguments, "breakpoints"), i, one)
    {
        const char *data = member_words(one, "dataId"), *access = member_text(one, "accessType");
        if (access && strcmp(access, "write") != 0)
            json_array_append_new(wanted, refuse("only what writes a value can be seen"));
        else if (!*data || strpbrk(data, "\r\n"))
            json_array_append_new(wanted,
                                  refuse("there is no such value: ask for dataBreakpointInfo"));
        else
            json_array_append_new(wanted, make_watch(session, data, one));
    }
    json_t *answer = breakpoints_set(session, "data", wanted);
    json_decref(wanted);
    return answer;
}

/* ---- exceptions ---- */

/* A breakpoint at exceptions of one class, "": of any. in: in which code, as it is written. */
static json_t *make_raise(const char *type, const char *in)
{
    _cleanup_free_ char *where = NULL;

    if (strpbrk(type, "\r\n"))
        return refuse("one class is named, as KeyError");
    if (asprintf(&where, "raise%s%s%s", *type ? " " : "", type, in) < 0)
        return refuse("out of memory");
    return make(where, NULL, 0, "");
}

/* Adds what one filter wants: a line of the file, or null for what nobody catches. */
static void add_filter(const struct session *session, const char *filter, const char *type,
                       json_t *wanted)
{
    if (!strcmp(filter, "raised"))
        json_array_append_new(wanted, make_raise(type, session->own_code ? " in own" : ""));
    else if (!strcmp(filter, "userUnhandled"))
        json_array_append_new(wanted, make_raise(type, " leaving own"));
    else if (!strcmp(filter, "uncaught"))
        json_array_append_new(wanted, json_null());
    else
        json_array_append_new(wanted,
                              refuse("there are the filters raised, userUnhandled and uncaught"));
}

json_t *breakpoints_of_exceptions(struct session *session, const json_t *arguments, char **why)
{
    json_t *wanted = json_array(), *lines = json_array(), *one;
    bool catches = false;
    size_t i, at = 0;

    json_array_foreach(json_object_get(arguments, "filters"), i, one)
        add_filter(session, json_is_string(one) ? json_string_value(one) : "", "", wanted);
    json_array_foreach(json_object_get(arguments, "filterOptions"), i, one)
        add_filter(session, member_words(one, "filterId"), member_words(one, "condition"), wanted);
    json_array_foreach(wanted, i, one)
    {
        catches |= json_is_null(one);
        if (!json_is_null(one))
            json_array_append(lines, one);
    }
    json_t *set = breakpoints_set(session, "exception", lines), *shown = json_array();
    json_t *caught = breakpoints_catch(session, catches);
    json_array_foreach(wanted, i, one)
        json_array_append(shown, json_is_null(one)
                                     ? caught
                                     : json_array_get(json_object_get(set, "breakpoints"), at++));
    json_decref(caught);
    json_decref(set);
    json_decref(lines);
    json_decref(wanted);
    return json_pack("{so}", "breakpoints", shown);
}
