#include "contrib/dap/modules.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"

void modules_init(struct modules *modules)
{
    *modules = (struct modules){.told = json_object(), .seen = json_object()};
}

json_t *modules_list(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_int_t start = member_number(arguments, "startModule"),
               count = member_number(arguments, "moduleCount");
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT name AS id, name, file AS path, interpreter, count(*) OVER "
                               "() AS total FROM modules "
                               "WHERE name NOT NULL ORDER BY name LIMIT %lld OFFSET %lld",
                               (long long)(count > 0 ? count : -1), (long long)start);
    json_int_t total = member_number(json_array_get(rows, 0), "total");
    json_t *row;
    size_t i;

    if (!rows)
        return request_fail_by(&reply, why);
    json_array_foreach(rows, i, row)
    {
        if (json_is_null(json_object_get(row, "path")))
            json_object_del(row, "path");
        json_object_set_new(session->modules.told, member_words(row, "name"), json_true());
        json_object_del(row, "total");
        json_object_del(row, "interpreter");
    }
    return json_pack("{sosI}", "modules", rows, "totalModules", total);
}

json_t *modules_sources(struct session *session, const json_t *arguments, char **why)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = files_query(&session->files, &reply,
                               "SELECT DISTINCT file FROM modules WHERE file LIKE '%%.py'"),
           *sources = json_array(), *row;
    size_t i;

    if (!rows) {
        json_decref(sources);
        return request_fail_by(&reply, why);
    }
    json_array_foreach(rows, i, row)
    {
        json_object_set_new(session->modules.told, member_words(row, "file"), json_true());
        json_array_append_new(sources, paths_source(&session->paths, member_words(row, "file")));
    }
    json_decref(rows);
    return json_pack("{so}", "sources", sources);
}

/* ---- those that come up ---- */

void modules_see(struct session *session, const char *file)
{
    if (!json_object_get(session->modules.told, file))
        json_object_set_new(session->modules.seen, file, json_true());
}

/* `'a', 'b'`: the files that are to be told of, by both of their names. NULL: no memory. The
 * caller's. */
static char *list_seen(struct session *session)
{
    json_t *unused;
    const char *file;
    char *list = NULL;
    size_t size;
    FILE *out = open_memstream(&list, &size);

    if (!out)
        return NULL;
    fputs("''", out);
    json_object_foreach(session->modules.seen, file, unused)
    {
        _cleanup_free_ char *whole = paths_whole(&session->paths, file);
        fputs(", ", out);
        files_put_text(out, file);
        fputs(", ", out);
        files_put_text(out, whole ? whole : file);
    }
    fclose(out);
    return list;
}

static void tell_modules(struct session *session, const json_t *rows)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const char *name = member_words(row, "name");
        if (json_object_get(session->modules.told, name))
            continue;
        json_object_set_new(session->modules.told, name, json_true());
        json_t *source = paths_source(&session->paths, member_words(row, "file"));
        session_tell(session, "module",
                     json_pack("{sss{sOsOsO*}}", "reason", "new", "module", "id",
                               json_object_get(row, "name"), "name", json_object_get(row, "name"),
                               "path", json_object_get(source, "path")));
        json_decref(source);
    }
}

void modules_tell(struct session *session, const json_t *arguments)
{
    json_t *seen = session->modules.seen, *unused;
    const char *file;

    if (!json_object_size(seen))
        return;
    _cleanup_reply_ struct reply reply = {0};
    _cleanup_free_ char *list = list_seen(session);
    json_t *rows = list ? files_query(&session->files, &reply,
                                      "SELECT name, file FROM modules WHERE name NOT NULL AND "
                                      "file IN (%s) ORDER BY name",
                                      list)
                        : NULL;
    tell_modules(session, rows);
    json_decref(rows);
    json_object_foreach(seen, file, unused)
    {
        session_tell(session, "loadedSource",
                     json_pack("{ssso}", "reason", "new", "source",
                               paths_source(&session->paths, file)));
        json_object_set_new(session->modules.told, file, json_true());
    }
    json_object_clear(seen);
}
