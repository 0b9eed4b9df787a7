#include "contrib/dap/modules.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"

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
        json_array_append_new(sources, paths_source(&session->paths, member_words(row, "file")));
    json_decref(rows);
    return json_pack("{so}", "sources", sources);
}
