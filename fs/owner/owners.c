#include "fs/owner/owners.h"

#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/inject/seccomp.h"
#include "fs/owner/child.h"
#include "fs/owner/core_file.h"
#include "fs/owner/message.h"
#include "fs/owner/owner.h"
#include "fs/owner/rows.h"
#include "fs/owner/statements.h"
#include "fs/proc/procfs.h"
#include "fs/process/process.h"
#include "fs/remote/memory/core.h"
#include "fs/trace/callers.h"
#include "fs/trace/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define IDLE_MAX 8 /* connections of one owner process that nobody uses */
#define START_NS 5000000000u
#define END_MS 100                 /* a process whose connections are closed ends within */
#define CLASSES 512                /* processes whose class is remembered */
#define CLASS_FRESH_NS 1000000000u /* a process may take on other rights at any moment */
#define REFUSED_NS 10000000000u    /* that it can't be read with its own is believed for so long */
#define CRASHES_FREE 3             /* without a pause before the next start ... */
#define CRASH_CALM_NS 10000000000u /* ... unless they are so far apart */
#define PAUSE_NS 1000000000u       /* twice as long each time ... */
#define PAUSE_DOUBLED 6            /* ... so often */

struct connection {
    int fd;
    pid_t tid; /* of the thread at the other end */
    struct connection *next;
    char message[OWNER_PIECE]; /* which no thread has to have on its stack */
};

struct owner {
    struct owner_class class;
    pid_t pid; /* 0: it doesn't run */
    int control;
    unsigned generation; /* how often it was started */
    bool starting;
    struct connection *idle;
    unsigned nidle, asking; /* connections that nobody uses; those who ask, or are about to ... */
    unsigned nleft;         /* ... and those of them that were left behind */
    unsigned crashes;       /* in a row */
    uint64_t crashed_ns, again_ns;
    uint64_t used_ns, answered_ns; /* when it was asked last, and when one who waited had done */
};

/* What is known of the rights that reading a process takes. */
struct known_class {
    pid_t pid; /* 0: of none */
    uint64_t start_time, since_ns;
    uint64_t refused_ns; /* until then the daemon's own are used instead; 0: not */
    struct owner_class class;
};

struct owners {
    enum contain contain;
    const struct access *access;
    struct examiner examiner;
    struct attacher attacher;
    struct sampling_starter sampler;
    struct statements *statements;
    struct core_file
        cores[REGISTRY_CORES_MAX]; /* each its process's, which one thread starts at a time */
    int callers;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t started; /* one was, or couldn't be */
    pthread_cond_t free;    /* somebody doesn't wait any more */
    struct owner owners[OWNERS_MAX];
    size_t n;
    struct known_class known[CLASSES];
    pid_t acting[OWNERS_MAX];     /* which put agents in just now; 0: free */
    pid_t ending[2 * OWNERS_MAX]; /* killed, and not waited for yet */
    size_t nending;
    size_t nsampling; /* which sample just now */
};

/* ---- starting and ending; with the lock ---- */

static void close_connection(struct connection *connection)
{
    close(connection->fd);
    free(connection);
}

/* Forgets those that were killed and are gone by now, which a file system can hold up. */
static void reap(struct owners *owners)
{
    for (size_t i = 0; i < owners->nending;) {
        if (waitpid(owners->ending[i], NULL, WNOHANG) != 0)
            owners->ending[i] = owners->ending[--owners->nending];
        else
            i++;
    }
}

static void end_process(struct owners *owners, pid_t pid, int control)
{
    kill(pid, SIGKILL);
    close(control);
    if (owners->nending < ARRAY_SIZE(owners->ending)) /* else init waits for it one day */
        owners->ending[owners->nending++] = pid;
    reap(owners);
}

/* Ends the process of an owner. Connections in use end by themselves. */
static void end(struct owners *owners, struct owner *owner)
{
    if (!owner->pid)
        return;
    while (owner->idle) {
        struct connection *connection = owner->idle;
        owner->idle = connection->next;
        close_connection(connection);
    }
    owner->nidle = 0;
    end_process(owners, owner->pid, owner->control);
    owner->pid = 0;
}

void owners_free(struct owners *owners)
{
    if (!owners)
        return;
    for (size_t i = 0; i < owners->n; i++)
        end(owners, &owners->owners[i]);
    for (size_t i = 0; i < owners->nending; i++)
        waitpid(owners->ending[i], NULL, WNOHANG);
    for (size_t i = 0; i < REGISTRY_CORES_MAX; i++)
        text_deinit(&owners->cores[i].why);
    statements_free(owners->statements);
    if (owners->callers >= 0)
        close(owners->callers);
    pthread_cond_destroy(&owners->free);
    pthread_cond_destroy(&owners->started);
    pthread_mutex_destroy(&owners->lock);
    free(owners);
}

/* Receives what says that the other end is ready, a process, or a thread of it. Its tid, or -errno.
 */
static int receive_hello(int fd, pid_t pid)
{
    struct owner_hello hello;
    int passed;

    int r = child_await(fd, pid, monotonic_ns() + START_NS);
    if (r < 0)
        return r;
    r = owner_receive(fd, &hello, sizeof hello, &passed);
    if (passed >= 0)
        close(passed);
    if (r < 0)
        return -EIO;
    if (hello.error)
        return hello.error < 0 && hello.error > -4096 ? hello.error : -EIO;
    return hello.tid > 0 ? hello.tid : -EIO;
}

/* The namespace of a class, which process `of` is in. -1: it has none; -ESRCH: that process isn't
 * in it any more. */
static int open_namespace(const struct owner_class *class, pid_t of)
{
    char path[64];
    struct stat st;

    if (!class->ns_ino)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)of);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == class->ns_dev && st.st_ino == class->ns_ino)
        return fd;
    if (fd >= 0)
        close(fd);
    return -ESRCH;
}

static int send_start(int control, const struct owner_start *start, pid_t of)
{
    int ns = open_namespace(&start->class, of);
    if (ns < -1)
        return ns;
    int r = owner_send(control, start, sizeof *start, ns);
    if (ns >= 0)
        close(ns);
    return r < 0 ? -EIO : 0;
}

/* Starts one, for process `of`. It is not known to others yet: its user can stop it right now. */
static int start_process(struct owners *owners, const struct owner_start *start, pid_t of,
                         pid_t *pid, int *control)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    int r = child_start(OWNER_PROCESS_NAME, ends[1], owners->callers, pid);
    if (r < 0) {
        close(ends[0]);
        return r;
    }
    *control = ends[0];
    r = send_start(*control, start, of);
    if (r == 0 && start->class.core)
        r = core_file_serve(&owners->cores[start->class.core - 1], *control, *pid);
    if (r == 0)
        r = receive_hello(*control, *pid);
    if (r >= 0)
        return 0;
    _guard_mutex_(&owners->lock);
    end_process(owners, *pid, *control);
    return r;
}

/* Has it run, for process `of`. The lock is given up meanwhile, so that it holds nobody else up;
 * who asks for the same one waits. */
static int start(struct owners *owners, struct owner *owner, pid_t of)
{
    const struct owner_start what = {.class = owner->class};
    pid_t pid = 0;
    int control = -1;

    while (owner->starting)
        pthread_cond_wait(&owners->started, &owners->lock);
    if (owner->pid)
        return 0;
    if (owners->nending >= OWNERS_MAX)
        return -EAGAIN;
    owner->starting = true;
    pthread_mutex_unlock(&owners->lock);
    int r = start_process(owners, &what, of, &pid, &control);
    pthread_mutex_lock(&owners->lock);
    owner->starting = false;
    if (r == 0) {
        owner->pid = pid;
        owner->control = control;
        owner->generation++;
    }
    pthread_cond_broadcast(&owners->started);
    return r;
}

/* Waits for the end of a process that is about to, for a moment. si_pid is 0: it hasn't come. */
static siginfo_t await_end(pid_t pid)
{
    siginfo_t info = {0};

    for (int i = 0; i < END_MS && !info.si_pid; i++) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
            break;
        if (!info.si_pid)
            nap_ns(1000000);
    }
    return info;
}

/* Whether it has ended because nobody asked it. Its connections are closed a moment before it can
 * be waited for. */
static bool has_ended_idle(pid_t pid)
{
    const siginfo_t info = await_end(pid);

    return info.si_pid && info.si_code == CLD_EXITED && info.si_status == 0;
}

/* Notes that the process that was asked is of no use any more. True: that was known, or it is no
 * crash. */
static bool note_end(struct owners *owners, struct owner *owner, unsigned generation, bool idle)
{
    uint64_t now = monotonic_ns();

    if (!owner->pid || owner->generation != generation)
        return true;
    end(owners, owner);
    if (idle)
        return true;
    owner->crashes = now - owner->crashed_ns < CRASH_CALM_NS ? owner->crashes + 1 : 1;
    owner->crashed_ns = now;
    unsigned many = owner->crashes < CRASHES_FREE ? 0 : owner->crashes - CRASHES_FREE;
    if (owner->crashes >= CRASHES_FREE)
        owner->again_ns = now + (PAUSE_NS << (many < PAUSE_DOUBLED ? many : PAUSE_DOUBLED));
    return false;
}

/* The owner of a class, which may not run. NULL: there are too many. */
static struct owner *owner_of(struct owners *owners, const struct owner_class *class)
{
    struct owner *unused = NULL;

    for (size_t i = 0; i < owners->n; i++) {
        struct owner *owner = &owners->owners[i];
        if (!memcmp(&owner->class, class, sizeof *class))
            return owner;
        if (!owner->asking && (!unused || owner->used_ns < unused->used_ns))
            unused = owner;
    }
    if (owners->n < OWNERS_MAX)
        unused = &owners->owners[owners->n++];
    if (!unused)
        return NULL;
    end(owners, unused);
    *unused = (struct owner){.class = *class, .generation = unused->generation};
    return unused;
}

int owners_new(enum contain contain, const struct access *access, struct owners **out,
               struct text *why)
{
    const struct owner_start own = {.class = {.own = true}, .tries = getpid()};
    struct owners *owners = calloc(1, sizeof *owners);
    pid_t pid;
    int control;

    if (!owners)
        return -ENOMEM;
    owners->contain = contain;
    owners->access = access;
    pthread_mutex_init(&owners->lock, NULL);
    pthread_cond_init(&owners->started, NULL);
    pthread_cond_init(&owners->free, NULL);
    int fd = callers_share();
    int r = owners->callers = fd < 0 ? fd : child_descriptor(fd);
    if (r >= 0)
        r = statements_new(&owners->statements);
    if (r >= 0)
        r = start_process(owners, &own, 0, &pid, &control);
    if (r < 0) {
        text_printf(why,
                    "contain: what reads processes can't be confined: %s; it takes mount(2) and "
                    "seccomp(2), which a container may forbid: mount with -o contain=no",
                    strerror(-r));
        owners_free(owners);
        return r;
    }
    _guard_mutex_(&owners->lock);
    end_process(owners, pid, control);
    *out = owners;
    return 0;
}

/* ---- connections ---- */

/* -EPIPE: the process has ended. With the lock. */
static int begin_connection(const struct owner *owner, struct connection **out)
{
    struct connection *connection = malloc(sizeof *connection);
    int ends[2];

    if (!connection)
        return -ENOMEM;
    connection->next = NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        free(connection);
        return -errno;
    }
    int r = owner_send(owner->control, "", 1, ends[1]);
    close(ends[1]);
    connection->fd = ends[0];
    if (r < 0) {
        close_connection(connection);
        return r == -ECONNRESET ? -EPIPE : r;
    }
    *out = connection;
    return 0;
}

/* One call on its way. */
struct asking {
    struct owners *owners;
    struct owner *owner;
    unsigned generation;
    pid_t pid;
    struct connection *connection;
    bool fresh;   /* the connection: its greeting is still to come */
    bool retries; /* what was asked had ended already, for want of calls or by another's doing */
};

/* Whether both are of one user. Root's ids are those of some containers, too. */
static bool same_user(const struct owner_class *a, const struct owner_class *b)
{
    return a->user == b->user && (a->user || !memcmp(a, b, sizeof *a));
}

/* How many wait for the processes of a user; *since: when one was asked or had its answer last. */
static unsigned count_waiting(const struct owners *owners, const struct owner_class *class,
                              uint64_t *since)
{
    unsigned n = 0;

    *since = 0;
    for (size_t i = 0; i < owners->n; i++) {
        const struct owner *owner = &owners->owners[i];
        if (!same_user(&owner->class, class))
            continue;
        n += owner->asking - owner->nleft;
        *since = owner->used_ns > *since ? owner->used_ns : *since;
        *since = owner->answered_ns > *since ? owner->answered_ns : *since;
    }
    return n;
}

/* Waits until few enough wait for the processes of that user, as long as these answer. */
static int wait_for_turn(struct owners *owners, const struct owner_class *class)
{
    uint64_t since;

    while (count_waiting(owners, class, &since) >= OWNER_CALLS_MAX) {
        const struct timespec until = timespec_of(since + OWNER_QUEUE_NS);
        if (pthread_cond_clockwait(&owners->free, &owners->lock, CLOCK_MONOTONIC, &until) &&
            count_waiting(owners, class, &since) >= OWNER_CALLS_MAX &&
            monotonic_ns() >= since + OWNER_QUEUE_NS)
            return -EAGAIN;
    }
    return 0;
}

/* One that asks doesn't any more. With the lock. */
static void leave_turn(struct owners *owners, struct owner *owner)
{
    owner->asking--;
    owner->answered_ns = monotonic_ns();
    pthread_cond_broadcast(&owners->free);
}

/* The owner of a class, to be asked: there are few enough who do. With the lock. */
static int take_turn(struct owners *owners, const struct owner_class *class, struct owner **out,
                     struct text *why)
{
    int r = wait_for_turn(owners, class);
    struct owner *owner = r == 0 ? owner_of(owners, class) : NULL;

    if (r == 0 && !owner) {
        text_printf(why, "processes of more than %d users and groups are read at once: try again",
                    OWNERS_MAX);
        return -EAGAIN;
    }
    if (r < 0 || owner->asking == OWNER_CONNECTIONS_MAX) {
        text_puts(why, "too many files of processes of that user are read at once, and none was "
                       "answered for a while: try again");
        return -EAGAIN;
    }
    owner->used_ns = monotonic_ns();
    if (!owner->pid && owner->used_ns < owner->again_ns) {
        text_printf(why,
                    "what reads these processes has crashed %u times in a row: it is started again "
                    "in %.0f s",
                    owner->crashes, (double)(owner->again_ns - owner->used_ns) / 1e9);
        return -EIO;
    }
    owner->asking++;
    *out = owner;
    return 0;
}

/* Takes a connection to the owner of a class, which is started if need be, for process `of`. */
static int take_connection(struct asking *asking, const struct owner_class *class, pid_t of,
                           struct text *why)
{
    struct owners *owners = asking->owners;
    struct owner *owner;

    _guard_mutex_(&owners->lock);
    reap(owners);
    int r = take_turn(owners, class, &owner, why);
    if (r < 0)
        return r;
    r = start(owners, owner, of);
    if (r == 0 && owner->idle) {
        asking->connection = owner->idle;
        owner->idle = owner->idle->next;
        owner->nidle--;
    } else if (r == 0) {
        r = begin_connection(owner, &asking->connection);
        asking->fresh = true;
    }
    if (r == -EPIPE) /* nobody was connected who could have noticed */
        note_end(owners, owner, owner->generation, false);
    if (r < 0)
        leave_turn(owners, owner);
    asking->owner = owner;
    asking->generation = owner->generation;
    asking->pid = owner->pid;
    return r;
}

static void give_back(struct asking *asking)
{
    struct owner *owner = asking->owner;

    _guard_mutex_(&asking->owners->lock);
    leave_turn(asking->owners, owner);
    if (owner->pid && owner->generation == asking->generation && owner->nidle < IDLE_MAX) {
        asking->connection->next = owner->idle;
        owner->idle = asking->connection;
        owner->nidle++;
    } else {
        close_connection(asking->connection);
    }
}

/* The connection is lost. kills: so is the process behind it. */
static void give_up(struct asking *asking, bool kills)
{
    bool idle = kills && has_ended_idle(asking->pid);

    close_connection(asking->connection);
    _guard_mutex_(&asking->owners->lock);
    leave_turn(asking->owners, asking->owner);
    if (kills)
        asking->retries = note_end(asking->owners, asking->owner, asking->generation, idle);
}

/* ---- asking ---- */

/* What waits for a thread that was left behind. */
struct left {
    struct owners *owners;
    struct owner *owner;
    struct connection *connection;
    struct may_hang *work;
};

static void left_end(struct left *left)
{
    close_connection(left->connection);
    {
        _guard_mutex_(&left->owners->lock);
        left->owner->asking--;
        left->owner->nleft--;
    }
    may_hang_end(left->work);
    free(left);
}

/* Whatever it says then, nobody wants to hear it. */
static void *left_main(void *arg)
{
    struct left *left = arg;
    char byte;

    while (recv(left->connection->fd, &byte, 1, 0) < 0 && errno == EINTR)
        continue;
    left_end(left);
    return NULL;
}

/* Takes over the connection, and the reference to the work. */
static void leave(struct asking *asking, struct may_hang *work)
{
    struct left *left = malloc(sizeof *left);
    pthread_t thread;

    if (!left) { /* then it counts as done */
        give_up(asking, false);
        may_hang_end(work);
        return;
    }
    *left = (struct left){asking->owners, asking->owner, asking->connection, work};
    {
        _guard_mutex_(&asking->owners->lock);
        asking->owner->nleft++;
        pthread_cond_broadcast(&asking->owners->free);
    }
    if (worker_start(left_main, left, "probefs-left", &thread) == 0)
        pthread_detach(thread);
    else
        left_end(left);
}

/* One call that is being answered. */
struct waiting {
    struct may_hang *work;
    const struct interrupt *interrupt;
    uint64_t until;
    unsigned stopped; /* looks in a row */
    bool left;        /* it is left behind */
};

/* Looks why there is no answer yet. 0, or why there will be none. */
static int look(const struct connection *connection, struct waiting *waiting)
{
    int r = may_hang_look(waiting->work, waiting->interrupt);

    waiting->left = r < 0;
    if (r)
        return r < 0 ? r : -EINTR;
    bool stopped = child_stays_stopped(connection->tid, &waiting->stopped);
    return stopped || monotonic_ns() > waiting->until ? -ETIME : 0;
}

/* Receives one message of the answer. Bytes; -EIO: nobody is there any more; or what look() says.
 */
static ssize_t receive(struct connection *connection, struct waiting *waiting)
{
    struct pollfd poll_fd = {.fd = connection->fd, .events = POLLIN};
    int r;

    while ((r = poll(&poll_fd, 1, MAY_HANG_LOOK_MS)) <= 0) {
        r = look(connection, waiting);
        if (r < 0)
            return r;
    }
    ssize_t n = recv(connection->fd, connection->message, sizeof connection->message, 0);
    return n > 0 ? n : -EIO;
}

static int converse(struct connection *connection, const struct owner_request *request,
                    struct waiting *waiting, struct owner_answer *answer)
{
    _cleanup_(owner_receipt_deinit) struct owner_receipt receipt = {.call = &request->call};
    int r = 1;

    if (owner_request_send(connection->fd, request) < 0)
        return -EPIPE;
    while (r > 0) {
        ssize_t n = receive(connection, waiting);
        r = n < 0 ? (int)n : owner_receipt_take(&receipt, connection->message, (size_t)n);
    }
    return r < 0 ? r : owner_receipt_answer(&receipt, answer);
}

static int greet(struct asking *asking)
{
    int tid = receive_hello(asking->connection->fd, asking->pid);

    if (tid < 0)
        return tid;
    asking->connection->tid = tid;
    /* another process's is not looked at in its place */
    return proc_has_thread(asking->pid, tid) ? 0 : -EPROTO;
}

/* Why there is no answer, if nobody has said so. */
static void explain(int error, bool left, const struct owner_class *class, struct text *why)
{
    const char *what = class && class->core ? "this core file" : "the processes of that user";

    if (why->size)
        return;
    if (left)
        may_hang_explain(error, why);
    else if (error == -EIO || error == -EPROTO || error == -EPIPE)
        text_printf(why, "what reads %s has crashed: read again", what);
    else if (error == -ETIME)
        text_printf(why, "what reads %s was stopped, or did not answer; it was ended: read again",
                    what);
    else if (error != -EINTR)
        text_printf(why, "what reads %s can't be started: try again", what);
}

/* Makes one call by one connection. Gives the connection back, or up. */
static int ask_connected(struct asking *asking, const struct owner_request *request,
                         struct waiting *waiting, struct owner_answer *answer)
{
    int r = asking->fresh ? greet(asking) : 0;

    if (r == 0) {
        r = may_hang_begin(waiting->work, asking->connection->tid);
        if (r < 0) {
            waiting->left = true; /* as it was before */
            give_back(asking);
            return r;
        }
        r = converse(asking->connection, request, waiting, answer);
        if (waiting->left) {
            leave(asking, waiting->work);
            return r;
        }
        may_hang_end(waiting->work);
    }
    if (r == 0)
        give_back(asking);
    else
        give_up(asking, r != -EINTR && r != -ENOMEM);
    return r;
}

/* How long an answer may take. */
static uint64_t deadline_of(const struct owner_call *call)
{
    const struct entry *entry = &layout[call->entry];

    if (call->op == OWNER_ROWS)
        return OWNER_LARGE_NS;
    if (call->op != OWNER_RENDER && call->op != OWNER_SAY)
        return OWNER_NAMES_NS;
    return strstr(entry->path, "/heap/") || entry->render == table_render ? OWNER_LARGE_NS
                                                                          : OWNER_FILE_NS;
}

static int ask_class(struct owners *owners, const struct owner_class *class,
                     const struct owner_request *request, struct may_hang *work,
                     const struct interrupt *interrupt, bool *retries, struct owner_answer *answer)
{
    struct asking asking = {.owners = owners};
    struct waiting waiting = {.work = work,
                              .interrupt = interrupt,
                              .until = monotonic_ns() + deadline_of(&request->call)};

    int r = take_connection(&asking, class, request->call.pid, &answer->why);
    if (r == 0)
        r = ask_connected(&asking, request, &waiting, answer);
    *retries = r == -EPIPE || (asking.retries && r == -EIO);
    if (r < 0)
        explain(r, waiting.left, class, &answer->why);
    return r == -EPIPE || r == -EPROTO ? -EIO : r == -ETIME ? -ETIMEDOUT : r;
}

/* ---- whom to ask ---- */

static struct known_class *slot(struct owners *owners, const struct owner_call *call)
{
    return &owners->known[(unsigned)call->pid % CLASSES];
}

static bool is_of(const struct known_class *known, const struct owner_call *call)
{
    return known->pid == call->pid && known->start_time == call->start_time;
}

static bool is_refused(const struct known_class *known)
{
    return known->refused_ns > monotonic_ns();
}

static void use_own(struct owner_class *class)
{
    *class = (struct owner_class){.own = true, .user = class->user};
}

static int class_of(struct owners *owners, const struct owner_call *call, struct owner_class *out)
{
    uint64_t now = monotonic_ns();
    {
        _guard_mutex_(&owners->lock);
        const struct known_class *known = slot(owners, call);
        if (is_of(known, call) && now - known->since_ns < CLASS_FRESH_NS) {
            *out = known->class;
            if (is_refused(known))
                use_own(out);
            return 0;
        }
    }
    int r = class_read(owners->access, call->pid, out);
    if (r < 0)
        return r;
    _guard_mutex_(&owners->lock);
    struct known_class *known = slot(owners, call);
    bool same = is_of(known, call) && !memcmp(&known->class, out, sizeof *out);
    *known = (struct known_class){.pid = call->pid,
                                  .start_time = call->start_time,
                                  .since_ns = now,
                                  .refused_ns = same ? known->refused_ns : 0,
                                  .class = *out};
    if (is_refused(known))
        use_own(out);
    return 0;
}

static void class_of_core(const struct owners *owners, unsigned number, struct owner_class *out)
{
    *out = (struct owner_class){.nobody = true,
                                .user = owners->cores[number].core->stat.st_uid,
                                .core = number + 1};
}

/* The kernel doesn't let the owner process read it. */
static void note_refusal(struct owners *owners, const struct owner_call *call)
{
    _guard_mutex_(&owners->lock);
    struct known_class *known = slot(owners, call);
    if (is_of(known, call))
        known->refused_ns = monotonic_ns() + REFUSED_NS;
}

/* Whether that is what the kernel says to such rights, and not just what an owner process says:
 * what it has read may have taken it over. So one is asked that has read nothing yet. */
static bool is_refused_by_kernel(struct owners *owners, const struct owner_class *class, pid_t pid)
{
    const struct owner_start start = {.class = *class, .tries = pid};
    pid_t child;
    int control;

    int r = start_process(owners, &start, pid, &child, &control);
    if (r < 0)
        return r == -EPERM || r == -EACCES;
    _guard_mutex_(&owners->lock);
    end_process(owners, child, control);
    return false;
}

static bool is_refusal(int error) { return error == -EPERM || error == -EACCES; }

static void clear(struct owner_answer *answer)
{
    owner_answer_deinit(answer);
    *answer = (struct owner_answer){.text = TEXT_INIT, .why = TEXT_INIT};
}

/* Asks a process, and once more if that had ended before it was asked. */
static int ask(struct owners *owners, const struct owner_class *class,
               const struct owner_request *request, struct may_hang *work,
               const struct interrupt *interrupt, struct owner_answer *answer)
{
    bool retries = false;

    int r = ask_class(owners, class, request, work, interrupt, &retries, answer);
    if (retries) {
        clear(answer);
        r = ask_class(owners, class, request, work, interrupt, &retries, answer);
    }
    if (r < 0)
        answer->error = r;
    return answer->error;
}

/* Whether root's rights may be used on a process that its own rights aren't enough for. -EPERM. */
static int may_use_own(const struct owners *owners, pid_t pid, struct text *why)
{
    struct access_target target;

    if (owners->contain != CONTAIN_STRICT ||
        (access_read_target(pid, &target) == 0 && !target.uid[0] && !target.uid[1]))
        return 0;
    text_puts(why,
              "only root's rights are enough to read this process (setuid, not dumpable, Yama, "
              "or a container's), and the mount was told not to use them for that (-o "
              "contain=strict)");
    return -EPERM;
}

/* Asks one with the process's own rights. 1: the kernel lets none read it. */
static int ask_twin(struct owners *owners, struct owner_class *class,
                    const struct owner_request *request, struct may_hang *work,
                    const struct interrupt *interrupt, struct owner_answer *answer)
{
    int r = ask(owners, class, request, work, interrupt, answer);
    if (!is_refusal(r))
        return r;
    if (!is_refused_by_kernel(owners, class, request->call.pid)) {
        clear(answer);
        text_puts(&answer->why, "what reads the processes of that user says that it may not read "
                                "this one, and the kernel says that it may: read again");
        answer->error = r;
        return r;
    }
    note_refusal(owners, &request->call);
    use_own(class);
    clear(answer);
    return 1;
}

static int ask_whom(struct owners *owners, const struct owner_request *request,
                    struct may_hang *work, const struct interrupt *interrupt,
                    struct owner_answer *answer)
{
    const struct owner_call *call = &request->call;
    struct owner_class class;

    if (call->pid >= TARGET_CORE_PID) {
        class_of_core(owners, (unsigned)(call->pid - TARGET_CORE_PID), &class);
        return ask(owners, &class, request, work, interrupt, answer);
    }
    int r = class_of(owners, call, &class);
    if (r < 0) {
        answer->error = r;
        return r;
    }
    r = class.own ? 1 : ask_twin(owners, &class, request, work, interrupt, answer);
    if (r <= 0)
        return r;
    r = may_use_own(owners, call->pid, &answer->why);
    if (r < 0) {
        answer->error = r;
        return r;
    }
    return ask(owners, &class, request, work, interrupt, answer);
}

int owners_ask(struct owners *owners, const struct credentials *who, const struct owner_call *call,
               struct may_hang *work, const struct interrupt *interrupt,
               struct owner_answer *answer)
{
    struct owner_request request = {.call = *call, .reads = who != NULL};

    if (who)
        request.who = who->who;
    return ask_whom(owners, &request, work, interrupt, answer);
}

/* ---- for the registry ---- */

static void free_work(struct may_hang *work) { free(work); }

/* Asks one that has no rights: what a process has recorded that has ended is read, and no process.
 */
static int ask_nobody(struct owners *owners, uid_t user, const struct owner_request *request,
                      struct may_hang *work, const struct interrupt *interrupt,
                      struct owner_answer *answer)
{
    const struct owner_class class = {.nobody = true, .user = user};

    return ask(owners, &class, request, work, interrupt, answer);
}

/* Asks about a process, and not about a place. left: what it was, of one that has ended; NULL: it
 * is there. */
static int ask_request(struct owners *owners, const struct owner_request *request,
                       const struct access_target *left, const struct interrupt *interrupt,
                       struct owner_answer *answer)
{
    struct may_hang *work = calloc(1, sizeof *work);

    if (!work)
        return -ENOMEM;
    *work = (struct may_hang){.pid = request->call.pid, .free = free_work};
    may_hang_init(work);
    int r = left ? ask_nobody(owners, left->uid[0], request, work, interrupt, answer)
                 : ask_whom(owners, request, work, interrupt, answer);
    may_hang_unref(work);
    return r;
}

static int ask_about(struct owners *owners, const struct owner_call *call,
                     struct owner_answer *answer)
{
    const struct owner_request request = {.call = *call};

    return ask_request(owners, &request, NULL, NULL, answer);
}

/* Whether it is an owner process, or runs statements: to read one would take root's rights. */
static bool is_ours(struct owners *owners, pid_t pid)
{
    bool found = statements_has(owners->statements, pid);

    _guard_mutex_(&owners->lock);
    for (size_t i = 0; i < owners->n && !found; i++)
        found = owners->owners[i].pid == pid;
    for (size_t i = 0; i < ARRAY_SIZE(owners->acting) && !found; i++)
        found = owners->acting[i] == pid;
    return found;
}

static int examine(void *arg, pid_t pid, uint64_t start_time, bool now, struct examined *out)
{
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    const struct owner_call call = {
        .op = OWNER_EXAMINE, .value = now, .pid = pid, .start_time = start_time};

    if (is_ours(arg, pid))
        return -ENOENT;
    int r = ask_about(arg, &call, &answer);
    if (r == 0 && owner_examined_read(&answer, out) < 0)
        r = -EIO;
    owner_answer_deinit(&answer);
    return r;
}

static int identify(void *arg, pid_t pid, uint64_t start_time, struct text *out)
{
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    const struct owner_call call = {.op = OWNER_IDENTIFY, .pid = pid, .start_time = start_time};

    int r = ask_about(arg, &call, &answer);
    if (r == 0)
        text_add(out, answer.text.data, answer.text.size);
    owner_answer_deinit(&answer);
    return r == 0 ? out->error : r;
}

static int stacks(void *arg, pid_t pid, uint64_t start_time, enum stacks_form form,
                  struct text *why, struct text *out)
{
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    const struct owner_call call = {
        .op = OWNER_STACKS, .value = form, .pid = pid, .start_time = start_time};

    int r = ask_about(arg, &call, &answer);
    text_add(why, answer.why.data, answer.why.size);
    if (r == 0)
        text_add(out, answer.text.data, answer.text.size);
    owner_answer_deinit(&answer);
    return r == 0 ? out->error : r;
}

/* Adds the ring of a table, if there is one and it isn't among them yet. */
static void add_ring(struct recording *recording, enum recorded table,
                     struct owner_request *request)
{
    for (uint32_t i = 0; i < request->nrings; i++)
        if (request->rings[i].table == table)
            return;
    int fd = recording_ring_file(recording, table);
    if (fd >= 0)
        request->rings[request->nrings++] = (struct owner_ring){table, fd};
}

static int rows(void *arg, struct process *process, struct wanted *const *wanted, size_t n,
                const struct looker *looker, const struct stop *stop, struct waits *waits,
                struct text *why)
{
    struct access_target left;
    bool ended = process_left(process, &left) && !process_is_core(process);
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    _cleanup_free_ struct owner_request *request = malloc(OWNER_PIECE);

    if (!request)
        return -ENOMEM;
    *request = (struct owner_request){
        .call = {.op = OWNER_ROWS,
                 .value = (uint32_t)n,
                 .pid = ended ? 0 : process->pid,
                 .start_time = process->start_time,
                 .membership = process_membership(process),
                 .is_worker = process_is_worker(process)},
        .who = looker->principals.opener->who,
    };
    request->more = (uint32_t)rows_question_write(wanted, n, looker, stop, (char *)(request + 1),
                                                  OWNER_MORE_MAX);
    for (size_t i = 0; i < n; i++)
        if (wanted[i]->table->recorded >= 0)
            add_ring(process_recording(process), (enum recorded)wanted[i]->table->recorded,
                     request);
    int r = ask_request(arg, request, ended ? &left : NULL, stop->interrupt, &answer);
    owner_request_close(request);
    if (wanted[0]->rows.front && (r == -ENOMEM || r == -EFBIG)) {
        if (!answer.why.size)
            text_puts(&answer.why, "its rows are more than a statement may use");
        r = -E2BIG; /* so it says, and the other processes have their rows */
    }
    if (r == 0)
        r = rows_answer_read(&answer, wanted, n, waits);
    if (r == -EPROTO) {
        r = -EIO;
        explain(r, false, NULL, &answer.why);
    }
    text_add(why, answer.why.data, answer.why.size);
    owner_answer_deinit(&answer);
    return r;
}

static int ask_end(void *arg, pid_t pid, const char *question, struct text *answer)
{
    struct owner_answer told = {.text = TEXT_INIT, .why = TEXT_INIT};
    _cleanup_free_ struct owner_request *request = malloc(OWNER_PIECE);
    struct proc_stat stat;

    if (!request)
        return -ENOMEM;
    int r = pid == getpid() || is_ours(arg, pid) ? -ENOENT : proc_stat_read(pid, &stat);
    if (r < 0)
        return r;
    *request =
        (struct owner_request){.call = {.op = OWNER_END, .pid = pid, .start_time = stat.start_time},
                               .more = (uint32_t)strlen(question)};
    memcpy(request + 1, question, request->more);
    r = ask_request(arg, request, NULL, NULL, &told);
    if (r == -ETIMEDOUT) { /* of one that hangs that is said at once; else its reader was stopped */
        clear(&told);
        r = ask_request(arg, request, NULL, NULL, &told);
    }
    if (r == 0)
        text_add(answer, told.text.data, told.text.size);
    owner_answer_deinit(&told);
    return r == 0 ? answer->error : r;
}

/* Whose a process is, or was. -ESRCH and the like. */
static int user_of(struct process *process, uid_t *out)
{
    struct access_target target;

    int r = process_left(process, &target) ? 0 : access_read_target(process->pid, &target);
    if (r == 0)
        *out = target.uid[0];
    return r;
}

/* What decodes for a user gave an answer that is none: it is ended, as what it says next may be the
 * answer to this. */
static void distrust(struct owners *owners, uid_t user)
{
    const struct owner_class class = {.nobody = true, .user = user};

    _guard_mutex_(&owners->lock);
    struct owner *owner = owner_of(owners, &class);
    if (owner)
        note_end(owners, owner, owner->generation, false);
}

/* Asks about the rings of a process of that user. */
static int ask_for_rings(struct owners *owners, uid_t user, const struct owner_request *request,
                         struct owner_answer *answer)
{
    struct may_hang *work = calloc(1, sizeof *work);

    if (!work)
        return -ENOMEM;
    *work = (struct may_hang){.free = free_work}; /* of no process: memory is all it looks at */
    may_hang_init(work);
    int r = ask_nobody(owners, user, request, work, NULL, answer);
    may_hang_unref(work);
    return r;
}

/* Living or ended: nothing of the process is read, so it takes none of its rights. */
static int rings(void *arg, struct process *process, struct ring_copy *copies, size_t n,
                 struct text *answer)
{
    struct owner_answer told = {.text = TEXT_INIT, .why = TEXT_INIT};
    _cleanup_free_ struct owner_request *request = malloc(OWNER_PIECE);
    uid_t user = 0;

    int r = request ? user_of(process, &user) : -ENOMEM;
    if (r < 0)
        return r;
    *request = (struct owner_request){.call = {.op = OWNER_RINGS, .value = (uint32_t)n},
                                      .more = (uint32_t)(n * sizeof copies->ask)};
    struct ring_ask *asks = (struct ring_ask *)(request + 1);
    for (size_t i = 0; i < n; i++) {
        memcpy(&asks[i], &copies[i].ask, sizeof *asks);
        add_ring(process_recording(process), (enum recorded)copies[i].ask.table, request);
    }
    r = ask_for_rings(arg, user, request, &told);
    owner_request_close(request);
    if (r == 0) {
        text_deinit(answer);
        *answer = told.text;
        told.text = TEXT_INIT;
        r = ring_copies_read(copies, n, answer);
    }
    owner_answer_deinit(&told);
    if (r == -EPROTO)
        distrust(arg, user);
    return r == -EPROTO ? -EIO : r;
}

/* ---- putting agents in ---- */

/* False: there are too many. */
static bool enter_acting(struct owners *owners, pid_t pid, size_t *at)
{
    _guard_mutex_(&owners->lock);
    reap(owners);
    for (*at = 0; *at < ARRAY_SIZE(owners->acting); ++*at) {
        if (owners->acting[*at])
            continue;
        owners->acting[*at] = pid;
        return true;
    }
    return false;
}

/* It is gone when this returns, unless it hangs. */
static void end_acting(struct owners *owners, size_t at, pid_t pid, int control)
{
    kill(pid, SIGKILL);
    await_end(pid);
    _guard_mutex_(&owners->lock);
    end_process(owners, pid, control);
    if (at < ARRAY_SIZE(owners->acting))
        owners->acting[at] = 0;
}

/* What acting_wait() has of no process that acts, in words. */
static int explain_acting(int error, struct text *why)
{
    if (why->size)
        return error;
    if (error == -EIO || error == -EPROTO)
        text_puts(why, "what acts on the processes of that user has crashed: try again");
    else if (error == -ETIMEDOUT)
        text_puts(why, "what acts on the processes of that user was stopped, or did not answer; it "
                       "was ended: try again");
    return error == -EPROTO ? -EIO : error;
}

/* Does it with the rights of a class. *refused: the kernel lets none of these do it, which a
 * process says that has read nothing yet. */
static int act_as(struct owners *owners, const struct owner_class *class,
                  const struct acting *acting, const struct interrupt *interrupt, bool *refused,
                  struct acting_reply *reply, int *channel, struct text *why)
{
    const struct owner_start start = {.class = *class, .tries = acting->pid, .acting = *acting};
    size_t at = ARRAY_SIZE(owners->acting);
    pid_t pid;
    int control;

    int r = start_process(owners, &start, acting->pid, &pid, &control);
    *refused = is_refusal(r);
    if (r < 0) {
        if (!*refused && r != -ESRCH)
            text_puts(why, "what acts on the processes of that user can't be started: try again");
        return r == -EPROTO ? -EIO : r == -ETIME ? -ETIMEDOUT : r;
    }
    if (enter_acting(owners, pid, &at)) {
        r = acting_wait(control, pid, acting, interrupt, reply, channel, why);
    } else {
        r = -EAGAIN;
        text_puts(why, "agents are put into too many processes just now: try again");
    }
    end_acting(owners, at, pid, control);
    return r < 0 ? explain_acting(r, why) : 0;
}

/* Does it with the process's own rights, if the kernel lets these. */
static int act(struct owners *owners, struct acting *acting, const struct interrupt *interrupt,
               struct acting_reply *reply, int *channel, struct text *why)
{
    const struct owner_call call = {.pid = acting->pid, .start_time = acting->start_time};
    struct owner_class class;
    bool refused = true;

    int r = class_of(owners, &call, &class);
    if (r < 0)
        return r;
    /* filters are read with root's rights, and by whoever has none: seccomp(2) */
    acting->unbarred = owners->contain != CONTAIN_STRICT && !owners->access->daemon.fsuid &&
                       seccomp_has_filters(acting->pid);
    if (acting->unbarred)
        use_own(&class);
    if (!class.own)
        r = act_as(owners, &class, acting, interrupt, &refused, reply, channel, why);
    if (!refused)
        return r;
    r = may_use_own(owners, acting->pid, why);
    if (r < 0)
        return r;
    use_own(&class);
    return act_as(owners, &class, acting, interrupt, &refused, reply, channel, why);
}

/* As act(); who keeps threads of the process stopped lets them go meanwhile. */
static int act_on_claimed(struct owners *owners, struct acting *acting,
                          const struct interrupt *interrupt, struct acting_reply *reply,
                          int *channel, struct text *why)
{
    int r = claim_pause(acting->pid);
    if (r < 0)
        return r;
    r = act(owners, acting, interrupt, reply, channel, why);
    claim_go_on(acting->pid);
    return r;
}

static int find_channel(void *arg, pid_t pid, uint64_t start_time, enum attach_way way,
                        const struct interrupt *interrupt, struct agent_channel *out,
                        struct text *why)
{
    struct acting acting = {.op = ACTING_CHANNEL, .pid = pid, .start_time = start_time, .way = way};
    struct acting_reply reply;
    int channel;

    int r = act_on_claimed(arg, &acting, interrupt, &reply, &channel, why);
    if (r == 0)
        *out = (struct agent_channel){.fd = channel,
                                      .found = {.base = reply.base,
                                                .bias = reply.bias,
                                                .record_addr = reply.record_addr,
                                                .start_addr = reply.start_addr,
                                                .pid = (pid_t)reply.pid},
                                      .ours = reply.done,
                                      .pause_ns = reply.pause_ns};
    return r;
}

static int take_out(void *arg, pid_t pid, uint64_t start_time, const struct agent_ended *ended,
                    const struct interrupt *interrupt, bool *unloaded, struct text *why)
{
    struct acting acting = {.op = ACTING_TAKE_OUT,
                            .pid = pid,
                            .start_time = start_time,
                            .unloadable = ended->unloadable,
                            .channel_tid = ended->channel_tid,
                            .base = ended->base};
    struct acting_reply reply;
    int channel;

    *unloaded = false;
    int r = act_on_claimed(arg, &acting, interrupt, &reply, &channel, why);
    *unloaded = r == 0 && reply.done;
    return r;
}

static int lend(void *arg, pid_t pid, uint64_t start_time, const struct found_agent *found,
                uint64_t duration_ns, const struct interrupt *interrupt)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct acting acting = {.op = ACTING_LEND,
                            .pid = pid,
                            .start_time = start_time,
                            .base = found->base,
                            .duration_ns = duration_ns};
    struct acting_reply reply;
    int channel;

    return act_on_claimed(arg, &acting, interrupt, &reply, &channel, &why);
}

/* ---- sampling ---- */

static bool enter_sampling(struct owners *owners)
{
    _guard_mutex_(&owners->lock);
    reap(owners);
    if (owners->nsampling == SAMPLING_MAX)
        return false;
    owners->nsampling++;
    return true;
}

static void leave_sampling(struct owners *owners)
{
    _guard_mutex_(&owners->lock);
    owners->nsampling--;
}

/* Begins one with the process's own rights, if the kernel lets these read it. */
static int begin_with_rights(struct owners *owners, const struct sampling *what, pid_t *pid,
                             int *control, struct text *why)
{
    const struct owner_call call = {.pid = what->pid, .start_time = what->start_time};
    struct owner_start start = {.tries = what->pid, .sampling = *what};

    int r = class_of(owners, &call, &start.class);
    if (r < 0)
        return r;
    r = start.class.own ? -EPERM : start_process(owners, &start, what->pid, pid, control);
    if (!is_refusal(r))
        return r;
    r = may_use_own(owners, what->pid, why);
    if (r < 0)
        return r;
    use_own(&start.class);
    return start_process(owners, &start, what->pid, pid, control);
}

static int begin_sampling(void *arg, const struct sampling *what, pid_t *pid, int *control,
                          struct text *why)
{
    struct owners *owners = arg;

    if (!enter_sampling(owners)) {
        text_printf(why, "%d processes are sampled already", SAMPLING_MAX);
        return -EAGAIN;
    }
    int r = begin_with_rights(owners, what, pid, control, why);
    if (r < 0) {
        *pid = 0;
        leave_sampling(owners);
        if (!why->size && r != -ESRCH)
            text_puts(why, "what samples the processes of that user can't be started: try again");
    }
    return r == -EPROTO ? -EIO : r == -ETIME ? -ETIMEDOUT : r;
}

static void end_sampling(void *arg, pid_t pid, int control)
{
    struct owners *owners = arg;

    kill(pid, SIGKILL);
    await_end(pid);
    _guard_mutex_(&owners->lock);
    end_process(owners, pid, control);
    owners->nsampling--;
}

static int read_told(const struct owner_answer *answer, uint64_t out[2])
{
    const char *text = answer->text.size ? answer->text.data : "";

    return sscanf(text, "%" SCNu64 " %" SCNu64, &out[0], &out[1]) == 2 ? 0 : -EIO;
}

static int tell(void *arg, struct process *process, const struct asked_for *asked, uint64_t out[2],
                struct text *why)
{
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    struct owner_call call = {.op = OWNER_TELL,
                              .value = asked->what,
                              .pid = process->pid,
                              .start_time = process->start_time,
                              .tid = asked->tid,
                              .depth = asked->seconds,
                              .interp = asked->interp,
                              .membership = process_membership(process),
                              .is_worker = process_is_worker(process)};

    snprintf(call.word, sizeof call.word, "%s", asked->lost ? asked->lost : "");
    int r = ask_about(arg, &call, &answer);
    if (r == 0)
        r = read_told(&answer, out);
    if (r == -ESRCH && !answer.why.size)
        text_puts(&answer.why, "the process or the thread has ended");
    text_add(why, answer.why.data, answer.why.size);
    owner_answer_deinit(&answer);
    return r;
}

static uint32_t entry_of(const char *path)
{
    uint32_t entry = 0;

    while (entry + 1 < layout_size && strcmp(layout[entry].path, path) != 0)
        entry++;
    return entry;
}

static int say(void *arg, struct process *process, const struct asked_line *asked,
               const struct interrupt *interrupt, struct text *why, struct text *out)
{
    struct owner_answer answer = {.text = TEXT_INIT, .why = TEXT_INIT};
    _cleanup_free_ struct owner_request *request = malloc(OWNER_PIECE);

    if (!request)
        return -ENOMEM;
    if (asked->size > OWNER_MORE_MAX)
        return -E2BIG;
    *request = (struct owner_request){.call = {.op = OWNER_SAY,
                                               .entry = entry_of(asked->file),
                                               .pid = process->pid,
                                               .start_time = process->start_time,
                                               .tid = asked->tid,
                                               .depth = asked->depth,
                                               .membership = process_membership(process),
                                               .is_worker = process_is_worker(process)},
                                      .more = (uint32_t)asked->size};
    snprintf(request->call.word, sizeof request->call.word, "%s", asked->word);
    memcpy(request + 1, asked->line, asked->size);
    int r = ask_request(arg, request, NULL, interrupt, &answer);
    text_add(why, answer.why.data, answer.why.size);
    if (r == 0)
        text_add(out, answer.text.data, answer.text.size);
    if (r == -ESRCH && !why->size)
        text_puts(why, "the process or the thread has ended");
    owner_answer_deinit(&answer);
    return r == 0 ? out->error : r;
}

int owners_read_core(struct owners *owners, struct core *core, unsigned number, struct text *why)
{
    struct core_file *file = &owners->cores[number];
    struct owner_class class;

    file->core = core;
    class_of_core(owners, number, &class);
    _guard_mutex_(&owners->lock);
    int r = start(owners, owner_of(owners, &class), 0);
    if (r < 0 && file->why.size)
        text_add(why, file->why.data, file->why.size);
    else if (r < 0)
        text_printf(why, "core file %s: what reads it has crashed, or can't be started: %s",
                    core->path, strerror(-r));
    return r;
}

const struct statement_runner *owners_statements(struct owners *owners)
{
    return statements_runner(owners->statements);
}

const struct examiner *owners_examiner(struct owners *owners)
{
    owners->attacher = (struct attacher){
        .arg = owners, .channel = find_channel, .take_out = take_out, .lend = lend};
    sampling_init(&owners->sampler);
    owners->sampler.arg = owners;
    owners->sampler.begin = begin_sampling;
    owners->sampler.end = end_sampling;
    owners->examiner = (struct examiner){.arg = owners,
                                         .examine = examine,
                                         .identify = identify,
                                         .stacks = stacks,
                                         .rows = rows,
                                         .tell = tell,
                                         .rings = rings,
                                         .end = ask_end,
                                         .say = say,
                                         .attacher = &owners->attacher,
                                         .sampled_by = &owners->sampler.source};
    return &owners->examiner;
}
