#include "fs/mount/place_work.h"

#include "agent/base/cleanup.h"
#include "fs/proc/may_hang.h"

#include <errno.h>

struct place_work {
    struct may_hang work;
    int (*run)(struct place_work *work);
    struct call *call; /* only where there is no process: that isn't left behind */
    struct mount *mount;
    struct caller caller;
    struct credentials *who; /* a reference; NULL where that isn't asked */
    struct principals principals;
    struct place place; /* a reference to its process */
    const struct entry *entry;
    unsigned value; /* of a name that is looked for */

    struct file_context context;
    struct text text; /* what was rendered */
    struct listing *listing;
    int error;
};

static void place_work_run(struct may_hang *may_hang)
{
    struct place_work *work = (struct place_work *)may_hang;

    work->error = context_init(&work->context, work->mount, &work->place);
    work->context.caller = &work->caller;
    if (work->who) {
        principals_init(&work->principals, work->who);
        work->context.principals = &work->principals;
    }
    work->context.interrupt = &may_hang->unwanted;
    if (work->error < 0)
        return;
    context_refresh(&work->context);
    work->error = work->run(work);
}

static void place_work_free(struct may_hang *may_hang)
{
    struct place_work *work = (struct place_work *)may_hang;

    context_deinit(&work->context);
    text_deinit(&work->text);
    listing_free(work->listing);
    process_unref(work->place.process);
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
                                         int (*run)(struct place_work *work))
{
    struct place_work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    *work = (struct place_work){
        .work = {.pid = is_read(place) ? place->process->pid : 0,
                 .run = place_work_run,
                 .free = place_work_free},
        .run = run,
        .call = place->process ? NULL : call,
        .mount = call->mount,
        .caller = call->caller,
        .place = *place,
        .text = TEXT_INIT,
    };
    if (place->process)
        process_ref(place->process);
    may_hang_init(&work->work);
    return work;
}

/* Nothing of the work may be touched if it returns true. */
static bool is_lost(struct call *call, struct place_work *work, int *error)
{
    *error = may_hang_run(&work->work, &call->interrupt);
    return *error < 0;
}

static int render(struct place_work *work)
{
    int r = work->place.entry->render(&work->context, &work->text);

    return r == 0 ? text_finish(&work->text) : r;
}

int place_render(struct call *call, const struct place *place, struct credentials *who,
                 struct text *out, struct text *why)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, render);
    int r;

    if (!work)
        return -ENOMEM;
    work->who = who ? credentials_ref(who) : NULL;
    if (is_lost(call, work, &r)) {
        may_hang_explain(r, why);
        return r;
    }
    text_add(why, work->context.why.data, work->context.why.size);
    if (work->error == 0) {
        *out = work->text;
        work->text = TEXT_INIT;
    }
    return work->error;
}

static bool sees(void *call, struct process *process) { return call_sees(call, process); }

/* Only a directory outside of processes has names of processes. */
static int list(struct place_work *work)
{
    return listing_new(&work->place, &work->context, sees, work->call, &work->listing);
}

int place_list(struct call *call, const struct place *place, struct listing **out)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, list);
    int r;

    if (!work)
        return -ENOMEM;
    if (is_lost(call, work, &r))
        return r;
    if (work->error == 0)
        *out = steal_pointer(work->listing);
    return work->error;
}

static int find(struct place_work *work)
{
    return work->entry->naming->find(&work->context, work->value);
}

int place_find(struct call *call, const struct place *place, const struct entry *entry,
               unsigned value, const char *word, struct process **out)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, find);
    int r;

    if (!work)
        return -ENOMEM;
    work->entry = entry;
    work->value = value;
    if (name_is_word(entry->naming->kind))
        place_set(&work->place, entry->naming->kind, 0, word);
    if (is_lost(call, work, &r))
        return r;
    if (work->error == 0)
        *out = steal_pointer(work->context.process);
    return work->error;
}

static int has(struct place_work *work)
{
    return work->entry->is_there(&work->context) ? 0 : -ENOENT;
}

int place_has(struct call *call, const struct place *place, const struct entry *entry)
{
    _cleanup_work_ struct place_work *work = place_work_new(call, place, has);
    int r;

    if (!work)
        return -ENOMEM;
    work->entry = entry;
    return is_lost(call, work, &r) ? r : work->error;
}
