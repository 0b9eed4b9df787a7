#include "fs/owner/serve.h"

#include "fs/base/array.h"
#include "fs/format/agent.h"
#include "fs/format/held.h"
#include "fs/format/identity.h"
#include "fs/format/stacks.h"
#include "fs/link/found.h"
#include "fs/proc/procfs.h"
#include "fs/process/examiner.h"
#include "fs/process/exited.h"
#include "fs/process/registry.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/memory/core.h"
#include "fs/tables/scene.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/heap.h"
#include "fs/tree/sources.h"
#include "fs/tree/thread_order.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void owner_answer_deinit(struct owner_answer *answer)
{
    for (size_t i = 0; i < answer->nnames; i++) {
        process_unref(answer->names[i].number.process);
        free(answer->names[i].number.word);
    }
    free(answer->names);
    text_deinit(&answer->text);
    text_deinit(&answer->why);
    process_unref(answer->process);
}

int owner_answer_add(struct owner_answer *answer, const struct owner_name *name)
{
    int r = ARRAY_GROW(answer->names, answer->alloc, answer->nnames + 1);
    if (r < 0) {
        process_unref(name->number.process);
        free(name->number.word);
        return r;
    }
    answer->names[answer->nnames++] = *name;
    return 0;
}

static bool thread_exists(const struct target *target, pid_t tid)
{
    if (target->core) /* which may be read elsewhere */
        return !target->core->lwps.n || core_thread(target->core, tid);
    return proc_has_thread(target->pid, tid);
}

int context_init(struct file_context *context, const struct server *server, struct process *process,
                 const struct owner_call *call)
{
    const struct entry *entry = &layout[call->entry];

    *context = (struct file_context){
        .registry = server->registry,
        .history = server->history,
        .replies = server->replies,
        .access = server->access,
        .statements = server->statements,
        .caller = &call->caller,
        .file = entry->path,
        .tid = call->tid,
        .depth = call->depth,
        .rank = call->rank,
        .word = call->word,
        .part = call->part,
        .sampled = call->sampled,
        .agent = call->agent,
    };
    if (!process)
        return 0;
    context->process = process_ref(process);
    context->recording = process_recording(process);
    if (entry_exited(entry))
        return exited_has(registry_exited(server->registry), process) ? 0 : -ESRCH;
    bool held = server->keeps || server->asks;
    struct target *target = held                ? process_held(process)
                            : entry_rows(entry) ? scene_target(process)
                                                : process_target(process);
    bool is_there = target && (!call->tid || thread_exists(target, call->tid)) &&
                    target_alive(target);
    if (server->keeps && !server->asks && target && !atomic_load(&target->found))
        target_unref(target);
    else
        context->target = target;
    return is_there ? 0 : -ESRCH;
}

void context_refresh(struct file_context *context)
{
    struct process *process = context->process;

    if (process && !process_is_core(process) && process_alive(process))
        registry_watch(context->registry, process);
}

void context_deinit(struct file_context *context)
{
    target_unref(context->target);
    process_unref(context->process);
    text_deinit(&context->why);
}

static int render(struct file_context *context, const struct entry *entry, struct text *out)
{
    int r = entry->render(context, out);

    return r == 0 ? text_finish(out) : r;
}

static int list_numbers(struct file_context *context, const struct entry *entry,
                        struct owner_answer *answer)
{
    _cleanup_(numbers_deinit) struct numbers numbers = {0};
    struct owner_name name = {.entry = (uint32_t)(entry - layout)};

    int r = entry->naming->list(context, &numbers);
    for (size_t i = 0; r == 0 && i < numbers.n; i++) {
        name.number = numbers.items[i];
        numbers.items[i] = (struct number){0};
        r = owner_answer_add(answer, &name);
    }
    return r;
}

static int list(struct file_context *context, const struct entry *directory,
                struct owner_answer *answer)
{
    int r = 0;

    for (const struct entry *e = NULL; r == 0 && (e = layout_next(directory, e));) {
        const struct owner_name name = {.entry = (uint32_t)(e - layout)};
        if ((e->listed && !e->listed(context)) || (e->is_there && !e->is_there(context)))
            continue;
        r = e->naming ? list_numbers(context, e, answer) : owner_answer_add(answer, &name);
    }
    return r;
}

static int find(struct file_context *context, const struct owner_call *call,
                struct owner_answer *answer)
{
    int r = layout[call->child].naming->find(context, call->value);

    if (r == 0)
        answer->process = steal_pointer(context->process);
    return r;
}

static void examine(struct file_context *context, bool now, struct text *out)
{
    struct owner_examined examined;
    struct found_agent agent;

    memset(&examined, 0, sizeof examined);
    if (now)
        membership_now(context->target, &examined.membership);
    else
        membership_of_start(context->target->pid, &examined.membership);
    if (found_agent_find(&context->target->memory, &agent) == 0) {
        examined.base = agent.base;
        examined.bias = agent.bias;
        examined.record_addr = agent.record_addr;
        examined.start_addr = agent.start_addr;
        examined.pid = agent.pid;
    }
    text_add(out, (const char *)&examined, sizeof examined);
}

static int stacks(struct file_context *context, uint32_t form, struct text *out)
{
    if (form >= STACKS_FORMS)
        return -EINVAL;
    int r = stacks_texts[form](context->target, context->recording, &context->why, out);
    return r == 0 ? text_finish(out) : r;
}

int owner_add_kept(const struct server *server, struct process *process,
                   const struct owner_call *call, struct owner_answer *answer)
{
    _cleanup_context_ struct file_context context = {0};
    const struct entry *directory = &layout[call->entry];

    int r = context_init(&context, server, process, call);
    for (const struct entry *e = NULL; r == 0 && (e = layout_next(directory, e));) {
        const struct owner_name name = {.entry = (uint32_t)(e - layout)};
        bool has = !e->is_there;
        for (size_t i = 0; i < answer->nnames && !has; i++)
            has = answer->names[i].entry == name.entry;
        if (!has && e->is_there(&context))
            r = owner_answer_add(answer, &name);
    }
    return r;
}

static int is_own(struct file_context *context, pid_t tid, uint64_t *out)
{
    _cleanup_(held_list_deinit) struct held_list agent = {0};

    int r = held_list_read(context->target, context->recording, &agent);
    *out = held_is_own(&agent, tid);
    return r;
}

static int count_running(struct file_context *context, uint64_t *gil_held, uint64_t *counts)
{
    const struct snapshot_options options = {.depth = 1};
    struct snapshot *snapshot = NULL;

    int r = snapshot_take(context->target, &options, &snapshot);
    if (r == 0 && !snapshot->supported)
        r = -EOPNOTSUPP;
    for (size_t i = 0; r == 0 && i < snapshot->nthreads; i++) {
        *counts += snapshot->threads[i].state == THREAD_RUNNING;
        *counts += snapshot->threads[i].waits_gil ? UINT64_C(1) << 32 : 0;
    }
    *gil_held = r == 0 && snapshot->gil_held;
    snapshot_free(snapshot);
    return r;
}

/* Says what has to be known, in numbers. */
static int tell(struct file_context *context, const struct owner_call *call, struct text *out)
{
    uint64_t first = 0, second = 0;
    struct text *words = &context->why;
    int64_t interp = 0;
    int r = 0;

    switch (call->value) {
    case ASKED_THREAD:
        r = snapshot_find_thread(context, call->tid, &first, &interp);
        second = (uint64_t)interp;
        break;
    case ASKED_GIL:
        first = agent_session_gil_interval(context, call->interp);
        second = agent_session_patience(context, call->interp);
        break;
    case ASKED_OWN: r = is_own(context, call->tid, &first); break;
    case ASKED_RUNNING: r = count_running(context, &first, &second); break;
    case ASKED_WAIT: agent_session_say_waited(context, call->depth, call->word); break;
    case ASKED_FREE_THREADED: first = context->target->runtime.free_threaded; break;
    case ASKED_HELD: r = thread_held_since(context, &first); break;
    case ASKED_ALL_HELD: first = ctl_all_held(context); break;
    case ASKED_AGENT: agent_text_passive(context->target, words); break;
    case ASKED_STOPPED: held_text_all(context->target, words); break;
    case ASKED_STOPPED_MANY: held_text_count(context->target, words); break;
    case ASKED_STATE: r = thread_state_text(context, words); break;
    case ASKED_TIMEOUTS: ctl_add_timeouts(context, words); break;
    default: return -EOPNOTSUPP;
    }
    text_printf(out, "%" PRIu64 " %" PRIu64, first, second);
    return r == 0 ? text_finish(out) : r;
}

static int answer_in(struct file_context *context, const struct owner_call *call,
                     struct owner_answer *answer)
{
    switch (call->op) {
    case OWNER_RENDER: return render(context, &layout[call->entry], &answer->text);
    case OWNER_LIST: return list(context, &layout[call->entry], answer);
    case OWNER_FIND: return find(context, call, answer);
    case OWNER_HAS: return layout[call->child].is_there(context) ? 0 : -ENOENT;
    case OWNER_EXAMINE: examine(context, call->value, &answer->text); return answer->text.error;
    case OWNER_IDENTIFY:
        identity_program(context->target, &answer->text);
        return text_finish(&answer->text);
    case OWNER_TELL: return tell(context, call, &answer->text);
    case OWNER_STACKS: return stacks(context, call->value, &answer->text);
    default: return -EOPNOTSUPP;
    }
}

/* What was made of a call in a context, which came to r. */
static int take_words(struct file_context *context, int r, struct owner_answer *answer)
{
    answer->noted = r == 0 ? context->noted : 0;
    answer->why = context->why;
    context->why = TEXT_INIT;
    return answer->error = r;
}

int owner_serve(const struct server *server, struct process *process, struct credentials *who,
                const struct owner_call *call, const struct interrupt *interrupt,
                struct owner_answer *answer)
{
    _cleanup_context_ struct file_context context = {0};
    struct principals principals;

    int r = context_init(&context, server, process, call);
    if (who) {
        principals_init(&principals, who);
        context.principals = &principals;
    }
    context.interrupt = interrupt;
    if (r == 0) {
        context_refresh(&context);
        r = answer_in(&context, call, answer);
    }
    return take_words(&context, r, answer);
}

/* What a file is told of its process; NULL: nothing. */
static file_say *say_of(const struct entry *entry)
{
    return entry->run == frame_value_run                                    ? frame_value_say
           : entry->render == source_render                                 ? source_say
           : entry->render == sources_render                                ? sources_say
           : entry->render == heap_diff_render                              ? heap_diff_say
           : entry->render == top_render || entry->render == all_top_render ? top_say
           : entry->render == collectives_render                            ? collectives_say
           : entry->render == locks_render                                  ? locks_say
                                                                            : NULL;
}

int owner_say(const struct server *server, struct process *process, const struct owner_call *call,
              const char *line, size_t size, const struct interrupt *interrupt,
              struct owner_answer *answer)
{
    _cleanup_context_ struct file_context context = {0};
    file_say *say = say_of(&layout[call->entry]);

    int r = say ? context_init(&context, server, process, call) : -EOPNOTSUPP;
    context.interrupt = interrupt;
    context_refresh(&context);
    if (r == 0)
        r = say(&context, line, size, &answer->text);
    if (r == 0)
        r = text_finish(&answer->text);
    return take_words(&context, r, answer);
}
