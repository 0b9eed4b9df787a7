#include "fs/events/events.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"

#include <errno.h>

#define PAUSE_MIN 5000000u           /* between two looks; twice as long after each in vain */
#define PAUSE_MAX 80000000u          /* ns */
#define PAUSE_TOLD PROTO_HAPPENED_NS /* once an agent has said that there is something */
#define LOOKUP_INTERVAL 80000000u    /* at processes themselves */
#define LIST_INTERVAL 500000000u     /* for new ones, where somebody reads of all */

/* ---- the threads ---- */

/* Sleeps until somebody raises the flag, which *told says and is taken down then. False: it is to
 * end. */
static bool sleep_until_look(struct events *events, uint64_t pause, bool *flag, bool *told)
{
    _guard_mutex_(&events->lock);
    while (!events->first && !events->all && !events->ending)
        pthread_cond_wait(&events->changed, &events->lock);
    const struct timespec until = timespec_of(monotonic_ns() + pause);
    while (!events->ending && !*flag &&
           pthread_cond_clockwait(&events->changed, &events->lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    *told = *flag;
    *flag = false;
    return !events->ending;
}

/* An agent says so, on a thread of its session. */
static void on_happened(void *arg)
{
    struct events *events = arg;

    _guard_mutex_(&events->lock);
    events->happened = events->may_have_come = true;
    pthread_cond_broadcast(&events->changed);
}

static void drop_unread(struct events *events)
{
    _guard_mutex_(&events->lock);
    for (struct source **at = &events->first; *at;) {
        struct source *source = *at;
        if (source->taps || source->asking) {
            at = &source->next;
            continue;
        }
        *at = source->next;
        feed_free(source->feed);
        seen_free(source->seen);
        seen_free(source->fresh);
        free(source);
    }
}

/* Whether it has a reader of its own. Of the others there may be many, which are
 * listed now and then. */
static bool is_looked_up(struct events *events, const struct source *source)
{
    _guard_mutex_(&events->lock);
    return source_is_read_alone(source);
}

/* Has the registry see what became of a process: an agent, an end, another program. */
static void look_up(struct events *events, const struct source *source)
{
    struct process *process = feed_process(source->feed), *now = NULL;

    if (process_ended(process))
        return;
    if (!process_alive(process))
        registry_notice(events->registry, process->pid);
    else if (is_looked_up(events, source) &&
             registry_lookup(events->registry, process->pid, &now) == 0)
        process_unref(now);
}

bool source_is_read_alone(const struct source *source)
{
    const struct tap *tap = source->taps;

    while (tap && tap->reader->all)
        tap = tap->next_of_source;
    return tap != NULL;
}

/* Whether there is somebody to tell what is seen of it from outside. */
static bool take_fresh(struct events *events, struct source *source)
{
    struct seen *before = NULL;
    bool wanted;
    {
        _guard_mutex_(&events->lock);
        wanted = source_is_read_alone(source);
        if (source->fresh) {
            before = source->seen;
            source->seen = steal_pointer(source->fresh);
        }
    }
    seen_free(before);
    return wanted && source->seen;
}

static void see(struct events *events, struct source *source)
{
    _cleanup_(text_deinit) struct text lines = TEXT_INIT;

    if (!take_fresh(events, source) || process_ended(feed_process(source->feed)))
        return;
    seen_look(source->seen, events->registry, &lines);
    if (text_finish(&lines) < 0 || !lines.size)
        return;
    _guard_mutex_(&events->lock);
    feed_add(source->feed, &lines);
}

static struct source *first_source(struct events *events)
{
    _guard_mutex_(&events->lock);
    return events->first;
}

/* Has the rings be found that were made for what has happened. */
static void expect_rings(struct events *events)
{
    for (struct source *source = first_source(events); source; source = source->next)
        if (!process_ended(feed_process(source->feed)))
            registry_watch(events->registry, feed_process(source->feed));
}

/* With the lock. */
static void forget_read(struct source *source)
{
    uint64_t line = UINT64_MAX;

    for (const struct tap *tap = source->taps; tap; tap = tap->next_of_source)
        line = tap->at.line < line ? tap->at.line : line;
    feed_forget(source->feed, line);
}

/* ---- asking others ---- */

struct asking {
    struct events *events;
    struct source *source;
    struct feed_look look;
};

static void *asking_main(void *arg)
{
    struct asking *asking = arg;
    struct events *events = asking->events;
    struct source *source = asking->source;
    struct waiter *done = NULL;

    feed_look_ask(source->feed, &asking->look);
    {
        _guard_mutex_(&events->lock);
        if (feed_look_end(source->feed, &asking->look))
            event_skip_old(source);
        event_collect(source, &done);
    }
    event_finish(done);
    bool failed = asking->look.error < 0;
    feed_look_deinit(&asking->look);
    free(asking);
    {
        _guard_mutex_(&events->lock);
        source->asking = false;
        source->again_ns = failed ? monotonic_ns() + PAUSE_MAX : 0;
        shares_give(&events->asking, source->uid);
        pthread_cond_broadcast(&events->changed); /* who ends waits for it */
    }
    return NULL;
}

/* Begins to ask, if there is anything to be asked for. With the lock. */
static bool ask(struct events *events, struct source *source)
{
    bool may = !source->asking && monotonic_ns() >= source->again_ns;
    struct asking *asking = may ? malloc(sizeof *asking) : NULL;
    pthread_t thread;

    if (!asking)
        return false;
    *asking = (struct asking){.events = events, .source = source};
    bool any = feed_look_begin(source->feed, &asking->look);
    if (any && shares_take(&events->asking, source->uid) == 0) {
        source->asking = worker_start(asking_main, asking, "probefs-asking", &thread) == 0;
        if (source->asking)
            pthread_detach(thread);
        else
            shares_give(&events->asking, source->uid);
    }
    if (source->asking)
        return true;
    feed_look_deinit(&asking->look);
    free(asking);
    return any;
}

bool source_look(struct events *events, struct source *source)
{
    return feed_is_asked_for(source->feed) ? ask(events, source) : feed_look(source->feed);
}

static bool any_is_asking(const struct events *events)
{
    const struct source *source = events->first;

    while (source && !source->asking)
        source = source->next;
    return source;
}

/* Whether anything had happened. */
static bool look(struct events *events)
{
    struct waiter *done = NULL;
    bool any = false;
    {
        _guard_mutex_(&events->lock);
        for (struct source *source = events->first; source; source = source->next) {
            any |= source_look(events, source);
            event_collect(source, &done);
            forget_read(source);
        }
    }
    event_finish(done);
    return any;
}

static bool any_reads_all(struct events *events)
{
    _guard_mutex_(&events->lock);
    return events->all;
}

/* Finds new processes for those who read of all. */
static void list_all(struct events *events)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    if (!any_reads_all(events) || job_processes(events->registry, NULL, 0, NULL, NULL, &list) < 0)
        return;
    _guard_mutex_(&events->lock);
    for (struct event_reader *reader = events->all; reader; reader = reader->next)
        (void)event_reader_update(reader, &list); /* what there is no memory for now is missed */
}

/* Waits for nobody. */
static void *follow_main(void *arg)
{
    struct events *events = arg;
    uint64_t pause = PAUSE_MIN;
    bool told;

    while (sleep_until_look(events, pause, &events->may_have_come, &told)) {
        bool any = look(events);
        if (told) /* it isn't said again of what comes right behind it */
            pause = PAUSE_TOLD;
        else if (any)
            pause = PAUSE_MIN;
        else
            pause = pause * 2 < PAUSE_MAX ? pause * 2 : PAUSE_MAX;
    }
    return NULL;
}

/* What is to be followed: processes and rings that are new, what has ended. Who is asked for that
 * may not answer for a while. */
static void *find_main(void *arg)
{
    struct events *events = arg;
    uint64_t looked_up = 0, listed = 0;
    bool told;

    while (sleep_until_look(events, LOOKUP_INTERVAL, &events->happened, &told)) {
        drop_unread(events);
        if (told)
            expect_rings(events);
        uint64_t now = monotonic_ns();
        if (now - looked_up >= LOOKUP_INTERVAL) {
            looked_up = now;
            for (struct source *source = first_source(events); source; source = source->next) {
                look_up(events, source);
                see(events, source);
            }
        }
        if (now - listed >= LIST_INTERVAL) {
            listed = now;
            list_all(events);
        }
        _guard_mutex_(&events->lock);
        events->may_have_come |= told;
        if (told)
            pthread_cond_broadcast(&events->changed);
    }
    return NULL;
}

int events_start(struct events *events)
{
    if (!events->finds)
        events->finds = worker_start(find_main, events, "probefs-find", &events->finder) == 0;
    if (events->finds && !events->running)
        events->running = worker_start(follow_main, events, "probefs-events", &events->thread) == 0;
    return events->running ? 0 : -EAGAIN;
}

/* ---- its life ---- */

int events_new(struct registry *registry, struct events **out)
{
    struct events *events = calloc(1, sizeof *events);
    if (!events)
        return -ENOMEM;
    events->registry = registry;
    events->shares = (struct shares){.all = EVENT_READERS_MAX,
                                     .each = EVENT_READERS_EACH,
                                     .kept = EVENT_READERS_KEPT};
    events->asking = (struct shares){.all = EVENTS_ASKED_MAX,
                                     .each = EVENTS_ASKED_EACH,
                                     .kept = EVENTS_ASKED_KEPT};
    pthread_mutex_init(&events->lock, NULL);
    pthread_cond_init(&events->changed, NULL);
    registry_on_happened(registry, on_happened, events);
    *out = events;
    return 0;
}

void events_end(struct events *events)
{
    struct waiter *done = NULL;

    registry_on_happened(events->registry, NULL, NULL);
    {
        _guard_mutex_(&events->lock);
        events->ending = true;
        pthread_cond_broadcast(&events->changed);
    }
    if (events->running)
        pthread_join(events->thread, NULL);
    if (events->finds)
        pthread_join(events->finder, NULL);
    events->running = events->finds = false;
    {
        _guard_mutex_(&events->lock);
        while (any_is_asking(events))
            pthread_cond_wait(&events->changed, &events->lock);
        for (struct source *source = events->first; source; source = source->next)
            for (struct tap *tap = source->taps; tap; tap = tap->next_of_source)
                event_collect_failed(tap->reader, &done, ENODEV);
        for (struct event_reader *reader = events->all; reader; reader = reader->next)
            event_collect_failed(reader, &done, ENODEV);
    }
    event_finish(done);
}

void events_free(struct events *events)
{
    if (!events)
        return;
    events_end(events);
    drop_unread(events);
    shares_deinit(&events->shares);
    shares_deinit(&events->asking);
    pthread_cond_destroy(&events->changed);
    pthread_mutex_destroy(&events->lock);
    free(events);
}
