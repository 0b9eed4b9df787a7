#include "fs/link/session.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <string.h>
#include <sys/socket.h>

#define HELLO_ID 1
#define OWES_MS 20 /* between two tries to say what there was no room for */

static void session_free(struct session *session)
{
    exchange_deinit(&session->exchange);
    if (session->fd >= 0)
        close(session->fd);
    if (session->pidfd >= 0)
        close(session->pidfd);
    if (session->stop >= 0)
        close(session->stop);
    if (session->owes >= 0)
        close(session->owes);
    free(session->released);
    pthread_mutex_destroy(&session->lock);
    pthread_mutex_destroy(&session->sending);
    pthread_mutex_destroy(&session->listening);
    free(session);
}

static void cleanup_session_free(struct session **session)
{
    if (*session)
        session_free(*session);
}

void session_end(struct session *session, int error)
{
    _guard_mutex_(&session->lock);

    if (session->ended)
        return;
    session->ended = error;
    /* the agent sees the end at once, even if a child of the target inherited a copy of our end */
    shutdown(session->fd, SHUT_RDWR);
    for (struct exchange_request *r = session->exchange.requests; r; r = r->next)
        if (r->wake >= 0)
            eventfd_write(r->wake, 1);
}

/* What the agent said without being asked. */
struct news {
    bool came[PROTO_HAPPENED - PROTO_RINGS + 1];
    struct proto_crashed crashed;
    uint64_t second; /* of CLOCK_MONOTONIC, when something came last */
};

static void note_news(struct news *news, const struct wire_frame *frame)
{
    if (frame->header.id)
        return;
    news->came[frame->header.op - PROTO_RINGS] = true;
    if (frame->header.op == PROTO_CRASHED)
        memcpy(&news->crashed, frame->body, sizeof news->crashed);
}

/* Takes what has arrived, up to a number of frames so that a stop is seen. 0 or why it is over. */
static int receive_some(struct session *session, struct wire_frame *frame, struct news *news)
{
    uint64_t second = monotonic_ns() / 1000000000u;

    if (second != news->second)
        exchange_new_second(&session->exchange);
    news->second = second;
    for (unsigned i = 0; i < 64; i++) {
        struct exchange_request *changed;
        int r = wire_receive(session->fd, frame);
        if (r == -EAGAIN)
            return 0;
        if (r < 0)
            return r == -EPROTO ? -EPROTO : -ESRCH;

        _guard_mutex_(&session->lock);
        r = exchange_frame(&session->exchange, frame, &changed);
        if (r < 0)
            return r;
        note_news(news, frame);
        if (changed && frame->header.op == PROTO_READY)
            session->ready = changed->ready;
        if (changed && changed->wake >= 0)
            eventfd_write(changed->wake, 1);
    }
    return 0;
}

static void tell(struct session *session, uint16_t op, const struct proto_crashed *crashed)
{
    _guard_mutex_(&session->listening);
    if (session->notice)
        session->notice(session->notice_arg, session->notice_key, op, crashed);
}

/* Hands on what came without a request: the last of each kind. */
static void tell_news(struct session *session, struct news *news)
{
    for (uint16_t op = PROTO_RINGS; op <= PROTO_HAPPENED; op++)
        if (news->came[op - PROTO_RINGS])
            tell(session, op, op == PROTO_CRASHED ? &news->crashed : NULL);
    memset(news->came, 0, sizeof news->came);
}

/* ---- what it owes ---- */

void session_release(struct session *session, uint64_t number)
{
    {
        _guard_mutex_(&session->lock);
        int r = session->ended ? 0
                               : ARRAY_GROW(session->released, session->released_alloc,
                                            session->nreleased + 1);
        if (r == 0 && !session->ended)
            session->released[session->nreleased++] = number;
        if (r == 0) {
            eventfd_write(session->owes, 1);
            return;
        }
    }
    session_end(session, -ESRCH); /* so it takes everything back */
}

/* The first that is owed. False: nothing is. */
static bool find_released(struct session *session, struct proto_release *out)
{
    _guard_mutex_(&session->lock);
    if (!session->nreleased)
        return false;
    out->here = session->released[0];
    return true;
}

static void forget_released(struct session *session)
{
    _guard_mutex_(&session->lock);
    memmove(session->released, session->released + 1,
            --session->nreleased * sizeof *session->released);
}

/* Tells the agent of files that are closed. False: there is no room for all now. */
static bool send_released(struct session *session)
{
    struct proto_release body;
    eventfd_t n;
    int r = 0;

    (void)eventfd_read(session->owes, &n);
    if (!find_released(session, &body))
        return true;
    if (pthread_mutex_trylock(&session->sending))
        return false;
    while (r == 0 && find_released(session, &body)) {
        r = wire_send(session->fd, PROTO_RELEASE, UINT64_MAX, &body, sizeof body, NULL, 0, 0);
        if (r == 0)
            forget_released(session);
    }
    pthread_mutex_unlock(&session->sending);
    return r != -EAGAIN; /* where it has gone, that is received next */
}

/* ---- */

static void *receiver_main(void *arg)
{
    struct session *session = arg;
    struct news news = {0};
    _cleanup_free_ struct wire_frame *frame = malloc(sizeof *frame);
    int r = frame ? 0 : -ENOMEM;

    while (r == 0) {
        struct pollfd fds[] = {{.fd = session->stop, .events = POLLIN},
                               {.fd = session->fd, .events = POLLIN},
                               {.fd = session->pidfd, .events = POLLIN},
                               {.fd = session->owes, .events = POLLIN}};
        bool owes = !send_released(session);
        if (poll(fds, ARRAY_SIZE(fds), owes ? OWES_MS : -1) < 0 && errno != EINTR)
            r = -errno;
        else if (fds[0].revents)
            break;
        else if (fds[1].revents)
            r = receive_some(session, frame, &news);
        else if (fds[2].revents)
            r = -ESRCH; /* and all that it had said has been read */
        tell_news(session, &news);
    }
    session_end(session, r ? r : -ESRCH);
    return NULL;
}

/* Waits until the channel can be read. */
static int wait_readable(int fd, int pidfd, const struct interrupt *interrupt, uint64_t until)
{
    for (;;) {
        uint64_t now = monotonic_ns();
        if (interrupted(interrupt))
            return -EINTR;
        if (now >= until)
            return -ETIMEDOUT;
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = pidfd, .events = POLLIN},
                               {.fd = interrupt ? interrupt->fd : -1, .events = POLLIN}};
        int n = poll(fds, ARRAY_SIZE(fds), (int)((until - now) / 1000000u) + 1);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && fds[0].revents)
            return 0;
        if (n > 0 && fds[1].revents)
            return -EPIPE;
    }
}

/* A descriptor that a process handed out may be anything: poll() and read() of a file system of its
 * own would wait for it. */
static bool is_channel(int fd)
{
    int domain = 0, type = 0;
    socklen_t domain_size = sizeof domain, type_size = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && domain == AF_UNIX &&
           type == SOCK_SEQPACKET;
}

/* Until the agent has answered, the end may be another daemon's as well: it is not shut down. */
static int say_hello(struct session *session, const struct interrupt *interrupt)
{
    struct proto_hello hello = {.version = PROTO_VERSION};
    uint64_t until = monotonic_ns() + SESSION_ANSWER_NS;

    if (getrandom(&hello.nonce, sizeof hello.nonce, GRND_NONBLOCK) != (ssize_t)sizeof hello.nonce)
        hello.nonce = monotonic_ns() ^ (uint64_t)getpid() << 48;
    _cleanup_free_ struct wire_frame *frame = malloc(sizeof *frame);
    if (!frame)
        return -ENOMEM;

    int r = wire_send(session->fd, PROTO_HELLO, HELLO_ID, &hello, sizeof hello, NULL, 0, 0);
    while (r == 0) {
        r = wait_readable(session->fd, session->pidfd, interrupt, until);
        if (r == 0)
            r = wire_receive(session->fd, frame);
        if (r == 0 && frame->header.id != 0)
            break;
        if (r == -EAGAIN)
            r = 0; /* another daemon took it: ours comes, or the time is over */
    }
    if (r == 0)
        r = exchange_ready(frame, &session->ready);
    if (r == 0 && frame->header.id != HELLO_ID)
        r = -EPROTO;
    if (r == 0 && session->ready.nonce != hello.nonce)
        r = -EBUSY;
    /* not those of an earlier daemon, of whose requests one may still run */
    session->exchange.last_id = HELLO_ID + (hello.nonce >> 1);
    return r == -EAGAIN ? -ETIMEDOUT : r; /* no room even for a hello: nobody reads there */
}

int session_open(int fd, int pidfd, const struct interrupt *interrupt, struct session **out)
{
    _cleanup_close_ int channel = fd;
    struct session *made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    _cleanup_(cleanup_session_free) struct session *session = made;
    atomic_init(&session->refs, 1);
    pthread_mutex_init(&session->lock, NULL);
    pthread_mutex_init(&session->sending, NULL);
    pthread_mutex_init(&session->listening, NULL);
    session->fd = steal_fd(channel);
    session->pidfd = pidfd >= 0 ? fcntl(pidfd, F_DUPFD_CLOEXEC, 0) : -1;
    session->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->owes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->stop < 0 || session->owes < 0 || (pidfd >= 0 && session->pidfd < 0))
        return -errno;

    if (!is_channel(session->fd)) {
        worker_close(steal_fd(session->fd));
        return -EPROTO;
    }
    int r = say_hello(session, interrupt);
    if (r == 0)
        r = worker_start(receiver_main, session, "probefs-session", &session->receiver);
    if (r < 0)
        return r;
    *out = steal_pointer(session);
    return 0;
}

struct session *session_ref(struct session *session)
{
    atomic_fetch_add(&session->refs, 1);
    return session;
}

void session_unref(struct session *session)
{
    if (!session || atomic_fetch_sub(&session->refs, 1) > 1)
        return;
    eventfd_write(session->stop, 1);
    pthread_join(session->receiver, NULL);
    session_free(session);
}

bool session_alive(struct session *session)
{
    _guard_mutex_(&session->lock);
    return session->ended == 0;
}

void session_on_notice(struct session *session, session_notice *notice, void *arg, uint64_t key)
{
    {
        _guard_mutex_(&session->listening);
        if (session->notice == notice && session->notice_arg == arg && session->notice_key == key)
            return; /* what has come since was told */
        session->notice = notice;
        session->notice_arg = arg;
        session->notice_key = key;
    }
    if (notice)
        tell(session, PROTO_RINGS, NULL);
}

void session_on_wait(struct session *session, session_lend *lend, void *arg)
{
    session->lend_arg = arg;
    session->lend = lend;
}

void session_last_ready(struct session *session, struct proto_ready *out)
{
    _guard_mutex_(&session->lock);
    *out = session->ready;
}
