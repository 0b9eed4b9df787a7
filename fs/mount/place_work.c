#include "fs/mount/place_work.h"

#include "agent/base/cleanup.h"
#include "fs/format/agent.h"
#include "fs/proc/may_hang.h"
#include "fs/process/jobs.h"
#include "fs/sampler/profile.h"
#include "fs/trace/claims.h"
#include "fs/tree/pids.h"
#include "fs/tree/profile_view.h"
#include "fs/tree/threads.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct place_work {
    struct may_hang work;
    struct server server;
    struct owners *owners;   /* who reads it; NULL: this process does */
    struct process *process; /* a reference; NULL outside of processes */
    struct credentials *who; /* a reference; NULL where that isn't asked */
    struct owner_call call;
    struct owner_answer answer;
};

static bool is_status(const struct place_work *work)
{
    return work->process && work->call.op == OWNER_RENDER &&
           layout[work->call.entry].render == status_render;
}

/* Whether this daemon talks with an agent in the process: of another one is told by who reads it.
 */
static bool has_agent(const struct place_work *work)
{
    struct target *target = process_held(work->process);
    struct session *session = target ? agent_session(target) : NULL;
    bool has = session;

    session_unref(session);
    target_unref(target);
    return has;
}

/* The lines of status that say how the process is sampled, and how its agent is, as far as that is
 * known here. */
static void describe(struct place_work *work)
{
    _cleanup_(text_deinit) struct text sampled = TEXT_INIT, agent = TEXT_INIT;

    if (!is_status(work))
        return;
    profile_add_line(work->process, &sampled);
    if (sampled.size <= OWNER_SAMPLED_MAX && sampled.size)
        memcpy(work->call.sampled, sampled.data, sampled.size);
    if (!work->owners || !has_agent(work))
        return;
    struct target *target = process_held(work->process);
    if (target)
        agent_text_passive(target, &agent);
    target_unref(target);
    if (agent.size <= OWNER_AGENT_MAX && agent.size)
        memcpy(work->call.agent, agent.data, agent.size);
}

static void place_work_run(struct may_hang *may_hang)
{
    struct place_work *work = (struct place_work *)may_hang;

    describe(work);
    if (!work->owners)
        owner_serve(&work->server, work->process, work->who, &work->call, &may_hang->unwanted,
                    &work->answer);
}

static void place_work_free(struct may_hang *may_hang)
{
    struct place_work *work = (struct place_work *)may_hang;

    owner_answer_deinit(&work->answer);
    process_unref(work->process);
    credentials_unref(work->who);
    free(work);
}

static void cleanup_place_work(struct place_work **work)
{
    if (*work)
        may_hang_unref(&(*work)->work);
}
#define _cleanup_work_ _cleanup_(cleanup_place_work)

/* What was written or failed before is shown without a look at the process. */
static bool is_read(const struct place *place)
{
    return place->process && !entry_exited(place->entry) && place->entry->render != errors_render &&
           place->entry->render != reply_render;
}

static struct place_work *place_work_new(struct call *call, const struct place *place,
                                         enum owner_op op)
{
    struct place_work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    *work = (struct place_work){
        .work = {.pid = is_read(place) ? place->process->pid : 0,
                 .run = place_work_run,
                 .free = place_work_free},
        .server = place_server(call->mount, place),
        .process = place->process ? process_ref(place->process) : NULL,
        .call = place_call(place, &call->caller),
        .answer = {.text = TEXT_INIT, .why = TEXT_INIT},
    };
    work->call.op = op;
    if (place->process) {
        work->call.membership = process_membership(place->process);
        work->call.is_worker = process_is_worker(place->process);
    }
    may_hang_init(&work->work);
    return work;
}

/* Whether an owner process can tell: what is asked for is the entry's, or its child's name. */
static bool is_told_by_owner(const struct place_work *work)
{
    const struct entry *entry = &layout[work->call.entry], *child = &layout[work->call.child];

    switch (work->call.op) {
    case OWNER_RENDER: return entry_passive(entry);
    case OWNER_FIND: /* which threads there are /proc says */
        return entry_names_passive(child) && (child->naming != &tids || entry_core(child));
    case OWNER_LIST:
        if (entry_core(entry))
            return true;
        child = layout_next(entry, NULL);
        return entry->naming == &pids || (child && child->naming && entry_names_passive(child));
    default: return false;
    }
}

/* The error of the answer; *lost: it was left behind, and nothing of it may be touched. */
static int ask_here(struct call *call, struct place_work *work, bool *lost)
{
    int r = may_hang_run(&work->work, &call->interrupt);

    *lost = r < 0;
    return *lost ? r : work->answer.error;
}

/* As ask_here(), by an owner process. */
static int ask_owner(struct call *call, struct place_work *work, bool *lost)
{
    work->owners = call->mount->owners;
    int r = 0;
    if (is_status(work) && (profile_any(work->process->profile) || has_agent(work)))
        r = ask_here(call, work, lost); /* describe() */
    if (*lost)
        return r;
    return owners_ask(work->owners, work->who, &work->call, &work->work, &call->interrupt,
                      &work->answer);
}

static int ask(struct call *call, struct place_work *work, bool *lost)
{
    bool is_read = work->work.pid; /* else it is shown without a look at the process */
    bool told = is_read && is_told_by_owner(work);

    *lost = false;
    /* only who traces it can stop its threads */
    if (call->mount->owners && told && !claim_exists(work->work.pid))
        return ask_owner(call, work, lost);
    work->server.keeps = call->mount->owners && !told &&
                         (work->call.op != OWNER_RENDER || !is_read);
    work->server.asks = call->mount->owners && entry_asks(&layout[work->call.entry]);
    return ask_here(call, work, lost);
}

/* Notes what failed, for <pid>/errors. */
static void note(const struct place *place, struct credentials *who,
                 const struct owner_answer *answer)
{
    char path[64 + NAME_MAX];

    place_path(place, path, sizeof path);
    error_ring_add(&place->process->errors, who, path, answer->noted, answer->why.data);
}

/* What shows which rank a process is, or works for. */
static bool shows_membership(const struct entry *entry)
{
    return !strcmp(entry->path, "<pid>/tables/process.csv");
}

int place_render(struct call *call, const struct place *place, struct credentials *who,
                 struct text *out, struct text *why)
{
    bool lost;

    if (shows_membership(place->entry))
        (void)jobs_learn(call->mount->registry); /* else it is what is known of it */
    _cleanup_work_ struct place_work *work = place_work_new(call, place, OWNER_RENDER);

    if (!work)
        return -ENOMEM;
    work->who = who ? credentials_ref(who) : NULL;
    int r = ask(call, work, &lost);
    if (lost) {
        may_hang_explain(r, why);
        return r;
    }
    if (work->answer.noted)
        note(place, who, &work->answer);
    if (r < 0)
        text_add(why, work->answer.why.data, work->answer.why.size);
    if (r == 0) {
        *out = work->answer.text;
        work->answer.text = TEXT_INIT;
    }
    return r;
}

static bool sees(void *call, struct process *process) { return call_sees(call, process); }

int place_list(struct call *call, const struct place *place, struct listing **out)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, OWNER_LIST);
    bool lost;

    if (!work)
        return -ENOMEM;
    int r = ask(call, work, &lost);
    if (r == 0 && work->owners) {
        work->server.keeps = true;
        r = owner_add_kept(&work->server, place->process, &work->call, &work->answer);
    }
    return r == 0 ? listing_new(place, &work->answer, sees, call, out) : r;
}

int place_find(struct call *call, const struct place *place, const struct entry *entry,
               unsigned value, const char *word, struct process **out)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, OWNER_FIND);
    bool lost;

    if (!work)
        return -ENOMEM;
    work->call.child = (uint32_t)(entry - layout);
    work->call.value = value;
    if (entry->naming->kind == WORD_PROFILE)
        snprintf(work->call.part, sizeof work->call.part, "%s", word);
    else if (name_is_word(entry->naming->kind))
        snprintf(work->call.word, sizeof work->call.word, "%s", word);
    int r = ask(call, work, &lost);
    if (r == 0 && work->owners) /* names in a process's own directories are its own */
        *out = process_ref(place->process);
    else if (r == 0)
        *out = steal_pointer(work->answer.process);
    return r;
}

int place_has(struct call *call, const struct place *place, const struct entry *entry)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, OWNER_HAS);
    bool lost;

    if (!work)
        return -ENOMEM;
    work->call.child = (uint32_t)(entry - layout);
    int r = ask(call, work, &lost);
    if (r == -ENOENT && !lost && call->mount->owners && work->work.pid)
        r = ask_owner(call, work, &lost); /* what isn't kept here may be in the process */
    return r;
}
