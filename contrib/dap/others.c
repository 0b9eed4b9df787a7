#include "contrib/dap/others.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/files.h"
#include "contrib/dap/member.h"
#include "contrib/dap/session.h"

static bool wants(const struct session *session, const char *which)
{
    return json_is_true(json_object_get(session->wanted, which));
}

/* kind: what its name begins with. */
static void begin(struct session *session, const char *kind, json_int_t pid)
{
    json_t *configuration = json_object(), *value;
    const char *name;

    json_object_foreach(session->wanted, name, value) if (strncmp(name, "__", 2) != 0)
        json_object_set(configuration, name, value);
    json_object_del(configuration, "ranks");
    json_object_set_new(configuration, "processId", json_integer(pid));
    json_object_set_new(configuration, "name", json_sprintf("%s (%lld)", kind, (long long)pid));
    session_ask(session, "startDebugging",
                json_pack("{ssso}", "request", "attach", "configuration", configuration));
}

/* An array; NULL: *reply has the words. */
static json_t *read_ranks(struct session *session, struct reply *reply)
{
    const char *mount = member_text(session->wanted, "mount");
    struct files all;

    files_init(&all);
    if (asprintf(&all.directory, "%s/all", mount ? mount : session->mount) < 0)
        all.directory = NULL;
    json_t *rows = files_query(&all, reply,
                               "SELECT pid, 'rank ' || rank AS name FROM process WHERE job = "
                               "(SELECT job FROM process WHERE pid = %d) AND rank NOT NULL AND "
                               "worker IS NOT 1 AND pid <> %d ORDER BY rank",
                               (int)session->pid, (int)session->pid);
    files_deinit(&all);
    return rows;
}

void others_of_job(struct session *session)
{
    _cleanup_reply_ struct reply reply = {0};
    json_t *rows = wants(session, "ranks") ? read_ranks(session, &reply) : json_null(), *row;
    _cleanup_free_ char *why = rows ? NULL : reply_words(&reply);
    size_t i;

    if (!rows)
        session_say(session, why ? why : "[out of memory]");
    else if (json_is_array(rows) && !json_array_size(rows))
        session_say(session, "[it is no rank of a job that has others on this machine]");
    else if (json_is_array(rows) && !session->begins_others)
        session_say(session, "[this editor begins no further sessions: attach to each rank]");
    else
        json_array_foreach(rows, i, row)
            begin(session, member_words(row, "name"), member_number(row, "pid"));
    json_decref(rows);
}

void others_child(struct session *session, json_int_t pid)
{
    _cleanup_free_ char *words = NULL;

    if (!wants(session, "subProcess"))
        return;
    if (session->begins_others)
        begin(session, "child", pid);
    else if (asprintf(&words, "[it has a child, %lld: attach to that]", (long long)pid) >= 0)
        session_say(session, words);
}
