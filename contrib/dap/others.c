#include "contrib/dap/others.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/files.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"

/* The same as this one was begun with, for another process. New. */
static json_t *configuration_of(const json_t *attach, const json_t *row)
{
    json_t *configuration = json_object(), *value;
    json_int_t pid = member_number(row, "pid");
    const char *name;

    json_object_foreach((json_t *)attach, name,
                        value) if (strncmp(name, "__", 2) != 0 && strcmp(name, "ranks") != 0)
        json_object_set(configuration, name, value);
    json_object_set_new(configuration, "processId", json_integer(pid));
    json_object_set_new(configuration, "name",
                        json_sprintf("rank %lld (%lld)", (long long)member_number(row, "rank"),
                                     (long long)pid));
    return configuration;
}

/* An array; NULL: *reply has the words. */
static json_t *read_ranks(struct session *session, const json_t *attach, struct reply *reply)
{
    const char *mount = member_text(attach, "mount");
    struct files all;

    files_init(&all);
    if (asprintf(&all.directory, "%s/all", mount ? mount : session->mount) < 0)
        all.directory = NULL;
    json_t *rows = files_query(&all, reply,
                               "SELECT pid, rank FROM process WHERE job = (SELECT job FROM process "
                               "WHERE pid = %d) AND rank NOT NULL AND worker IS NOT 1 AND "
                               "pid <> %d ORDER BY rank",
                               (int)session->pid, (int)session->pid);
    files_deinit(&all);
    return rows;
}

void others_of_job(struct session *session, const json_t *attach)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = read_ranks(session, attach, &reply), *row;
    _cleanup_free_ char *why = rows ? NULL : reply_words(&reply);
    size_t i;

    if (!rows)
        session_say(session, why ? why : "[out of memory]");
    else if (!json_array_size(rows))
        session_say(session, "[it is no rank of a job that has others on this machine]");
    else if (!session->begins_others)
        session_say(session, "[this editor begins no further sessions: attach to each rank]");
    else
        json_array_foreach(rows, i, row)
            session_ask(session, "startDebugging",
                        json_pack("{ssso}", "request", "attach", "configuration",
                                  configuration_of(attach, row)));
    json_decref(rows);
}
