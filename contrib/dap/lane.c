#include "contrib/dap/lane.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define AGAIN_NS 20000000 /* the signal may come just before the call that it is to interrupt */
#define AGAIN_MAX 25      /* times */

static void *run(void *arg)
{
    struct lane *lane = arg;

    pthread_mutex_lock(&lane->lock);
    while (!lane->is_over) {
        if (!json_array_size(lane->waiting)) {
            pthread_cond_wait(&lane->changed, &lane->lock);
            continue;
        }
        json_t *request = json_incref(json_array_get(lane->waiting, 0));
        json_array_remove(lane->waiting, 0);
        lane->running = member_number(request, "seq");
        lane->cancelled = false;
        pthread_mutex_unlock(&lane->lock);
        lane->serve(lane->arg, request);
        json_decref(request);
        pthread_mutex_lock(&lane->lock);
        lane->running = 0;
        pthread_cond_broadcast(&lane->changed);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

int lane_start(struct lane *lane, void (*serve)(void *arg, json_t *request), void *arg)
{
    *lane = (struct lane){.serve = serve, .arg = arg, .waiting = json_array()};
    if (!lane->waiting)
        return -ENOMEM;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    return -pthread_create(&lane->thread, NULL, run, lane);
}

void lane_add(struct lane *lane, json_t *request)
{
    _guard_mutex_(&lane->lock);

    json_array_append(lane->waiting, request);
    pthread_cond_broadcast(&lane->changed);
}

/* Until it has ended, or heeds no signal. The lock is held. */
static void interrupt(struct lane *lane)
{
    int64_t running = lane->running;
    struct timespec until;

    lane->cancelled = true;
    for (int i = 0; i < AGAIN_MAX && lane->running == running && running; i++) {
        pthread_kill(lane->thread, SIGUSR1);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += AGAIN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&lane->changed, &lane->lock, &until);
    }
}

json_t *lane_cancel(struct lane *lane, int64_t seq)
{
    json_t *request;
    size_t i;
    _guard_mutex_(&lane->lock);

    json_array_foreach(lane->waiting, i, request)
    {
        if (member_number(request, "seq") != seq)
            continue;
        json_incref(request);
        json_array_remove(lane->waiting, i);
        return request;
    }
    if (seq && lane->running == seq)
        interrupt(lane);
    return NULL;
}

bool lane_is_cancelled(struct lane *lane)
{
    _guard_mutex_(&lane->lock);

    return lane->cancelled;
}

void lane_stop(struct lane *lane)
{
    _guard_mutex_(&lane->lock);

    lane->is_over = true;
    json_array_clear(lane->waiting);
    pthread_cond_broadcast(&lane->changed);
    interrupt(lane);
}
