#include "fs/owner/owners.h"

#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/owner/message.h"
#include "fs/owner/owner.h"
#include "fs/proc/procfs.h"
#include "fs/process/process.h"
#include "fs/trace/callers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define IDLE_MAX 8 /* connections of one owner process that nobody uses */
#define START_MS 5000
#define END_MS 100                 /* a process whose connections are closed ends within */
#define CLASSES 512                /* processes whose class is remembered */
#define CLASS_FRESH_NS 1000000000u /* a process may take on other rights at any moment */
#define CRASHES_FREE 3             /* without a pause before the next start ... */
#define CRASH_CALM_NS 10000000000u /* ... unless they are so far apart */
#define PAUSE_NS 1000000000u       /* twice as long each time ... */
#define PAUSE_DOUBLED 6            /* ... so often */

struct connection {
    int fd;
    pid_t tid; /* of the thread at the other end */
    struct connection *next;
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
    uint64_t crashed_ns, again_ns, used_ns;
};

/* What is known of the rights that reading a process takes. */
struct known_class {
    uint64_t serial, since_ns;
    struct owner_class class;
};

struct owners {
    enum contain contain;
    const struct access *access;
    int callers;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t started; /* one was, or couldn't be */
    struct owner owners[OWNERS_MAX];
    size_t n;
    struct known_class known[CLASSES];
    pid_t ending[2 * OWNERS_MAX]; /* killed, and not waited for yet */
    size_t nending;
};

/* Moves a descriptor to where none of an owner process's goes. */
static int above_theirs(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, OWNER_CALLERS + 1);
    int error = errno;

    close(fd);
    return high < 0 ? -error : high;
}

int owners_new(enum contain contain, const struct access *access, struct owners **out)
{
    struct owners *owners = calloc(1, sizeof *owners);
    if (!owners)
        return -ENOMEM;
    owners->contain = contain;
    owners->access = access;
    pthread_mutex_init(&owners->lock, NULL);
    pthread_cond_init(&owners->started, NULL);
    owners->callers = -1;
    int fd = callers_share();
    int r = fd < 0 ? fd : 0;
    if (fd >= 0) {
        owners->callers = above_theirs(fd);
        r = owners->callers < 0 ? owners->callers : 0;
    }
    if (r < 0) {
        owners_free(owners);
        return r;
    }
    *out = owners;
    return 0;
}

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
    if (owners->callers >= 0)
        close(owners->callers);
    pthread_cond_destroy(&owners->started);
    pthread_mutex_destroy(&owners->lock);
    free(owners);
}

/* Receives what says that the other end is ready. Its tid, or -errno. */
static int receive_hello(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    struct owner_hello hello;
    uint64_t until = monotonic_ns() + START_MS * 1000000u;
    int r;

    do
        r = poll(&poll_fd, 1, START_MS);
    while (r < 0 && errno == EINTR && monotonic_ns() < until);
    if (r <= 0)
        return -ETIMEDOUT;
    if (recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello)
        return -EIO;
    if (hello.error)
        return hello.error < 0 && hello.error > -4096 ? hello.error : -EIO;
    return hello.tid > 0 ? hello.tid : -EIO;
}

/* Runs this very program again, so that nothing of what it holds is in the new one's memory. */
static int spawn(const struct owners *owners, int control, pid_t *out)
{
    char *const argv[] = {(char[]){OWNER_PROCESS_NAME}, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0); /* no Ctrl-C of the daemon's terminal */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_adddup2(&actions, control, OWNER_CONTROL);
    posix_spawn_file_actions_adddup2(&actions, owners->callers, OWNER_CALLERS);
    int r = -posix_spawn(out, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return r;
}

/* Starts one. It is not known to others yet: its user can stop it right now. */
static int start_process(struct owners *owners, const struct owner_class *class, pid_t *pid,
                         int *control)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    int high = above_theirs(ends[1]);
    int r = high < 0 ? high : spawn(owners, high, pid);
    if (high >= 0)
        close(high);
    if (r < 0) {
        close(ends[0]);
        return r;
    }
    *control = ends[0];
    if (send(*control, class, sizeof *class, MSG_NOSIGNAL) < 0)
        r = -EIO;
    if (r == 0)
        r = receive_hello(*control);
    if (r >= 0)
        return 0;
    _guard_mutex_(&owners->lock);
    end_process(owners, *pid, *control);
    return r;
}

/* Has it run. The lock is given up meanwhile, so that it holds nobody else up; who asks for the
 * same one waits. */
static int start(struct owners *owners, struct owner *owner)
{
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
    int r = start_process(owners, &owner->class, &pid, &control);
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

/* Whether it has ended because nobody asked it. Its connections are closed a moment before it can
 * be waited for. */
static bool has_ended_idle(pid_t pid)
{
    siginfo_t info = {0};

    for (int i = 0; i < END_MS && !info.si_pid; i++) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
            return false;
        if (!info.si_pid)
            nap_ns(1000000);
    }
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

/* ---- connections ---- */

static int send_descriptor(int control, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof fd)];
    } ancillary = {.head = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof fd)}};
    char byte = 0;
    struct iovec io = {&byte, 1};
    const struct msghdr message = {.msg_iov = &io,
                                   .msg_iovlen = 1,
                                   .msg_control = &ancillary,
                                   .msg_controllen = sizeof ancillary};

    memcpy(CMSG_DATA(&ancillary.head), &fd, sizeof fd);
    /* who has stopped it fills the socket: nobody waits for that */
    return sendmsg(control, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* With the lock. */
static int begin_connection(const struct owner *owner, struct connection **out)
{
    struct connection *connection = calloc(1, sizeof *connection);
    int ends[2];

    if (!connection)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        free(connection);
        return -errno;
    }
    int r = send_descriptor(owner->control, ends[1]);
    close(ends[1]);
    connection->fd = ends[0];
    if (r < 0) {
        close_connection(connection);
        return r == -EPIPE || r == -ECONNRESET ? -EIO : r;
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

/* Takes a connection to the owner of a class, which is started if need be. */
static int take_connection(struct asking *asking, const struct owner_class *class, struct text *why)
{
    struct owners *owners = asking->owners;

    _guard_mutex_(&owners->lock);
    reap(owners);
    struct owner *owner = owner_of(owners, class);
    if (!owner) {
        text_printf(why, "processes of more than %d users and groups are read at once: try again",
                    OWNERS_MAX);
        return -EAGAIN;
    }
    if (owner->asking == OWNER_CONNECTIONS_MAX || owner->asking - owner->nleft == OWNER_CALLS_MAX) {
        text_puts(why, "too many files of processes of that user are read at once: try again");
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
    int r = start(owners, owner);
    if (r == 0 && owner->idle) {
        asking->connection = owner->idle;
        owner->idle = owner->idle->next;
        owner->nidle--;
    } else if (r == 0) {
        r = begin_connection(owner, &asking->connection);
        asking->fresh = true;
    }
    if (r < 0)
        owner->asking--;
    asking->owner = owner;
    asking->generation = owner->generation;
    asking->pid = owner->pid;
    return r;
}

static void give_back(struct asking *asking)
{
    struct owner *owner = asking->owner;

    _guard_mutex_(&asking->owners->lock);
    owner->asking--;
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
    asking->owner->asking--;
    if (kills)
        asking->retries = note_end(asking->owners, asking->owner, asking->generation, idle);
}

/* ---- asking ---- */

/* Whether a thread of the owner's is stopped: whoever has its rights can do that. */
static bool is_stopped(pid_t tid)
{
    struct proc_stat stat;

    return proc_stat_read(tid, &stat) == 0 && (stat.state == 'T' || stat.state == 't');
}

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
    waiting->stopped = is_stopped(connection->tid) ? waiting->stopped + 1 : 0;
    return waiting->stopped == OWNER_STOPPED_LOOKS || monotonic_ns() > waiting->until ? -ETIME : 0;
}

/* Receives one message of the answer. Bytes; -EIO: nobody is there any more; or what look() says.
 */
static ssize_t receive(const struct connection *connection, struct waiting *waiting, char *message,
                       size_t cap)
{
    struct pollfd poll_fd = {.fd = connection->fd, .events = POLLIN};
    int r;

    while ((r = poll(&poll_fd, 1, MAY_HANG_LOOK_MS)) <= 0) {
        r = look(connection, waiting);
        if (r < 0)
            return r;
    }
    ssize_t n = recv(connection->fd, message, cap, 0);
    return n > 0 ? n : -EIO;
}

static int converse(const struct connection *connection, const struct owner_request *request,
                    struct waiting *waiting, struct owner_answer *answer)
{
    _cleanup_(owner_receipt_deinit) struct owner_receipt receipt = {.call = &request->call};
    char message[OWNER_PIECE];
    int r = 1;

    if (send(connection->fd, request, sizeof *request, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return -EPIPE;
    while (r > 0) {
        ssize_t n = receive(connection, waiting, message, sizeof message);
        r = n < 0 ? (int)n : owner_receipt_take(&receipt, message, (size_t)n);
    }
    return r < 0 ? r : owner_receipt_answer(&receipt, answer);
}

/* Whether the thread is one of that process: another is not looked at in its place. */
static bool has_thread(pid_t pid, pid_t tid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d", (int)pid, (int)tid);
    return access(path, F_OK) == 0;
}

static int greet(struct asking *asking)
{
    int tid = receive_hello(asking->connection->fd);

    if (tid < 0)
        return tid;
    asking->connection->tid = tid;
    return has_thread(asking->pid, tid) ? 0 : -EPROTO;
}

/* Why there is no answer, if nobody has said so. */
static void explain(int error, bool left, struct text *why)
{
    if (why->size)
        return;
    if (left)
        may_hang_explain(error, why);
    else if (error == -EIO || error == -EPROTO || error == -EPIPE)
        text_puts(why, "what reads the processes of that user has crashed: read again");
    else if (error == -ETIME)
        text_puts(why, "what reads the processes of that user was stopped, or did not answer; it "
                       "was ended: read again");
    else if (error != -EINTR)
        text_puts(why, "what reads the processes of that user can't be started: try again");
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

static int ask_class(struct owners *owners, const struct owner_class *class,
                     const struct owner_request *request, struct may_hang *work,
                     const struct interrupt *interrupt, bool *retries, struct owner_answer *answer)
{
    struct asking asking = {.owners = owners};
    struct waiting waiting = {.work = work,
                              .interrupt = interrupt,
                              .until = monotonic_ns() + OWNER_ANSWER_NS};

    int r = take_connection(&asking, class, &answer->why);
    if (r == 0)
        r = ask_connected(&asking, request, &waiting, answer);
    *retries = r == -EPIPE || (asking.retries && r == -EIO);
    if (r < 0)
        explain(r, waiting.left, &answer->why);
    return r == -EPIPE || r == -EPROTO ? -EIO : r == -ETIME ? -ETIMEDOUT : r;
}

/* ---- whom to ask ---- */

static struct known_class *slot(struct owners *owners, const struct process *process)
{
    return &owners->known[process->serial % CLASSES];
}

static int class_of(struct owners *owners, const struct process *process, struct owner_class *out)
{
    uint64_t now = monotonic_ns();
    {
        _guard_mutex_(&owners->lock);
        const struct known_class *known = slot(owners, process);
        if (known->serial == process->serial && now - known->since_ns < CLASS_FRESH_NS) {
            *out = known->class;
            return 0;
        }
    }
    int r = class_read(owners->access, process->pid, out);
    if (r < 0)
        return r;
    _guard_mutex_(&owners->lock);
    *slot(owners, process) =
        (struct known_class){.serial = process->serial, .since_ns = now, .class = *out};
    return 0;
}

/* The kernel doesn't let the owner process read it. */
static void note_refusal(struct owners *owners, const struct process *process)
{
    _guard_mutex_(&owners->lock);
    struct known_class *known = slot(owners, process);
    if (known->serial == process->serial)
        known->class = (struct owner_class){.own = true};
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

/* Nobody but root's own process may read it, and that doesn't for others. */
static int refuse(struct owner_answer *answer)
{
    clear(answer);
    text_puts(&answer->why, "only root's rights are enough to read this process (setuid, not "
                            "dumpable, Yama, or a container's), and the mount was told not to use "
                            "them for that (-o contain=strict)");
    answer->error = -EPERM;
    return -EPERM;
}

int owners_ask(struct owners *owners, struct process *process, const struct credentials *who,
               const struct owner_call *call, struct may_hang *work,
               const struct interrupt *interrupt, struct owner_answer *answer)
{
    struct owner_request request = {.call = *call, .reads = who != NULL};
    struct owner_class class;
    struct access_target target;

    if (who)
        request.who = who->who;
    int r = class_of(owners, process, &class);
    if (r < 0) {
        answer->error = r;
        return r;
    }
    if (!class.own) {
        r = ask(owners, &class, &request, work, interrupt, answer);
        if (!is_refusal(r))
            return r;
        note_refusal(owners, process);
        class = (struct owner_class){.own = true};
        clear(answer);
    }
    if (owners->contain == CONTAIN_STRICT &&
        (access_read_target(process->pid, &target) < 0 || target.uid[0] || target.uid[1]))
        return refuse(answer);
    return ask(owners, &class, &request, work, interrupt, answer);
}
