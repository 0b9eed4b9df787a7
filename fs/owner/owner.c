#include "fs/owner/owner.h"

#include "fs/base/array.h"
#include "fs/base/worker.h"
#include "fs/owner/confine.h"
#include "fs/owner/core_file.h"
#include "fs/owner/message.h"
#include "fs/owner/rings.h"
#include "fs/owner/rows.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/remote/moment/caches.h"
#include "fs/remote/waits/asked.h"
#include "fs/trace/callers.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define REST_MS 1000 /* after the last question */

/* One connection and the thread that answers it. */
struct connection {
    struct owner_self *self;
    int fd;
    struct interrupt unwanted; /* raised when the other end is closed */
    atomic_bool ended;
    struct connection *next;
};

struct owner_self {
    struct registry *registry;
    struct process *core;   /* the registry's: of the core file that it reads; NULL: none */
    struct replies replies; /* none are ever given */
    struct access access;
    atomic_uint answered; /* calls, so far and now */
    struct connection *connections;
    size_t n;
};

/* ---- answering ---- */

/* Finds the process that is meant, and no successor. What looks like no interpreter from here may
 * do so for want of rights: then these are missing. */
static int find(struct owner_self *self, const struct owner_call *call, struct process **out)
{
    struct process *process;

    if (self->core) {
        *out = process_ref(self->core);
        return 0;
    }
    int r = registry_lookup(self->registry, call->pid, &process);
    if (r == -ENOENT) {
        r = class_try(call->pid);
        return r < 0 ? r : call->op == OWNER_EXAMINE ? -ENOENT : -ESRCH;
    }
    if (r < 0)
        return r;
    if (process->start_time != call->start_time) {
        process_unref(process);
        return -ESRCH;
    }
    if (call->op != OWNER_EXAMINE)
        process_tell(process, &call->membership, call->is_worker);
    *out = process;
    return 0;
}

/* Whatever the process runs: it is at another end of a wait. */
static int answer_end(const struct owner_request *request, struct text *out)
{
    const struct owner_call *call = &request->call;
    struct proc_stat stat;

    int r = proc_stat_read(call->pid, &stat);
    if (r == 0 && stat.start_time != call->start_time)
        r = -ESRCH;
    if (r == 0)
        r = class_try(call->pid);
    return r < 0 ? r : asked_answer(call->pid, (const char *)(request + 1), request->more, out);
}

/* Names who something is read for, as far as the files that are read here ask that. */
static void name_reader(const struct owner_request *request, struct credentials *out)
{
    *out = (struct credentials){.refs = 1, .who = request->who, .ns = -1};
}

static void answer(struct connection *connection, const struct owner_request *request,
                   struct owner_answer *out)
{
    struct owner_self *self = connection->self;
    const struct server server = {
        .registry = self->registry,
        .replies = &self->replies,
        .access = &self->access,
    };
    struct credentials who;
    struct process *process = NULL;

    if (request->call.op == OWNER_END) {
        out->error = answer_end(request, &out->text);
        return;
    }
    name_reader(request, &who);
    out->error = request->call.pid ? find(self, &request->call, &process) : 0;
    if (out->error < 0)
        return;
    if (request->call.op == OWNER_RINGS)
        rings_question_answer(request, (const char *)(request + 1), out);
    else if (request->call.op == OWNER_ROWS)
        rows_question_answer(&server, process, request, (const char *)(request + 1),
                             &connection->unwanted, out);
    else if (request->call.op == OWNER_SAY)
        owner_say(&server, process, &request->call, (const char *)(request + 1), request->more,
                  &connection->unwanted, out);
    else
        owner_serve(&server, process, request->reads ? &who : NULL, &request->call,
                    &connection->unwanted, out);
    process_unref(steal_pointer(out->process)); /* who asks knows it */
    process_unref(process);
}

/* Gives back what answering took, and what is known of processes that have ended, once nobody has
 * asked for a while: it is the next question that would notice, and there may be none. */
static void rest(const struct connection *connection)
{
    struct owner_self *self = connection->self;
    struct pollfd poll_fd = {.fd = connection->fd, .events = POLLIN};
    unsigned before = atomic_load(&self->answered);

    if (poll(&poll_fd, 1, REST_MS) != 0 || atomic_load(&self->answered) != before)
        return;
    registry_tidy(self->registry);
    caches_rest();
    malloc_trim(0);
}

static void *connection_main(void *arg)
{
    struct connection *connection = arg;
    const struct owner_hello hello = {.tid = (int32_t)syscall(SYS_gettid)};
    _cleanup_free_ struct owner_request *request = malloc(OWNER_PIECE);
    int sent = request ? 0 : -ENOMEM;

    if (sent == 0 && send(connection->fd, &hello, sizeof hello, MSG_NOSIGNAL) < 0)
        sent = -errno;
    while (sent == 0 && owner_request_receive(connection->fd, request)) {
        struct owner_answer out = {.text = TEXT_INIT, .why = TEXT_INIT};
        atomic_fetch_add(&connection->self->answered, 1);
        may_hang_left_by_others(request->call.pid);
        answer(connection, request, &out);
        may_hang_left_by_others(0);
        owner_request_close(request);
        sent = owner_reply_send(connection->fd, &out);
        owner_answer_deinit(&out);
        rest(connection);
    }
    shutdown(connection->fd, SHUT_RDWR);
    atomic_store(&connection->ended, true);
    return NULL;
}

/* ---- connections ---- */

/* Takes over the descriptor. */
static void connection_start(struct owner_self *self, int fd)
{
    struct connection *connection = calloc(1, sizeof *connection);
    pthread_t thread;

    if (connection) {
        *connection = (struct connection){.self = self, .fd = fd, .unwanted = {.fd = -1}};
        if (worker_start_deep(connection_main, connection, "probefs-look", &thread) == 0) {
            pthread_detach(thread);
            connection->next = self->connections;
            self->connections = connection;
            self->n++;
            return;
        }
    }
    free(connection);
    const struct owner_hello hello = {.error = -EAGAIN};
    (void)send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    close(fd);
}

/* The next connection of the control connection. -1: there is none any more. */
static int accept_one(void)
{
    char byte;
    int fd;

    return owner_receive(OWNER_CONTROL, &byte, sizeof byte, &fd) < 0 ? -1 : fd;
}

static void forget_ended(struct owner_self *self)
{
    struct connection **at = &self->connections;

    while (*at) {
        struct connection *connection = *at;
        if (!atomic_load(&connection->ended)) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        self->n--;
        close(connection->fd);
        free(connection);
    }
}

/* Waits for a new connection, and tells those that answer who has gone. False: all is to end. */
static bool look_after(struct owner_self *self)
{
    struct pollfd *fds = calloc(self->n + 1, sizeof *fds);
    size_t n = 1;

    if (!fds)
        return false;
    fds[0] = (struct pollfd){.fd = OWNER_CONTROL, .events = POLLIN};
    for (struct connection *c = self->connections; c; c = c->next) {
        /* one that was told is no longer listened to */
        bool told = atomic_load(&c->unwanted.raised) && !atomic_load(&c->ended);
        fds[n++] = (struct pollfd){.fd = told ? -1 : c->fd, .events = POLLRDHUP};
    }
    unsigned before = atomic_load(&self->answered);
    int r = poll(fds, n, OWNER_IDLE_MS);
    bool goes_on = r > 0 || (r < 0 && errno == EINTR) || atomic_load(&self->answered) != before;
    n = 1;
    for (struct connection *c = self->connections; r > 0 && c; c = c->next, n++)
        if (fds[n].revents)
            atomic_store(&c->unwanted.raised, true);
    if (r > 0 && fds[0].revents) {
        int fd = accept_one();
        goes_on = fd >= 0;
        if (goes_on)
            connection_start(self, fd);
    }
    free(fds);
    forget_ended(self);
    return goes_on;
}

/* ---- the whole ---- */

/* Gives up all rights but those that it is told to have. */
static int become(struct owner_start *start, struct core **core)
{
    int ns = -1;

    int r = confine_descriptors(OWNER_CALLERS);
    if (r == 0)
        r = owner_receive(OWNER_CONTROL, start, sizeof *start, &ns);
    if (r == 0 && start->class.core)
        r = core_file_receive(OWNER_CONTROL, core);
    if (r == 0)
        r = start->acting.op ? confine_files(CONFINE_ACTING, start->acting.pid)
                             : confine_files(CONFINE_READING, 0);
    if (r == 0)
        r = class_become(&start->class, ns);
    if (ns >= 0)
        close(ns);
    return r;
}

/* core: the core file that it reads; NULL: it reads processes. */
static int begin(struct owner_self *self, struct core *core)
{
    int r = callers_follow(OWNER_CALLERS);

    if (r == 0)
        r = access_init(&self->access, HIDEPID_INVISIBLE);
    if (r == 0)
        r = registry_new(&self->registry);
    replies_init(&self->replies);
    if (r == 0)
        r = confine_calls(CONFINE_READING);
    return r == 0 && core ? core_file_read(OWNER_CONTROL, core, self->registry,
                                           &self->access.daemon.ns, &self->core)
                          : r;
}

int owner_main(void)
{
    struct owner_self self = {0};
    struct owner_start start = {0};
    struct core *core = NULL;

    prctl(PR_SET_NAME, OWNER_PROCESS_NAME);
    int r = become(&start, &core);
    if (r == 0)
        r = start.tries ? class_try(start.tries) : begin(&self, core);
    if (r == 0 && start.acting.op)
        r = acting_begin(&start.acting);
    if (r == 0 && start.sampling.source)
        r = sampling_begin();
    const struct owner_hello hello = {.error = r, .tid = getpid()};
    bool greeted = send(OWNER_CONTROL, &hello, sizeof hello, MSG_NOSIGNAL) > 0 && r == 0;
    if (greeted && start.acting.op)
        acting_answer(OWNER_CONTROL, &start.acting);
    if (greeted && start.sampling.source)
        sampling_run(OWNER_CONTROL, &start.sampling);
    if (!greeted || start.tries)
        _exit(1);
    while (look_after(&self))
        continue;
    _exit(0); /* whoever still reads has nobody to tell */
}
