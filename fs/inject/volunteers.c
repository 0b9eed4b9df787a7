#include "fs/inject/volunteers.h"

#include "fs/proc/lwp.h"

#include <stdlib.h>
#include <string.h>

#define IN_USE "SR" /* states of proc(5) in which a thread can be stopped soon */

void volunteers_init(struct volunteers *volunteers, pid_t pid)
{
    *volunteers = (struct volunteers){.pid = pid};
}

void volunteers_deinit(struct volunteers *volunteers)
{
    free(volunteers->tids);
    volunteers->tids = NULL;
}

static bool is_fit(char state) { return state && strchr(IN_USE, state); }

/* Lists the threads that sleep, then those that run. */
static void list_others(struct volunteers *v)
{
    struct lwp_list list;

    free(v->tids);
    v->tids = NULL;
    v->n = v->next = 0;
    if (lwp_list_read(v->pid, LWP_STATES, &list) < 0)
        return;
    v->tids = calloc(list.n, sizeof *v->tids);
    for (const char *state = IN_USE; v->tids && *state; state++)
        for (size_t i = 0; i < list.n; i++)
            if (list.items[i].tid != v->pid && list.items[i].state == *state)
                v->tids[v->n++] = list.items[i].tid;
    lwp_list_deinit(&list);
}

static pid_t next_other(struct volunteers *v)
{
    if (v->next == v->n)
        list_others(v);
    return v->next < v->n ? v->tids[v->next++] : 0;
}

pid_t volunteers_next(struct volunteers *v)
{
    bool fit = is_fit(lwp_state(v->pid, v->pid));
    pid_t other = v->turn++ & 1 || !fit ? next_other(v) : 0;

    return other ? other : fit ? v->pid : 0;
}
