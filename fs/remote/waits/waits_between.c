/* Waits that end in other processes, and deadlocks of several processes.
 *
 * A process is stuck if each of its threads waits without a deadline, and every process that can
 * end one of these waits is stuck itself. So all that can be reached from one are supposed to be
 * stuck first, and those that needn't be are taken away until nothing changes; what is left can't
 * go on, but for signals and for what other hosts do. All of them slept from before the first to
 * after the last look, so that this was true at one moment. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/runs.h"
#include "fs/remote/waits/asked.h"
#include "fs/remote/waits/ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOK_NS 2000000000u /* that may be spent on finding ends and deadlocks, of one process */
#define PEERS_MAX 64        /* processes that are looked at */
#define PEERS_AT_ONCE 8     /* ... side by side: each that hangs keeps a thread */
#define POLLED_TOLD 8       /* descriptors of one thread that are told of */

#define HANGS "which hangs: a file system below it doesn't answer"

/* A process and what is known of it. */
struct node {
    struct peer peer;
    bool told;     /* its command line is known, or that it hangs */
    bool threads;  /* so are its threads */
    uint32_t name; /* waits_string(): once it is told of */
    bool stuck;
};

/* One thread of one process. */
struct link {
    size_t node, thread;
    bool known;      /* all that can end its wait are these */
    bool likely;     /* ... as far as the daemon can see */
    size_t first, n; /* in graph.holders */
    struct end end;  /* what is told of it: its first that another process can end */
};

struct graph {
    struct waits *waits;
    const struct waits_reader *reader;
    uint64_t until_ns; /* CLOCK_MONOTONIC: after that nothing more is looked at */
    bool goes_on;      /* a thread of the first can surely go on */
    struct descriptors descriptors;
    uint64_t age_ns; /* how old these may be */
    struct semaphores semaphores;
    struct sockets sockets;
    struct node *nodes; /* the first: the process that is asked for; behind it those that it waits
                           for */
    size_t nnodes, nodes_alloc, nwaited_for;
    struct link *links;
    size_t nlinks, links_alloc;
    size_t *holders; /* indices of nodes */
    size_t nholders, holders_alloc;
};

static void graph_deinit(struct graph *graph)
{
    for (size_t i = 0; i < graph->nnodes; i++)
        peer_deinit(&graph->nodes[i].peer);
    free(graph->nodes);
    free(graph->links);
    free(graph->holders);
    descriptors_deinit(&graph->descriptors);
    semaphores_deinit(&graph->semaphores);
    sockets_deinit(&graph->sockets);
}

static struct ends ends_of(struct graph *graph, pid_t pid)
{
    return (struct ends){pid,
                         graph->reader,
                         graph->until_ns,
                         graph->age_ns,
                         &graph->descriptors,
                         &graph->semaphores,
                         &graph->sockets};
}

/* What isn't known by then is left out, and that is told. */
static bool is_late(struct graph *graph)
{
    bool late = monotonic_ns() > graph->until_ns;

    graph->waits->late |= late;
    return late;
}

/* ---- processes ---- */

/* The index of a process, which is entered if there is room; -1: there is none, -ENOMEM. */
static ssize_t node_of(struct graph *graph, pid_t pid)
{
    for (size_t i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i].peer.pid == pid)
            return (ssize_t)i;
    if (graph->nnodes == PEERS_MAX)
        return -EAGAIN;
    if (ARRAY_GROW(graph->nodes, graph->nodes_alloc, graph->nnodes + 1) < 0)
        return -ENOMEM;
    graph->nodes[graph->nnodes] = (struct node){.peer.pid = pid};
    return (ssize_t)graph->nnodes++;
}

/* Reads those that aren't known yet, side by side: each may hang. */
static void read_nodes(struct graph *graph, bool threads)
{
    struct peer *unknown[PEERS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < graph->nnodes; i++) {
        struct node *node = &graph->nodes[i];
        if (threads ? node->threads : node->told)
            continue;
        node->told = true;
        node->threads |= threads;
        if (!node->peer.hangs)
            unknown[n++] = &node->peer;
    }
    for (size_t i = 0; i < n && !is_late(graph); i += PEERS_AT_ONCE)
        peers_read(graph->reader, unknown + i, n - i < PEERS_AT_ONCE ? n - i : PEERS_AT_ONCE,
                   threads);
}

/* ---- telling of waits ---- */

static uint32_t add_text(struct waits *waits, const char *bytes)
{
    if (!*bytes)
        return 0;
    uint32_t string = waits_string_begin(waits);
    text_add_escaped(&waits->strings, bytes, strlen(bytes));
    waits_string_end(waits);
    return string;
}

static struct actor process_actor(struct graph *graph, pid_t pid)
{
    (void)node_of(graph, pid); /* tell_processes() names it */
    return (struct actor){.kind = ACTOR_PROCESS, .id = pid};
}

static const struct node *name_actor(struct graph *graph, struct actor *actor)
{
    for (size_t i = 0; actor->kind == ACTOR_PROCESS && i < graph->nnodes; i++) {
        struct node *node = &graph->nodes[i];
        if (node->peer.pid != actor->id)
            continue;
        if (!node->name)
            node->name = add_text(graph->waits, node->peer.command);
        actor->name = node->name;
        return node;
    }
    return NULL;
}

/* Tells the names of processes, and which of them hang. threads: has these read, too. */
static void tell_processes(struct graph *graph, bool threads)
{
    struct waits *waits = graph->waits;

    read_nodes(graph, threads);
    for (size_t i = 0; i < waits->n; i++)
        (void)name_actor(graph, &waits->items[i].who);
    for (size_t i = 0; i < waits->nholders; i++) {
        const struct node *node = name_actor(graph, &waits->holders[i].who);
        if (node && node->peer.hangs)
            waits->holders[i].state = HANGS;
    }
}

static void add_place(struct waits *waits, const struct semaphore_hold *hold,
                      struct wait_place *place)
{
    if (!hold)
        return;
    place->func = add_text(waits, hold->func);
    place->file = add_text(waits, hold->file);
    place->line = hold->line;
}

/* Adds the holders of a wait that has none; it may be any of the list. */
static int tell_holders(struct graph *graph, uint32_t w, const struct end *end)
{
    struct waits *waits = graph->waits;

    waits->cut |= end->cut;
    waits->items[w].holders = (uint32_t)waits->nholders;
    for (size_t i = 0; i < end->n && waits->nholders < WAITS_MAX; i++) {
        if (ARRAY_GROW(waits->holders, waits->holders_alloc, waits->nholders + 1) < 0)
            return -ENOMEM;
        struct wait_holder *holder = &waits->holders[waits->nholders++];
        *holder = (struct wait_holder){
            .who = process_actor(graph, end->holders[i].pid),
            .certainty = HELD_CERTAIN,
            .since_ns = WAITS_UNKNOWN_NS,
            .state = end->holders[i].state,
        };
        add_place(waits, end->holders[i].hold, &holder->taken);
        waits->items[w].nholders++;
    }
    return 0;
}

/* Fills in what was found of a wait. */
static int tell(struct graph *graph, uint32_t w, const struct end *end)
{
    struct waits *waits = graph->waits;
    struct wait *wait = &waits->items[w];

    wait->kind = end->kind;
    wait->held = end->held ? end->held : wait->held;
    wait->note = end->n ? NULL : end->note;
    wait->name = add_text(waits, end->name);
    return tell_holders(graph, w, end);
}

/* Adds one more wait of the same thread. */
static int add_same(struct waits *waits, uint32_t w)
{
    const struct wait like = waits->items[w];
    struct wait *wait = waits_add(waits, like.who, like.kind);

    if (!wait)
        return waits->strings.error ? -ENOMEM : -EAGAIN;
    wait->place = like.place;
    wait->does = like.does;
    wait->call = like.call;
    wait->since_ns = like.since_ns;
    wait->timed = like.timed;
    return 0;
}

static int tell_more(struct graph *graph, uint32_t w, size_t more)
{
    struct end end = {.kind = "descriptors"};

    int r = add_same(graph->waits, w);
    if (r < 0)
        return r == -EAGAIN ? 0 : r;
    snprintf(end.name, sizeof end.name, "(%zu more)", more);
    return tell(graph, (uint32_t)graph->waits->n - 1, &end);
}

static int tell_fds(struct graph *graph, const struct ends *ends, uint32_t w,
                    const struct peer_thread *thread)
{
    size_t n = thread->nfds < POLLED_TOLD ? thread->nfds : POLLED_TOLD;
    size_t more = thread->nfds - n + thread->more;
    struct end end;
    int r = 0;

    graph->goes_on |= !n || thread->more;
    for (size_t i = 0; i < n && r == 0 && !is_late(graph); i++) {
        uint32_t to = w;
        if (i) {
            r = add_same(graph->waits, w);
            to = (uint32_t)graph->waits->n - 1;
        }
        if (r < 0)
            return r == -EAGAIN ? 0 : r;
        end_of_fd(ends, thread->fds[i].fd, thread->fds[i].writes, &end);
        graph->goes_on |= !end.likely;
        r = tell(graph, to, &end);
    }
    return r == 0 && more && n ? tell_more(graph, w, more) : r;
}

/* Whether the thread is in the same system call as it was when it was seen. */
static bool is_same(const struct blocking *a, const struct blocking *b)
{
    return a->kind == b->kind && a->number == b->number && a->fd == b->fd &&
           a->address == b->address && a->child == b->child;
}

/* Whether it has slept in that since it was seen. Where the kernel keeps no times, what it sleeps
 * in must do. */
static bool has_slept(pid_t pid, pid_t tid, const struct wait_asleep *asleep)
{
    struct blocking now;
    struct runs runs;

    if (asleep->ran)
        return runs_read(pid, tid, &runs) == 0 && runs_number(&runs) == asleep->ran;
    return blocking_read(pid, tid, &now) == 0 && is_same(&now, &asleep->blocking);
}

/* Whether it has run meanwhile, but sleeps in the same again: then as it is seen now. */
static bool sleeps_again(pid_t pid, pid_t tid, struct wait_asleep *asleep)
{
    struct blocking now;
    struct runs runs;

    if (!asleep->ran || runs_read(pid, tid, &runs) < 0)
        return false;
    asleep->ran = runs_number(&runs);
    return blocking_read(pid, tid, &now) == 0 && is_same(&now, &asleep->blocking);
}

/* Takes back what it has told if the thread has run meanwhile: it may be of another wait. */
static int tell_asleep(struct graph *graph, const struct ends *ends, uint32_t w,
                       const struct wait_asleep *asleep, bool *slept)
{
    struct waits *waits = graph->waits;
    const size_t n = waits->n, nholders = waits->nholders;
    const struct wait before = waits->items[w];
    struct peer_thread thread = {.tid = before.who.id, .blocking = asleep->blocking};
    _cleanup_(maps_deinit) struct maps maps = {0};
    struct end end;
    int r = 0;

    if (!ends->reader->ask)
        peer_thread_read(ends->pid, &maps, &thread);
    else if (asked_thread(ends->reader, ends->pid, &thread) < 0)
        thread.file = -1;
    switch (thread.blocking.kind) {
    case BLOCKING_FLOCK:
    case BLOCKING_FCNTL:
        end_of_lock(ends, &thread, &end);
        graph->goes_on |= !end.likely;
        r = tell(graph, w, &end);
        break;
    case BLOCKING_CHILD:
        end_of_child(ends, &thread, &end);
        graph->goes_on |= !end.likely;
        r = tell(graph, w, &end);
        break;
    case BLOCKING_FUTEX:
        if (before.nholders)
            break;
        r = end_of_semaphore(ends, &thread, &end);
        graph->goes_on |= !end.likely;
        if (r == 0)
            r = tell_holders(graph, w, &end);
        break;
    default: r = tell_fds(graph, ends, w, &thread);
    }
    *slept = has_slept(ends->pid, thread.tid, asleep);
    if (!*slept) {
        graph->goes_on = true;
        waits->n = n;
        waits->nholders = nholders;
        waits->items[w] = before;
    }
    return r;
}

static int tell_wait(struct graph *graph, const struct ends *ends, uint32_t w)
{
    const struct wait *wait = &graph->waits->items[w];
    struct wait_asleep asleep = graph->waits->asleep[wait->asleep - 1];
    const pid_t tid = wait->who.id;
    bool slept;

    int r = tell_asleep(graph, ends, w, &asleep, &slept);
    if (r == 0 && !slept && sleeps_again(ends->pid, tid, &asleep))
        r = tell_asleep(graph, ends, w, &asleep, &slept);
    return r;
}

/* Children that have died, and stay zombies: whoever waits for what they were to do waits in vain.
 */
static int tell_dead_children(struct graph *graph, const struct ends *ends)
{
    struct waits *waits = graph->waits;
    struct end children, one;
    int r = 0;

    end_of_dead_children(ends, &children);
    waits->cut |= children.cut;
    for (size_t i = 0; i < children.n && r == 0; i++) {
        struct wait *wait = waits_add(waits, process_actor(graph, ends->pid), "child");
        if (!wait)
            return 0;
        wait->does = "hasn't waited for";
        one = (struct end){.kind = "child", .held = "namely", .n = 1};
        one.holders[0] = children.holders[i];
        snprintf(one.name, sizeof one.name, "%d", (int)one.holders[0].pid);
        r = tell(graph, (uint32_t)waits->n - 1, &one);
    }
    return r;
}

/* ---- who is stuck ---- */

/* 1: there is no room for it. */
static int add_holder(struct graph *graph, struct link *link, pid_t pid)
{
    ssize_t node = node_of(graph, pid);

    if (node < 0)
        return node == -EAGAIN ? 1 : (int)node;
    if (ARRAY_GROW(graph->holders, graph->holders_alloc, graph->nholders + 1) < 0)
        return -ENOMEM;
    graph->holders[graph->nholders++] = (size_t)node;
    link->n++;
    return 0;
}

static int add_end(struct graph *graph, struct link *link, const struct end *end)
{
    pid_t own = graph->nodes[link->node].peer.pid;
    int r = 0;

    link->known = link->known && end->likely;
    link->likely = link->likely || !end->certain;
    for (size_t i = 0; i < end->n && r == 0; i++) {
        if (end->holders[i].pid != own && !link->end.n)
            link->end = *end;
        r = add_holder(graph, link, end->holders[i].pid);
    }
    link->known = link->known && r != 1;
    return r < 0 ? r : 0;
}

static int add_ends(struct graph *graph, struct link *link, const struct peer_thread *thread)
{
    pid_t pid = graph->nodes[link->node].peer.pid;
    const struct ends ends = ends_of(graph, pid);
    const struct blocking *blocking = &thread->blocking;
    struct end end = {.kind = NULL};
    int r = 0;

    link->known = !blocking->timed && !is_late(graph);
    switch (blocking->kind) {
    case BLOCKING_FUTEX:
        if (!blocking->shared) /* only threads of the process itself can end it */
            return add_holder(graph, link, pid);
        r = link->known ? end_of_semaphore(&ends, thread, &end) : 0;
        return r < 0 ? r : add_end(graph, link, &end);
    case BLOCKING_FLOCK:
    case BLOCKING_FCNTL: end_of_lock(&ends, thread, &end); return add_end(graph, link, &end);
    case BLOCKING_CHILD: end_of_child(&ends, thread, &end); return add_end(graph, link, &end);
    default: break;
    }
    link->known = link->known && thread->nfds && !thread->more;
    for (size_t i = 0; i < thread->nfds && link->known && r == 0; i++) {
        end_of_fd(&ends, thread->fds[i].fd, thread->fds[i].writes, &end);
        r = add_end(graph, link, &end);
    }
    return r;
}

/* The links of a process, and whether it may be stuck. -ENOMEM. */
static int add_links(struct graph *graph, size_t node)
{
    int r = 0;

    read_nodes(graph, true);
    graph->nodes[node].stuck = graph->nodes[node].peer.all && graph->nodes[node].peer.nthreads;
    for (size_t t = 0; t < graph->nodes[node].peer.nthreads && r == 0; t++) {
        struct link link = {.node = node, .thread = t, .first = graph->nholders};
        r = add_ends(graph, &link, &graph->nodes[node].peer.threads[t]);
        if (r < 0 || ARRAY_GROW(graph->links, graph->links_alloc, graph->nlinks + 1) < 0)
            return -ENOMEM;
        graph->links[graph->nlinks++] = link;
        if (!link.known) {
            graph->nodes[node].stuck = false;
            return 0;
        }
    }
    return r;
}

static bool can_go_on(const struct graph *graph, const struct link *link)
{
    for (size_t i = 0; i < link->n; i++)
        if (!graph->nodes[graph->holders[link->first + i]].stuck)
            return true;
    return !link->known;
}

/* All links of what can be reached from the first, and who is stuck. Whether that one is; -ENOMEM.
 */
static int find_stuck(struct graph *graph)
{
    bool changed = true;

    graph->nlinks = graph->nholders = 0;
    for (size_t i = 0; i < graph->nnodes; i++) {
        /* mostly one of those that it waits for can go on, and that is all */
        size_t node = i < graph->nwaited_for ? i + 1 : i == graph->nwaited_for ? 0 : i;
        int r = add_links(graph, node);
        if (r < 0)
            return r;
        if (!graph->nodes[node].stuck && node <= graph->nwaited_for)
            return 0;
    }
    while (changed) {
        changed = false;
        for (size_t i = 0; i < graph->nlinks; i++) {
            struct node *node = &graph->nodes[graph->links[i].node];
            if (node->stuck && can_go_on(graph, &graph->links[i]))
                node->stuck = !(changed = true);
        }
    }
    return graph->nodes[0].stuck;
}

/* ---- telling of deadlocks ---- */

/* A link from this process to another one. */
static const struct link *link_away(const struct graph *graph, size_t node, size_t *to)
{
    for (size_t i = 0; i < graph->nlinks; i++) {
        const struct link *link = &graph->links[i];
        for (size_t k = 0; link->node == node && k < link->n; k++) {
            *to = graph->holders[link->first + k];
            if (*to != node)
                return link;
        }
    }
    return NULL;
}

/* The wait of that link among those that are told, of the process that is asked for; else a new
 * one. */
static int add_wait(struct graph *graph, const struct link *link, size_t to, uint32_t *out)
{
    struct waits *waits = graph->waits;
    const struct node *node = &graph->nodes[link->node];
    pid_t tid = node->peer.threads[link->thread].tid, holder = graph->nodes[to].peer.pid;

    for (uint32_t i = 0; link->node == 0 && i < waits->n; i++) {
        const struct wait *wait = &waits->items[i];
        for (uint32_t k = 0;
             wait->who.kind == ACTOR_THREAD && wait->who.id == tid && k < wait->nholders; k++)
            if (waits->holders[wait->holders + k].who.kind == ACTOR_PROCESS &&
                waits->holders[wait->holders + k].who.id == holder) {
                *out = i;
                return 0;
            }
    }
    struct wait *wait = waits_add(waits, process_actor(graph, node->peer.pid), link->end.kind);
    if (!wait)
        return -EAGAIN;
    wait->does = waits_does(&node->peer.threads[link->thread].blocking);
    wait->call = syscall_name(node->peer.threads[link->thread].blocking.number);
    *out = (uint32_t)waits->n - 1;
    return tell(graph, *out, &link->end);
}

static int add_to_cycle(struct graph *graph, struct wait_cycle *cycle, uint32_t wait)
{
    struct waits *waits = graph->waits;

    if (ARRAY_GROW(waits->links, waits->links_alloc, waits->nlinks + 1) < 0)
        return -ENOMEM;
    waits->links[waits->nlinks++] = wait;
    waits->items[wait].cycle = (uint32_t)waits->ncycles;
    cycle->n++;
    return 0;
}

/* The way from the process that is asked for to one that is met again. */
/* Takes back what is of no deadlock. */
static int drop_cycle(struct waits *waits, const struct wait_cycle *cycle)
{
    for (uint32_t i = 0; i < cycle->n; i++)
        waits->items[waits->links[cycle->first + i]].cycle = WAITS_NONE;
    waits->nlinks = cycle->first;
    return 0;
}

static int tell_deadlock(struct graph *graph)
{
    struct waits *waits = graph->waits;
    struct wait_cycle cycle = {.first = (uint32_t)waits->nlinks, .between = true};
    size_t at = 0, to;
    uint32_t wait;

    if (ARRAY_GROW(waits->cycles, waits->cycles_alloc, waits->ncycles + 1) < 0)
        return -ENOMEM;
    for (size_t steps = 0; steps < graph->nnodes && graph->nodes[at].stuck; steps++) {
        const struct link *link = link_away(graph, at, &to);
        if (!link)
            return drop_cycle(waits, &cycle); /* its threads wait for each other */
        int r = add_wait(graph, link, to, &wait);
        if (r == 0)
            r = add_to_cycle(graph, &cycle, wait);
        if (r < 0)
            return r == -EAGAIN ? drop_cycle(waits, &cycle) : r;
        cycle.likely |= link->likely;
        graph->nodes[at].stuck = false; /* passed */
        at = to;
    }
    waits->cycles[waits->ncycles++] = cycle;
    return 0;
}

static int find_deadlock(struct graph *graph)
{
    int r = find_stuck(graph);
    const size_t n = graph->nnodes;

    if (r <= 0 || n == 1) /* threads of one process: waits_finish() */
        return r < 0 ? r : 0;
    descriptors_deinit(&graph->descriptors); /* they were read before the processes were */
    graph->waits->cut |= graph->semaphores.cut;
    semaphores_deinit(&graph->semaphores);
    sockets_deinit(&graph->sockets);
    graph->age_ns = 0;
    r = find_stuck(graph);
    if (r <= 0 || graph->nnodes != n)
        return r < 0 ? r : 0;
    for (size_t i = 0; i < n; i++)
        if (graph->nodes[i].stuck && !peer_slept(&graph->nodes[i].peer))
            return 0;
    return tell_deadlock(graph);
}

int waits_between(struct waits *waits, pid_t pid, const struct waits_reader *reader)
{
    _cleanup_(graph_deinit) struct graph graph = {.waits = waits,
                                                  .reader = reader,
                                                  .until_ns = monotonic_ns() + LOOK_NS,
                                                  .age_ns = DESCRIPTORS_AGE_NS};
    const struct ends ends = ends_of(&graph, pid);
    const uint32_t n = (uint32_t)waits->n; /* more are added meanwhile */
    int r = 0;

    if (!waits->nasleep)
        return 0;
    if (node_of(&graph, pid) < 0)
        return -ENOMEM;
    for (uint32_t w = 0; w < n && r == 0; w++) {
        if (!waits->items[w].asleep)
            continue;
        const struct blocking *blocking = &waits->asleep[waits->items[w].asleep - 1].blocking;
        graph.goes_on |= blocking->timed || blocking->kind == BLOCKING_SLEEP;
        if (blocking->kind != BLOCKING_SLEEP && !is_late(&graph))
            r = tell_wait(&graph, &ends, w);
    }
    graph.nwaited_for = graph.nnodes - 1;
    if (r == 0)
        r = tell_dead_children(&graph, &ends);
    if (r == 0)
        tell_processes(&graph, !graph.goes_on);
    if (r == 0 && !graph.goes_on)
        r = find_deadlock(&graph);
    if (r == 0)
        tell_processes(&graph, false); /* those of the deadlock */
    waits->cut |= graph.semaphores.cut;
    return r < 0 ? r : waits->strings.error;
}
