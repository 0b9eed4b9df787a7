/* The daemon's side of the conversation, against agents made for the purpose: each is a thread with
 * the other end of the socket, most of them bad ones. */
#include "agent/base/clock.h"
#include "agent/wire/wire.h"
#include "fs/link/lifetime.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define FAR (30 * SECOND) /* never reached unless something hangs */

struct agent {
    int fd;
    void (*play)(struct agent *agent);
    pthread_t thread;
    struct wire_frame frame; /* the last one received */
    char text[PROTO_TEXT_MAX];
    size_t size;
    uint64_t nonce;
};

/* Waits for the next frame; false: the channel has ended. */
static bool hear(struct agent *agent)
{
    for (;;) {
        struct pollfd p = {.fd = agent->fd, .events = POLLIN};
        CHECK(poll(&p, 1, 30000) == 1);
        int r = wire_receive(agent->fd, &agent->frame);
        if (r != -EAGAIN)
            return r == 0;
    }
}

static void expect(struct agent *agent, uint16_t op)
{
    CHECK(hear(agent));
    CHECK_INT(agent->frame.header.op, op);
}

static void say(struct agent *agent, uint16_t op, uint64_t id, const void *body, size_t size)
{
    (void)wire_send(agent->fd, op, id, body, size, NULL, 0, FAR);
}

static void say_done(struct agent *agent, uint64_t id, int error)
{
    struct proto_done done = {.error = error};
    say(agent, PROTO_DONE, id, &done, sizeof done);
}

static void say_ready(struct agent *agent)
{
    struct proto_ready ready = {.version = PROTO_VERSION,
                                .origin = ORIGIN_IMPORTED,
                                .channel_tid = 77,
                                .nonce = agent->nonce,
                                .evals = 3};
    say(agent, PROTO_READY, agent->frame.header.id, &ready, sizeof ready);
}

static void greet(struct agent *agent)
{
    struct proto_hello hello;

    expect(agent, PROTO_HELLO);
    memcpy(&hello, agent->frame.body, sizeof hello);
    CHECK_INT(hello.version, PROTO_VERSION);
    agent->nonce = hello.nonce;
    say_ready(agent);
}

/* Receives an EVAL with its whole text; nothing may come between its parts. Returns its id. */
static uint64_t hear_eval(struct agent *agent)
{
    struct proto_eval eval;

    expect(agent, PROTO_EVAL);
    uint64_t id = agent->frame.header.id;
    memcpy(&eval, agent->frame.body, sizeof eval);
    CHECK(eval.text_size <= PROTO_TEXT_MAX && eval.output_max == PROTO_OUTPUT_MAX);
    agent->size = wire_body_size(&agent->frame) - sizeof eval;
    memcpy(agent->text, agent->frame.body + sizeof eval, agent->size);
    while (agent->size < eval.text_size) {
        expect(agent, PROTO_TEXT);
        CHECK_INT(agent->frame.header.id, id);
        size_t part = wire_body_size(&agent->frame);
        CHECK(part <= eval.text_size - agent->size);
        memcpy(agent->text + agent->size, agent->frame.body, part);
        agent->size += part;
    }
    return id;
}

static void *agent_main(void *arg)
{
    struct agent *agent = arg;
    agent->play(agent);
    return NULL;
}

/* Starts an agent and returns the daemon's end. */
static int start(struct agent *agent, void (*play)(struct agent *agent))
{
    int fds[2];

    *agent = (struct agent){.play = play};
    CHECK_INT(wire_pair(fds), 0);
    agent->fd = fds[1];
    CHECK_INT(pthread_create(&agent->thread, NULL, agent_main, agent), 0);
    return fds[0];
}

static void stop(struct agent *agent)
{
    pthread_join(agent->thread, NULL);
    if (agent->fd >= 0)
        close(agent->fd);
}

static struct session *connect_to(struct agent *agent, void (*play)(struct agent *agent))
{
    struct session *session = NULL;
    CHECK_INT(session_open(start(agent, play), -1, NULL, &session), 0);
    return session;
}

static struct agent agent; /* large: of the scenarios with one */
static struct text output;
static struct proto_done done;

static int eval_within(struct session *session, const char *text, uint64_t gil_deadline_ns,
                       const struct interrupt *interrupt)
{
    struct session_eval eval = {.text = text,
                                .size = strlen(text),
                                .gil_deadline_ns = gil_deadline_ns};
    text_deinit(&output);
    return session_eval(session, &eval, interrupt, &output, &done);
}

/* The first words */

static void play_mute(struct agent *a) { expect(a, PROTO_HELLO); }
static void play_other_nonce(struct agent *a)
{
    expect(a, PROTO_HELLO);
    a->nonce = 1;
    say_ready(a);
}
static void play_no_agent(struct agent *a)
{
    expect(a, PROTO_HELLO);
    say_done(a, 1, 0);
}
static void play_closes(struct agent *a)
{
    close(a->fd);
    a->fd = -1;
}

static void test_hello(void)
{
    struct interrupt interrupt = {.raised = true, .fd = -1};
    struct session *session = NULL;
    int pipes[2];

    CHECK_INT(session_open(start(&agent, play_mute), -1, NULL, &session), -ETIMEDOUT);
    stop(&agent);
    CHECK_INT(session_open(start(&agent, play_mute), -1, &interrupt, &session), -EINTR);
    stop(&agent);
    CHECK_INT(session_open(start(&agent, play_other_nonce), -1, NULL, &session), -EBUSY);
    stop(&agent);
    CHECK_INT(session_open(start(&agent, play_no_agent), -1, NULL, &session), -EPROTO);
    stop(&agent);
    CHECK_INT(session_open(start(&agent, play_closes), -1, NULL, &session), -EPIPE);
    stop(&agent);

    /* what a hostile process hands out may be any descriptor */
    CHECK_INT(pipe(pipes), 0);
    CHECK_INT(session_open(pipes[0], -1, NULL, &session), -EPROTO);
    while (fcntl(pipes[0], F_GETFD) >= 0)
        usleep(1000); /* taken over, and closed by another thread */
    close(pipes[1]);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
    CHECK_INT(session_open(pipes[0], -1, NULL, &session), -EPROTO);
    close(pipes[1]);
    CHECK(!session);
}

/* Plain answers */

static void play_echo(struct agent *a)
{
    greet(a);
    for (;;) {
        struct pollfd p = {.fd = a->fd, .events = POLLIN};
        char peek[16];
        CHECK(poll(&p, 1, 30000) == 1);
        if (recv(a->fd, peek, sizeof peek, MSG_PEEK) <= 0)
            return;
        if (((struct proto_header *)peek)->op == PROTO_STATUS) {
            expect(a, PROTO_STATUS);
            say_ready(a);
            continue;
        }
        uint64_t id = hear_eval(a);
        say(a, PROTO_STARTED, id, NULL, 0);
        for (size_t at = 0; at < a->size; at += 30000)
            say(a, PROTO_OUTPUT, id, a->text + at, a->size - at < 30000 ? a->size - at : 30000);
        struct proto_done d = {.error = a->size && a->text[0] == '!' ? EIO : 0,
                               .consumed = a->size,
                               .words = "said"};
        say(a, PROTO_DONE, id, &d, sizeof d);
    }
}

static void test_answers(void)
{
    struct session *session = connect_to(&agent, play_echo);
    struct proto_ready ready;

    session_last_ready(session, &ready);
    CHECK_INT(ready.channel_tid, 77);
    CHECK_INT(session_status(session, &ready), 0);
    CHECK_INT(ready.evals, 3);
    CHECK_INT(eval_within(session, "print(1)", FAR, NULL), 0);
    CHECK_STR(output.data, "print(1)");
    CHECK_INT(done.consumed, 8);
    CHECK_INT(eval_within(session, "!raise", FAR, NULL), -EIO);
    CHECK_STR(output.data, "!raise");
    CHECK_STR(done.words, "said");
    CHECK_INT(eval_within(session, "", FAR, NULL), 0);
    CHECK_INT(output.size, 0);

    static char text[PROTO_TEXT_MAX + 2];
    for (size_t i = 0; i < PROTO_TEXT_MAX; i++)
        text[i] = (char)('a' + i / 7 % 26);
    for (size_t size = PROTO_FRAME_MAX - 80; size < PROTO_FRAME_MAX; size += 8) {
        struct session_eval eval = {.text = text, .size = size, .gil_deadline_ns = FAR};
        text_deinit(&output);
        CHECK_INT(session_eval(session, &eval, NULL, &output, &done), 0);
        CHECK(output.size == size && !memcmp(output.data, text, size));
    }
    CHECK_INT(eval_within(session, text, FAR, NULL), 0);
    CHECK_STR(output.data, text);
    text[PROTO_TEXT_MAX] = 'z';
    CHECK_INT(eval_within(session, text, FAR, NULL), -EFBIG);
    CHECK(session_alive(session));
    session_unref(session);
    stop(&agent);
}

/* Many at once: texts of several frames, answered in another order than asked, each by its own. */

#define ASKERS 6
#define ROUNDS 40

static void play_backwards(struct agent *a)
{
    uint64_t ids[ASKERS];
    char first[ASKERS];

    greet(a);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ASKERS; i++) {
            ids[i] = hear_eval(a);
            first[i] = a->text[0];
            for (size_t k = 0; k < a->size; k++)
                CHECK(a->text[k] == first[i]);
        }
        for (int i = ASKERS; i--;) {
            say(a, PROTO_STARTED, ids[i], NULL, 0);
            say(a, PROTO_OUTPUT, ids[i], &first[i], 1);
        }
        for (int i = ASKERS; i--;)
            say_done(a, ids[i], 0);
    }
}

static pthread_barrier_t barrier;
static struct session *shared;

static void *ask_many(void *arg)
{
    static char texts[ASKERS][100000];
    int me = (int)(size_t)arg;
    struct text got = TEXT_INIT;
    struct proto_done d;

    memset(texts[me], 'A' + me, sizeof texts[me]);
    for (int round = 0; round < ROUNDS; round++) {
        struct session_eval eval = {.text = texts[me],
                                    .gil_deadline_ns = FAR,
                                    .size = (size_t)(round * 2311 + me * 97) % 100000 + 1};
        pthread_barrier_wait(&barrier);
        text_clear(&got);
        CHECK_INT(session_eval(shared, &eval, NULL, &got, &d), 0);
        CHECK(got.size == 1 && got.data[0] == 'A' + me);
    }
    text_deinit(&got);
    return NULL;
}

static void test_many_at_once(void)
{
    pthread_t threads[ASKERS];

    shared = connect_to(&agent, play_backwards);
    pthread_barrier_init(&barrier, NULL, ASKERS);
    for (size_t i = 0; i < ASKERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, ask_many, (void *)i), 0);
    for (size_t i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    session_unref(shared);
    stop(&agent);
}

/* The GIL is not to be had. What the agent answers to CANCEL is the first letter of the text. */

static atomic_bool given_up; /* who asked the silent one waits no longer */

static void play_busy(struct agent *a)
{
    greet(a);
    for (;;) {
        struct pollfd p = {.fd = a->fd, .events = POLLIN};
        char peek[1];
        CHECK(poll(&p, 1, 30000) == 1);
        if (recv(a->fd, peek, sizeof peek, MSG_PEEK) <= 0)
            return;
        uint64_t id = hear_eval(a);
        if (a->text[0] == 'n') { /* the next one, which is not cancelled */
            say_done(a, id, 0);
            continue;
        }
        expect(a, PROTO_CANCEL);
        CHECK_INT(a->frame.header.id, id);
        switch (a->text[0]) {
        case 'c': say_done(a, id, ECANCELED); break;
        case 'e': say_done(a, id, 0); break;
        case 'b':
            say(a, PROTO_STARTED, id, NULL, 0);
            say(a, PROTO_OUTPUT, id, "half", 4);
            say_done(a, id, EINTR);
            break;
        case 's': /* silent now, and long after the last frame of the one before */
            say(a, PROTO_STARTED, id, NULL, 0);
            while (!atomic_load(&given_up))
                usleep(1000);
            say(a, PROTO_OUTPUT, id, "late", 4);
            say_done(a, id, EINTR);
            break;
        }
    }
}

static void test_gil_deadline(void)
{
    struct session *session = connect_to(&agent, play_busy);

    CHECK_INT(eval_within(session, "cancelled", 1000000, NULL), -ETIMEDOUT);
    CHECK(!done.words[0] && done.error == ECANCELED);
    CHECK_INT(eval_within(session, "ended", 1000000, NULL), 0);
    CHECK_INT(eval_within(session, "began", 1000000, NULL), -ETIMEDOUT);
    CHECK(strstr(done.words, "interrupted"));
    CHECK_STR(output.data, "half");
    CHECK_INT(eval_within(session, "silent", 1000000, NULL), -ETIMEDOUT);
    CHECK(strstr(done.words, "runs on"));
    atomic_store(&given_up, true);
    CHECK_INT(eval_within(session, "next", FAR, NULL), 0);
    CHECK(session_alive(session));
    session_unref(session);
    stop(&agent);
}

/* Notices */

static atomic_uint rings_said;

static void note_rings(void *arg, uint64_t key, uint16_t op, const struct proto_crashed *crashed)
{
    CHECK(arg == &rings_said);
    atomic_fetch_add(&rings_said, 1);
}

static void wait_rings(unsigned least)
{
    for (int i = 0; i < 30000 && atomic_load(&rings_said) < least; i++)
        usleep(1000);
    CHECK(atomic_load(&rings_said) >= least);
}

/* Ctrl-C */

/* Once what the agent said up to its next notice has come. */
static void *raise_later(void *arg)
{
    struct interrupt *interrupt = arg;

    wait_rings(1);
    atomic_store(&interrupt->raised, true);
    if (interrupt->fd >= 0)
        eventfd_write(interrupt->fd, 1);
    return NULL;
}

static void play_runs_on(struct agent *a)
{
    greet(a);
    for (int i = 0; i < 3; i++) {
        uint64_t id = hear_eval(a);
        say(a, PROTO_STARTED, id, NULL, 0);
        say(a, PROTO_OUTPUT, id, "so far", 6);
        say(a, PROTO_RINGS, 0, NULL, 0);
        expect(a, PROTO_CANCEL);
        if (a->text[0] == 'e')
            say_done(a, id, EINTR);
    }
    CHECK(!hear(a));
}

static int eval_interrupted(struct session *session, const char *text, int fd)
{
    struct interrupt interrupt = {.fd = fd};
    pthread_t thread;

    session_on_notice(session, note_rings, &rings_said, 7);
    atomic_store(&rings_said, 0); /* one is told at once */
    CHECK_INT(pthread_create(&thread, NULL, raise_later, &interrupt), 0);
    int r = eval_within(session, text, FAR, &interrupt);
    pthread_join(thread, NULL);
    return r;
}

static void test_interrupt(void)
{
    struct session *session = connect_to(&agent, play_runs_on);
    int fd = eventfd(0, 0);

    CHECK_INT(eval_interrupted(session, "ends", fd), -EINTR);
    CHECK_STR(output.data, "so far");
    CHECK(strstr(done.words, "interrupted"));
    CHECK_INT(eval_interrupted(session, "ends", -1), -EINTR);
    CHECK_INT(eval_interrupted(session, "never ends", fd), -EINTR);
    CHECK(strstr(done.words, "runs on"));
    CHECK_STR(output.data, "so far");
    CHECK(session_alive(session));
    close(fd);
    session_unref(session);
    stop(&agent);
}

/* A process that is stopped reads nothing */

static void play_stopped(struct agent *a) { greet(a); }

static void test_stalled(void)
{
    struct session *session = connect_to(&agent, play_stopped);
    struct proto_ready ready;

    pthread_join(agent.thread, NULL); /* nobody reads from here on */
    CHECK_INT(session_status(session, &ready), -ETIMEDOUT);
    CHECK_INT(eval_within(session, "x", 1000000, NULL), -ETIMEDOUT);
    CHECK(strstr(done.words, "stopped"));
    CHECK(session_alive(session));

    static char text[PROTO_TEXT_MAX + 1];
    memset(text, 'x', PROTO_TEXT_MAX);
    CHECK_INT(eval_within(session, text, FAR, NULL), -ETIMEDOUT);
    CHECK(strstr(done.words, "stopped"));
    CHECK(!session_alive(session)); /* half a request went out */
    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    session_unref(session);
    close(agent.fd);
}

/* The end */

static void play_dies(struct agent *a)
{
    greet(a);
    say(a, PROTO_STARTED, hear_eval(a), NULL, 0);
    shutdown(a->fd, SHUT_RDWR);
}

static void test_agent_ends(void)
{
    struct session *session = connect_to(&agent, play_dies);

    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    CHECK(done.words[0]);
    CHECK(!session_alive(session));
    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    session_unref(session);
    stop(&agent);
}

static pid_t child;

static void play_process_ends(struct agent *a)
{
    greet(a);
    say(a, PROTO_STARTED, hear_eval(a), NULL, 0);
    CHECK_INT(kill(child, SIGKILL), 0);
}

/* The agent's end stays open in another process; the target's pidfd tells. */
static void test_process_ends(void)
{
    struct session *session = NULL;

    child = fork();
    if (child == 0)
        for (;;)
            pause();
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(pidfd >= 0);
    CHECK_INT(session_open(start(&agent, play_process_ends), pidfd, NULL, &session), 0);
    close(pidfd);
    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    CHECK(!session_alive(session));
    session_unref(session);
    stop(&agent);
    CHECK_INT(waitpid(child, NULL, 0), child);
}

/* What breaks the rules */

static void play_garbage(struct agent *a)
{
    greet(a);
    (void)hear_eval(a);
    CHECK_INT(send(a->fd, "garbage", 7, 0), 7);
    CHECK(!hear(a)); /* the daemon has hung up */
}

static void play_flood(struct agent *a)
{
    greet(a);
    (void)hear_eval(a);
    for (uint64_t id = 1000; wire_send(a->fd, PROTO_OUTPUT, id, "x", 1, NULL, 0, FAR) == 0; id++) {}
}

static void play_echoes_after_the_end(struct agent *a)
{
    greet(a);
    uint64_t id = hear_eval(a);
    say_done(a, id, 0);
    say(a, PROTO_OUTPUT, id, "more", 4);
    CHECK(!hear(a));
}

static void test_bad_agents(void)
{
    struct session *session = connect_to(&agent, play_garbage);
    CHECK_INT(eval_within(session, "x", FAR, NULL), -EPROTO);
    CHECK(strstr(done.words, "protocol"));
    session_unref(session);
    stop(&agent);

    session = connect_to(&agent, play_flood);
    CHECK_INT(eval_within(session, "x", FAR, NULL), -EPROTO);
    session_unref(session);
    stop(&agent);

    session = connect_to(&agent, play_echoes_after_the_end);
    CHECK_INT(eval_within(session, "x", FAR, NULL), 0);
    pthread_join(agent.thread, NULL);
    CHECK(!session_alive(session));
    session_unref(session);
    close(agent.fd);
}

/* Recording */

static void play_records(struct agent *a)
{
    struct proto_record wanted;

    expect(a, PROTO_HELLO);
    struct proto_hello hello;
    memcpy(&hello, a->frame.body, sizeof hello);
    a->nonce = hello.nonce;
    say(a, PROTO_RINGS, 0, NULL, 0); /* a first row, just now */
    say_ready(a);
    while (hear(a)) {
        struct proto_done d = {.words = "said"};
        memcpy(&wanted, a->frame.body, sizeof wanted);
        CHECK_INT(a->frame.header.op, PROTO_RECORD);
        uint64_t id = a->frame.header.id;
        if (wanted.table == 3) { /* needs the GIL, in vain */
            expect(a, PROTO_CANCEL);
            d = (struct proto_done){.error = ECANCELED};
        } else if (wanted.table == 2) {
            d.error = EOPNOTSUPP;
        } else {
            CHECK(wanted.action == RECORD_ON && wanted.size == 12345 && wanted.rate > 0.2);
            say(a, PROTO_RINGS, 0, NULL, 0);
        }
        say(a, PROTO_DONE, id, &d, sizeof d);
    }
}

static void test_record(void)
{
    struct session *session = connect_to(&agent, play_records);
    struct proto_record record = {.table = 1, .action = RECORD_ON, .size = 12345, .rate = 0.25};

    atomic_store(&rings_said, 0);
    session_on_notice(session, note_rings, &rings_said, 7);
    wait_rings(1); /* at once */
    CHECK_INT(session_order(session, PROTO_RECORD, &record, sizeof record, FAR, NULL, &done), 0);
    CHECK_STR(done.words, "said");
    wait_rings(2);
    record.table = 2;
    CHECK_INT(session_order(session, PROTO_RECORD, &record, sizeof record, FAR, NULL, &done),
              -EOPNOTSUPP);
    record.table = 3;
    CHECK_INT(session_order(session, PROTO_RECORD, &record, sizeof record, 1000000, NULL, &done),
              -ETIMEDOUT);
    session_on_notice(session, NULL, NULL, 0);
    unsigned before = atomic_load(&rings_said);
    record.table = 1;
    CHECK_INT(session_order(session, PROTO_RECORD, &record, sizeof record, FAR, NULL, &done), 0);
    CHECK_INT(session_order(session, PROTO_RECORD, &record, sizeof record, FAR, NULL, &done), 0);
    CHECK_INT(atomic_load(&rings_said), before);
    CHECK(session_alive(session));
    session_unref(session);
    stop(&agent);
}

static void play_floods_rings(struct agent *a)
{
    greet(a);
    while (wire_send(a->fd, PROTO_RINGS, 0, NULL, 0, NULL, 0, FAR) == 0) {}
}

/* It says nothing else, and so not what is waited for. */
static void play_rings_first(struct agent *a)
{
    expect(a, PROTO_HELLO);
    while (wire_send(a->fd, PROTO_RINGS, 0, NULL, 0, NULL, 0, FAR) == 0) {}
}

static void test_rings_flood(void)
{
    struct session *session = connect_to(&agent, play_floods_rings);

    atomic_store(&rings_said, 0);
    session_on_notice(session, note_rings, &rings_said, 7);
    stop(&agent); /* the daemon has hung up */
    CHECK(!session_alive(session) && atomic_load(&rings_said) <= 70);
    session_unref(session);
    session = NULL;
    CHECK_INT(session_open(start(&agent, play_rings_first), -1, NULL, &session), -ETIMEDOUT);
    stop(&agent);
}

/* Detach */

/* Somebody else detaches it: what it then interrupts was not interrupted by its writer. */
static void play_detached(struct agent *a)
{
    greet(a);
    say_done(a, hear_eval(a), ECANCELED);
    say_done(a, hear_eval(a), EINTR);
}

static void test_detached_meanwhile(void)
{
    struct session *session = connect_to(&agent, play_detached);

    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    CHECK_INT(eval_within(session, "x", FAR, NULL), -ESRCH);
    session_unref(session);
    stop(&agent);
}

static void play_detach(struct agent *a)
{
    struct proto_done d = {.flags = DONE_UNLOADABLE};

    greet(a);
    expect(a, PROTO_DETACH);
    uint64_t id = a->frame.header.id;
    expect(a, PROTO_CANCEL);
    CHECK_INT(a->frame.header.id, id);
    struct proto_done late = {.error = ETIMEDOUT, .words = "still attached"};
    say(a, PROTO_DONE, id, &late, sizeof late);
    expect(a, PROTO_DETACH);
    say(a, PROTO_DONE, a->frame.header.id, &d, sizeof d);
}

static void test_detach(void)
{
    struct session *session = connect_to(&agent, play_detach);

    CHECK_INT(session_detach(session, 1000000, NULL, &done), -ETIMEDOUT);
    CHECK_STR(done.words, "still attached");
    CHECK(session_alive(session));
    CHECK_INT(session_detach(session, FAR, NULL, &done), 0);
    CHECK_INT(done.flags, DONE_UNLOADABLE);
    session_unref(session);
    stop(&agent);
}

/* The agent hears of the end although a child of the target still has a copy of our end. */
static void play_until_the_end(struct agent *a)
{
    greet(a);
    CHECK(!hear(a));
}

static void test_last_reference(void)
{
    int fd = start(&agent, play_until_the_end), copy = dup(fd);
    struct session *session;

    CHECK_INT(session_open(fd, -1, NULL, &session), 0);
    CHECK(session_ref(session) == session);
    session_unref(session);
    CHECK(session_alive(session));
    session_unref(session);
    stop(&agent);
    close(copy);
}

/* Files that are closed: said in their order, also where there was no room for a while. */
#define CLOSED 2000u

static atomic_bool reads, heard;

static void expect_release(struct agent *a, uint64_t number)
{
    struct proto_release said;

    expect(a, PROTO_RELEASE);
    memcpy(&said, a->frame.body, sizeof said);
    CHECK_INT(said.here, number);
}

static void play_closed(struct agent *a)
{
    greet(a);
    while (!atomic_load(&reads))
        usleep(1000);
    for (uint64_t number = 1; number <= CLOSED; number++)
        expect_release(a, number);
    expect_release(a, 77);
    expect_release(a, 77);
    atomic_store(&heard, true);
    CHECK(!hear(a));
}

static void test_closed(void)
{
    struct lifetime *lifetime = lifetime_new(77), *unused = lifetime_new(78);
    struct session *session = connect_to(&agent, play_closed);

    for (uint64_t number = 1; number <= CLOSED; number++)
        session_release(session, number); /* which doesn't wait for who doesn't read */
    atomic_store(&reads, true);
    CHECK_INT(lifetime_begin(lifetime, session), 0);
    CHECK_INT(lifetime_begin(lifetime, session), 0);
    lifetime_asked(lifetime, session); /* it is open */
    lifetime_unref(unused);
    lifetime_unref(lifetime_ref(lifetime));
    lifetime_end(lifetime);
    lifetime_end(lifetime);
    CHECK_INT(lifetime_begin(lifetime, session), -ECANCELED);
    lifetime_asked(lifetime, session); /* what came too late is taken back at once */
    lifetime_unref(lifetime);
    while (!atomic_load(&heard))
        usleep(1000);
    session_unref(session);
    stop(&agent);
}

int main(void)
{
    test_hello();
    test_answers();
    test_many_at_once();
    test_gil_deadline();
    test_interrupt();
    test_stalled();
    test_agent_ends();
    test_process_ends();
    test_bad_agents();
    test_record();
    test_rings_flood();
    test_detached_meanwhile();
    test_detach();
    test_last_reference();
    test_closed();
    text_deinit(&output);
    return 0;
}
