#include "contrib/dap/values.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#define HELD_MAX 1000    /* children of a value in one answer */
#define SEPARATOR '\x1e' /* probefs.5, -- format: json */

static const char completed[] =
#include "completed.py.inc"
    ;

/* ---- running Python ---- */

/* Runs code, made as by printf(3), in a frame, or, without one, in the main module. shown: how a
 * value is, json or repr. */
static void run(struct session *session, const struct place *place, struct reply *reply,
                const char *shown, const char *format, ...) __attribute__((format(printf, 5, 6)));
static void run(struct session *session, const struct place *place, struct reply *reply,
                const char *shown, const char *format, ...)
{
    _cleanup_free_ char *code = NULL, *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&code, format, args) < 0)
        code = NULL;
    va_end(args);
    if (!code || asprintf(&text, "-- format: %s\n%s\n\x04\n", shown, code) < 0) /* its end */
        text = NULL;
    if (!place)
        files_ask(&session->files, reply, text ? text : "", "eval");
    else if (place->crash)
        files_ask(&session->files, reply, text ? text : "", "crash/frames/%d/eval", place->depth);
    else
        files_ask(&session->files, reply, text ? text : "", "threads/%d/frames/%d/eval",
                  (int)place->tid, place->depth);
}

/* The last value that a reply shows; *said, the caller's, is what was printed before. NULL: *reply
 * has the words. */
static json_t *value_of(struct reply *reply, char **said)
{
    char *json = reply->error ? NULL : strrchr(reply->text, SEPARATOR);
    json_t *found = json ? json_loads(json + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;

    if (!found && !reply->error)
        reply->error = EPROTO;
    if (found && said)
        *said = strndup(reply->text, (size_t)(json - reply->text));
    return found;
}

/* The value of an expression. NULL: *reply has the words. */
static json_t *evaluate(struct session *session, const struct place *place, const char *expression,
                        struct reply *reply, char **said)
{
    run(session, place, reply, "json", "(\n%s\n)", expression);
    return value_of(reply, said);
}

/* ---- what the client has of a value ---- */

static int64_t place_in(struct session *session, const struct place *frame, enum place_kind kind,
                        char *path, json_t *rows)
{
    return places_add(&session->places,
                      (struct place){.kind = kind,
                                     .tid = frame->tid,
                                     .depth = frame->depth,
                                     .global = frame->global || kind == PLACE_GLOBALS,
                                     .crash = frame->crash,
                                     .path = path,
                                     .rows = rows});
}

/* An expression as it may have something behind it. */
static char *join(const char *expression, const char *behind)
{
    size_t size =
        strspn(expression, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]'\"");
    bool is_path = !expression[size] && !isdigit((unsigned char)*expression);
    char *made;

    return asprintf(&made, is_path ? "%s%s" : "(%s)%s", expression, behind) < 0 ? NULL : made;
}

/* Adds type, value and, where there are children, a number for them. expression: taken over; NULL:
 * there is none. */
static void add_shown(struct session *session, const struct place *frame, json_t *out,
                      const char *name, const json_t *row, char *expression)
{
    json_t *children = json_object_get(row, "children");
    int64_t number = 0;

    json_object_set(out, "type", json_object_get(row, "type"));
    json_object_set(out, name, json_object_get(row, "value"));
    if (expression)
        json_object_set_new(out, "evaluateName", text_of(expression, strlen(expression)));
    if (json_is_array(children))
        number = place_in(session, frame, PLACE_SHOWN, expression, json_incref(children));
    else if (json_is_null(children) && expression)
        number = place_in(session, frame, PLACE_VALUE, expression, NULL);
    else
        free(expression);
    json_object_set_new(out, "variablesReference", json_integer(number));
}

static json_t *shown_children(struct session *session, json_int_t number, const struct place *place)
{
    json_t *found = json_array(), *names = json_object(), *row;
    size_t i;

    json_array_foreach(place->rows, i, row)
    {
        const char *behind = member_text(row, "path");
        char *expression = behind && place->path ? join(place->path, behind) : NULL;
        json_t *variable = json_pack("{sO}", "name", json_object_get(row, "name"));
        if (expression)
            json_object_set_new(names, member_words(row, "name"), json_string(expression));
        else
            json_object_set_new(variable, "presentationHint",
                                json_pack("{s[s]}", "attributes", "readOnly"));
        add_shown(session, place, variable, "value", row, expression);
        json_array_append_new(found, variable);
    }
    places_name(&session->places, number, names);
    return json_pack("{so}", "variables", found);
}

char *values_path(struct session *session, json_int_t number, const char *name)
{
    _cleanup_place_ struct place place = {0};

    if (!places_find(&session->places, number, &place))
        return NULL;
    if (place.kind == PLACE_LOCALS || place.kind == PLACE_GLOBALS)
        return strdup(name);
    return places_child(&session->places, number, name);
}

bool values_frame(struct session *session, json_int_t number, pid_t *tid, int *depth)
{
    _cleanup_reply_ struct reply reply = {0};
    _cleanup_place_ struct place place = {0};

    if (!places_find(&session->places, number, &place) || !place.tid || place.crash)
        return false;
    json_t *is_main =
        place.global ? evaluate(session, &place, "__name__ == '__main__'", &reply, NULL) : NULL;
    bool is_here = strcmp(member_words(is_main, "value"), "True") != 0;
    json_decref(is_main);
    *tid = place.tid;
    *depth = place.depth;
    return is_here;
}

/* ---- scopes and variables ---- */

json_t *values_scopes(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_place_ struct place place = {0};

    if (!places_find(&session->places, member_number(arguments, "frameId"), &place) ||
        place.kind != PLACE_FRAME)
        return request_fail(why, "that frame isn't known any more: its thread has gone on");
    json_t *scopes = json_pack("[{sssIsbss}]", "name", "Locals", "variablesReference",
                               (json_int_t)place_in(session, &place, PLACE_LOCALS, NULL, NULL),
                               "expensive", 0, "presentationHint", "locals");
    if (!place.crash)
        json_array_append_new(scopes, json_pack("{sssIsb}", "name", "Globals", "variablesReference",
                                                (json_int_t)place_in(session, &place, PLACE_GLOBALS,
                                                                     NULL, NULL),
                                                "expensive", 1));
    return json_pack("{so}", "scopes", scopes);
}

static bool is_leaf(const char *type)
{
    static const char *const leaves[] = {"int",    "float",     "complex",
                                         "bool",   "str",       "NoneType",
                                         "bytes",  "bytearray", "function",
                                         "module", "type",      "builtin_function_or_method"};

    for (size_t i = 0; i < ARRAY_SIZE(leaves); i++)
        if (!strcmp(leaves[i], type))
            return true;
    return false;
}

/* What an exception's frame bound. */
static json_t *crash_locals(struct session *session, const struct place *place, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *found = json_array(), *row;
    size_t i;

    json_t *rows = files_query(&session->files, &reply,
                               "SELECT name, value FROM crash WHERE crash = %lld AND depth = %d "
                               "AND kind = 'local' AND name NOT NULL",
                               (long long)place->crash, place->depth);
    if (!rows) {
        json_decref(found);
        return request_fail_by(&reply, why);
    }
    json_array_foreach(rows, i, row)
    {
        const char *name = member_words(row, "name");
        int64_t number = place_in(session, place, PLACE_VALUE, strdup(name), NULL);
        json_array_append_new(found, json_pack("{sssssssIss}", "name", name, "value",
                                               member_words(row, "value"), "type", "",
                                               "variablesReference", (json_int_t)number,
                                               "evaluateName", name));
    }
    json_decref(rows);
    return json_pack("{so}", "variables", found);
}

/* A text as a literal of SQL. */
static char *quoted(const char *text)
{
    char *made = NULL;
    size_t size;
    FILE *out = open_memstream(&made, &size);

    if (!out)
        return NULL;
    files_put_text(out, text);
    fclose(out);
    return made;
}

/* Whether a path of value() is an expression, too: it has no {N}. */
static bool is_expression(const char *path)
{
    char quote = 0;

    for (; *path; path++)
        if (quote && *path == '\\' && path[1])
            path++;
        else if (quote)
            quote = *path == quote ? 0 : quote;
        else if (*path == '\'' || *path == '"')
            quote = *path;
        else if (*path == '{')
            return false;
    return true;
}

/* As names of children are: N, KEY or NAME. */
static json_t *name_of(const json_t *row)
{
    const char *name = member_words(row, "name");
    size_t size = strlen(name);

    return size > 2 && name[0] == '[' && name[size - 1] == ']' &&
                   strcmp(name, member_words(row, "path")) != 0
               ? text_of(name + 1, size - 2)
               : text_of(name, size);
}

static json_t *held_variable(struct session *session, const struct place *frame, const json_t *row,
                             json_t *names)
{
    const char *type = member_words(row, "type"), *path = member_words(row, "path");
    const json_t *length = json_object_get(row, "length");
    json_int_t n = json_is_integer(length) ? json_integer_value(length) : -1;
    json_t *variable = json_pack("{sosssssI}", "name", name_of(row), "value",
                                 member_words(row, "value"), "type", type, "variablesReference",
                                 (json_int_t)0);

    if (!*path) { /* what isn't shown, in words */
        json_object_set_new(variable, "name", json_string("..."));
        return variable;
    }
    if (!is_leaf(type) && n)
        json_object_set_new(variable, "variablesReference",
                            json_integer(place_in(session, frame, PLACE_HELD, strdup(path), NULL)));
    if (n > HELD_MAX && (!strcmp(type, "list") || !strcmp(type, "tuple")))
        json_object_set_new(variable, "indexedVariables", json_integer(n));
    if (is_expression(path)) {
        json_object_set_new(variable, "evaluateName", json_string(path));
        json_object_set_new(names, json_string_value(json_object_get(variable, "name")),
                            json_string(path));
    } else {
        json_object_set_new(variable, "presentationHint",
                            json_pack("{s[s]}", "attributes", "readOnly"));
    }
    return variable;
}

/* What a frame binds, or a value in it holds, from outside: no code runs for it. */
static json_t *held(struct session *session, json_int_t number, const struct place *place,
                    const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    _cleanup_free_ char *path = quoted(place->path ? place->path : "");
    json_int_t first = member_number(arguments, "start"), count = member_number(arguments, "count");
    bool pages = count > 0 && count <= HELD_MAX;
    json_t *found = json_array(), *names = json_object(), *row;
    size_t i;

    json_t *rows = path ? files_query(&session->files, &reply,
                                      "SELECT name, type, value, length, path FROM value(%d, %d, "
                                      "%s) WHERE position >= %lld LIMIT %lld",
                                      (int)place->tid, place->depth, path,
                                      (long long)(first < 0 ? 0 : first),
                                      (long long)(pages ? count : HELD_MAX + 1))
                        : NULL;
    if (!rows) {
        json_decref(found);
        json_decref(names);
        return request_fail_by(&reply, why);
    }
    json_array_foreach(rows, i, row) if (i < HELD_MAX)
        json_array_append_new(found, held_variable(session, place, row, names));
    if (!pages && json_array_size(rows) > HELD_MAX)
        json_array_append_new(found,
                              json_pack("{sssssI}", "name", "...", "value",
                                        "there are more: ask for a part of it, as in x[1000:1100]",
                                        "variablesReference", (json_int_t)0));
    json_decref(rows);
    places_name(&session->places, number, names);
    return json_pack("{so}", "variables", found);
}

/* The children of a value, by a look of the process's own. */
static json_t *children(struct session *session, json_int_t number, struct place *place, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *row = evaluate(session, place, place->kind == PLACE_GLOBALS ? "globals()" : place->path,
                           &reply, NULL);

    if (!row)
        return request_fail_by(&reply, why);
    json_decref(place->rows);
    place->rows = json_incref(json_object_get(row, "children"));
    if (place->kind == PLACE_GLOBALS)
        place->path = strdup("globals()");
    json_decref(row);
    return shown_children(session, number, place);
}

json_t *values_variables(struct session *session, const json_t *arguments, char **why)
{
    json_int_t number = member_number(arguments, "variablesReference");
    _cleanup_place_ struct place place = {0};

    if (!places_find(&session->places, number, &place))
        return request_fail(why, "that value isn't known any more: its thread has gone on");
    if (place.kind == PLACE_LOCALS && place.crash)
        return crash_locals(session, &place, why);
    if (place.kind == PLACE_LOCALS || place.kind == PLACE_HELD)
        return held(session, number, &place, arguments, why);
    return place.kind == PLACE_SHOWN ? shown_children(session, number, &place)
                                     : children(session, number, &place, why);
}

/* ---- what acts ---- */

/* Assigns in a frame, and shows what is there then. */
static json_t *assign(struct session *session, const struct place *frame, const char *target,
                      const char *value, char **why)
{
    _cleanup_reply_ struct reply done = {0}, shown = {0};

    run(session, frame, &done, "repr", "%s = (\n%s\n)", target, value);
    if (done.error)
        return request_fail_by(&done, why);
    json_t *row = evaluate(session, frame, target, &shown, NULL);
    if (!row)
        return request_fail_by(&shown, why);
    json_t *made = json_object();
    add_shown(session, frame, made, "value", row, strdup(target));
    json_decref(row);
    return made;
}

json_t *values_set(struct session *session, const json_t *arguments, char **why)
{
    json_int_t number = member_number(arguments, "variablesReference");
    const char *name = member_words(arguments, "name"), *value = member_words(arguments, "value");
    _cleanup_free_ char *path = values_path(session, number, name);
    _cleanup_place_ struct place place = {0};

    if (!places_find(&session->places, number, &place))
        return request_fail(why, "that value isn't known any more: its thread has gone on");
    if (!path || !*path)
        return request_fail(why, "it can't be assigned to: there is no expression for it");
    return assign(session, &place, path, value, why);
}

/* What a person sees who copies it: all of it. */
static json_t *evaluate_whole(struct session *session, const struct place *frame,
                              const char *expression, char **why)
{
    _cleanup_reply_ struct reply reply = {0};

    run(session, frame, &reply, "repr", "print(repr((\n%s\n)), end='')", expression);
    return reply.error ? request_fail_by(&reply, why)
                       : json_pack("{sosi}", "result", text_of(reply.text, reply.size),
                                   "variablesReference", 0);
}

/* Finds the place of the arguments' frame; false: there is none. */
static bool find_frame(struct session *session, const json_t *arguments, struct place *out)
{
    return places_find(&session->places, member_number(arguments, "frameId"), out);
}

json_t *values_set_expression(struct session *session, const json_t *arguments, char **why)
{
    const char *expression = member_words(arguments, "expression");
    _cleanup_place_ struct place place = {0};

    if (!*expression || strpbrk(expression, "\r\n"))
        return request_fail(why, "setExpression wants an expression of one line");
    bool has_frame = find_frame(session, arguments, &place);
    return assign(session, has_frame ? &place : NULL, expression, member_words(arguments, "value"),
                  why);
}

json_t *values_evaluate(struct session *session, const json_t *arguments, char **why)
{
    const char *expression = member_words(arguments, "expression");
    const char *context = member_words(arguments, "context");
    bool is_repl = !strcmp(context, "repl");
    _cleanup_reply_ struct reply shown = {0}, ran = {0};
    _cleanup_place_ struct place place = {0};
    _cleanup_free_ char *said = NULL;

    if (!*expression)
        return request_fail(why, "evaluate wants an expression");
    bool has_frame = find_frame(session, arguments, &place);
    if (!has_frame && member_number(arguments, "frameId"))
        return request_fail(why, "that frame isn't known any more: its thread has gone on");
    const struct place *frame = has_frame ? &place : NULL;
    if (!strcmp(context, "clipboard"))
        return evaluate_whole(session, frame, expression, why);
    json_t *row = evaluate(session, frame, expression, &shown, &said);
    if (row) {
        json_t *made = json_object();
        if (said && *said)
            session_tell(session, "output",
                         json_pack("{ssso}", "category", "stdout", "output",
                                   text_of(said, strlen(said))));
        add_shown(session, &place, made, "result", row, strdup(expression));
        json_object_del(made, "evaluateName");
        json_decref(row);
        return made;
    }
    if (!is_repl || shown.error != EINVAL) /* which is a statement's: nothing has run */
        return request_fail_by(&shown, why);
    run(session, frame, &ran, "repr", "%s", expression);
    if (ran.error)
        return request_fail_by(&ran, why);
    return json_pack("{sosi}", "result", text_of(ran.text, ran.size), "variablesReference", 0);
}

/* ---- completion ---- */

/* A text as a literal, of JSON and of Python. */
static char *literal(const char *text)
{
    json_t *string = text_of(text, strlen(text));
    char *made = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

    json_decref(string);
    return made;
}

static bool is_of_name(unsigned char c) { return isalnum(c) || c == '_' || c == '.' || c >= 0x80; }

json_t *values_complete(struct session *session, const json_t *arguments, char **why)
{
    const char *text = member_words(arguments, "text");
    _cleanup_reply_ struct reply reply = {0};
    _cleanup_place_ struct place place = {0};
    json_int_t column = member_number(arguments, "column") - 1;
    size_t end = strlen(text), start, last;
    json_t *row;
    size_t i;

    if (column >= 0 && (size_t)column < end)
        end = (size_t)column;
    for (start = end; start && is_of_name((unsigned char)text[start - 1]);)
        start--;
    for (last = end; last > start && text[last - 1] != '.';)
        last--;
    bool has_frame = find_frame(session, arguments, &place);
    if (!has_frame && member_number(arguments, "frameId"))
        return request_fail(why, "that frame isn't known any more: its thread has gone on");
    _cleanup_free_ char *whole = strndup(text + start, end - start);
    _cleanup_free_ char *name = whole ? literal(whole) : NULL, *code = literal(completed);
    run(session, has_frame ? &place : NULL, &reply, "repr",
        "(lambda _p: exec(%s, _p) or _p['say'])({})(%s, {**vars(__import__('builtins')), "
        "**globals(), **locals()})",
        code ? code : "", name ? name : "''");
    json_t *found = reply.error ? NULL : json_loads(reply.text, 0, NULL);
    if (!found)
        return request_fail_by(&reply, why);
    json_t *targets = json_array();
    json_array_foreach(found, i, row)
        json_array_append_new(targets,
                              json_pack("{sOsOsIsI}", "label", json_array_get(row, 0), "type",
                                        json_array_get(row, 1), "start", (json_int_t)last, "length",
                                        (json_int_t)(end - last)));
    json_decref(found);
    return json_pack("{so}", "targets", targets);
}
