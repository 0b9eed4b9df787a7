#include "fs/owner/statements.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/owner/child.h"
#include "fs/owner/message.h"
#include "fs/owner/sql_message.h"
#include "fs/owner/sql_process.h"
#include "fs/proc/may_hang.h"
#include "fs/sql/heap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define START_NS 5000000000u
#define END_MS 1000 /* a process whose socket is closed ends within, on a busy machine too */

/* A process, and this end of its socket. */
struct worker {
    pid_t pid; /* 0: there is none */
    int fd;
    struct worker *next; /* of those that run */
    bool left;           /* it has told all */
};

struct statements {
    struct statement_runner runner;
    pthread_mutex_t lock;  /* guards what follows */
    struct worker starter; /* what makes the others ... */
    struct worker next;    /* ... and the one that it made, or makes right now, before it is needed;
                              its pid is 0 until that is heard; fd -1: there is none */
    struct worker *running; /* those that have a text, or had one and haven't ended yet */
    pthread_cond_t changed; /* one has told all, or this is to end */
    pthread_t ending;       /* ends them, since that takes as long as a statement does ... */
    bool ends, closing;     /* ... if it was started; it is to return */
};

#define BATCH (SQL_PIECE / 2) /* bytes of rows, and of one more */

/* A cursor of what statements may ask beside. */
struct reading {
    sqlite3_stmt *stmt; /* the file's; NULL: it isn't begun */
    unsigned ncolumns;
    bool ended;
    struct text batch; /* of rows on their way ... */
    size_t taken;      /* ... and how much of it is gone */
};

/* One text that is run. */
struct running {
    struct worker *worker;
    const struct provider *provider;
    const struct input *input;
    struct stop stop;
    uint64_t until;               /* no message is waited for any longer */
    bool begun;                   /* it has work */
    struct heap *claimed, *given; /* what the process takes, and the rows on their way to it */
    size_t share;                 /* bytes that were claimed for it before it asks */
    struct wanted *wanted;        /* these rows; n of them */
    size_t n;
    struct rows_stream stream;
    void *file; /* what is asked beside; NULL: it isn't open */
    struct reading readings[ATTACHED_CURSORS];
    char message[SQL_PIECE + 1];
    size_t at, size; /* what of that is still to be taken, while a text comes */
};

/* ---- processes ---- */

/* Ends it: it has no files that could hold that up. */
static void end(const struct worker *worker)
{
    kill(worker->pid, SIGKILL);
    close(worker->fd);
    while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static void end_starter(struct worker *starter)
{
    if (starter->pid)
        end(starter);
    starter->pid = 0;
}

static bool is_child(pid_t pid)
{
    siginfo_t info;

    return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Whether a child has ended, and isn't waited for yet. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid;
}

/* Waits until the starter says that it is there, or that another is: its pid. -errno. */
static int hear(const struct worker *starter, pid_t *pid)
{
    struct sql_started started;

    if (child_await(starter->fd, starter->pid, monotonic_ns() + START_NS) < 0 ||
        recv(starter->fd, &started, sizeof started, 0) != sizeof started)
        return -EIO;
    *pid = started.pid;
    return started.error;
}

/* Has what makes the others run. With the lock. */
static int start_starter(struct worker *starter)
{
    int ends[2];
    pid_t none;

    if (starter->pid)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    int r = child_start(SQL_PROCESS_NAME, ends[1], -1, &starter->pid);
    if (r < 0) {
        close(ends[0]);
        starter->pid = 0;
        return r;
    }
    starter->fd = ends[0];
    r = hear(starter, &none);
    if (r < 0)
        end_starter(starter);
    return r;
}

/* Has it make the next one, and doesn't wait for that. With the lock. -EIO: it has ended. */
static int order(struct statements *statements)
{
    struct worker *starter = &statements->starter;
    int ends[2];

    if (statements->next.fd >= 0)
        return 0;
    int r = start_starter(starter);
    if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        r = -errno;
    if (r < 0)
        return r;
    r = owner_send(starter->fd, "", 1, ends[1]) < 0 ? -EIO : 0;
    close(ends[1]);
    if (r < 0)
        close(ends[0]);
    else
        statements->next = (struct worker){.fd = ends[0]};
    return r;
}

/* Hears which one that is. With the lock. */
static int know_next(struct statements *statements)
{
    struct worker *next = &statements->next;

    if (next->fd < 0 || next->pid)
        return 0;
    int r = hear(&statements->starter, &next->pid);
    if (r == 0 && !is_child(next->pid))
        r = -EIO;
    if (r < 0)
        next->pid = 0;
    return r;
}

static void end_next(struct statements *statements)
{
    struct worker *next = &statements->next;

    if (next->fd >= 0 && next->pid)
        end(next);
    else if (next->fd >= 0)
        close(next->fd); /* which ends it, if it was made */
    *next = (struct worker){.fd = -1};
}

static bool is_known(const struct statements *statements, pid_t pid)
{
    bool found = statements->starter.pid == pid || statements->next.pid == pid;

    for (const struct worker *w = statements->running; w && !found; w = w->next)
        found = w->pid == pid;
    return found;
}

/* Waits for one that was made by a starter which was ended before it could say so: it ends with its
 * socket, which is closed, and belongs to the starter's group. */
static void end_unknown(const struct statements *statements, pid_t group)
{
    for (int i = 0; i < END_MS; i++) {
        siginfo_t info = {0};
        if (waitid(P_PGID, (id_t)group, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
            return; /* there is nobody at all */
        if (info.si_pid && !is_known(statements, info.si_pid)) {
            waitpid(info.si_pid, NULL, 0);
            return;
        }
        nap_ns(1000000);
    }
}

/* Ends what makes the others, and what it has made, or makes, for the next text. With the lock. */
static void start_over(struct statements *statements)
{
    pid_t group = statements->starter.pid;
    bool unknown = statements->next.fd >= 0 && !statements->next.pid;

    end_next(statements);
    end_starter(&statements->starter);
    if (unknown && group)
        end_unknown(statements, group);
}

/* Has one that waits for a text. With the lock. -EIO: somebody has ended it, or what makes them. */
static int start(struct statements *statements, struct worker *out)
{
    int r = order(statements);
    if (r == 0)
        r = know_next(statements);
    if (r == 0 && has_ended(statements->next.pid))
        r = -EIO;
    if (r == -EIO)
        start_over(statements);
    else if (r < 0)
        end_next(statements);
    if (r < 0)
        return r;
    *out = statements->next;
    statements->next = (struct worker){.fd = -1};
    return 0;
}

static void end_running(struct statements *statements, struct worker *worker)
{
    struct worker **at = &statements->running;

    end(worker);
    {
        _guard_mutex_(&statements->lock);
        while (*at != worker)
            at = &(*at)->next;
        *at = worker->next;
    }
    free(worker);
}

/* One that has told all. NULL: there is none. With the lock. */
static struct worker *find_left(const struct statements *statements)
{
    struct worker *worker = statements->running;

    while (worker && !worker->left)
        worker = worker->next;
    return worker;
}

static struct worker *next_left(struct statements *statements)
{
    struct worker *worker;

    _guard_mutex_(&statements->lock);
    while (!(worker = find_left(statements)) && !statements->closing)
        pthread_cond_wait(&statements->changed, &statements->lock);
    return worker;
}

static void *ending_main(void *arg)
{
    struct statements *statements = arg;
    struct worker *worker;

    while ((worker = next_left(statements)))
        end_running(statements, worker);
    return NULL;
}

/* Takes a process for a text, and has the next one made meanwhile. */
static int take(struct statements *statements, struct worker **out)
{
    struct worker *worker = calloc(1, sizeof *worker);

    if (!worker)
        return -ENOMEM;
    _guard_mutex_(&statements->lock);
    int r = start(statements, worker);
    if (r == -EIO)
        r = start(statements, worker);
    if (r < 0) {
        free(worker);
        return r;
    }
    if (!statements->ends)
        statements->ends =
            worker_start(ending_main, statements, "probefs-ending", &statements->ending) == 0;
    worker->next = statements->running;
    statements->running = worker;
    (void)order(statements); /* else whoever takes it tries again */
    *out = worker;
    return 0;
}

/* It has told all, or is given up. */
static void leave(struct statements *statements, struct worker *worker)
{
    bool ends;
    {
        _guard_mutex_(&statements->lock);
        ends = worker->left = statements->ends;
        pthread_cond_signal(&statements->changed);
    }
    if (!ends)
        end_running(statements, worker);
}

bool statements_has(struct statements *statements, pid_t pid)
{
    _guard_mutex_(&statements->lock);
    (void)know_next(statements); /* else it is of nobody's yet */
    return is_known(statements, pid);
}

/* ---- messages ---- */

/* Why nobody wants to hear more; 0: somebody does. */
static int is_over(const struct running *running)
{
    if (interrupted(running->stop.interrupt))
        return -EINTR;
    return monotonic_ns() > running->until ? -ETIMEDOUT : 0;
}

/* Why nobody wants to wait, while nothing comes: is_over(), or -ETIME: the process is stopped. */
static int look(const struct running *running, unsigned *stopped)
{
    int r = is_over(running);

    if (r < 0)
        return r;
    return child_stays_stopped(running->worker->pid, stopped) ? -ETIME : 0;
}

/* Receives one message. Bytes; -EIO: nobody is there any more; or what look() says. */
static ssize_t receive(struct running *running)
{
    const struct interrupt *interrupt = running->stop.interrupt;
    struct pollfd fds[] = {
        {.fd = running->worker->fd, .events = POLLIN},
        {.fd = interrupt ? interrupt->fd : -1, .events = POLLIN},
    };
    unsigned stopped = 0;
    int r = is_over(running); /* one that never stops talking ends, too */

    while (r == 0 && (poll(fds, ARRAY_SIZE(fds), MAY_HANG_LOOK_MS) <= 0 || !fds[0].revents))
        r = look(running, &stopped);
    if (r < 0)
        return r;
    ssize_t n = recv(running->worker->fd, running->message, sizeof running->message, 0);
    return n > 0 ? n <= (ssize_t)SQL_PIECE ? n : -EPROTO : -EIO;
}

/* Whoever asks without listening has no room left. */
static int answer(const struct running *running, const void *message, size_t size)
{
    return send(running->worker->fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -EIO : 0;
}

/* ---- what it asks ---- */

/* Gives it its work. */
static int give(struct running *running)
{
    const struct input *input = running->input;
    uint64_t now = monotonic_ns();
    struct sql_job job = {
        .left_ns = running->stop.deadline_ns > now ? running->stop.deadline_ns - now : 1,
        .share = running->share,
        .size = input->size,
        .before = input->before,
        .lines = input->lines,
        .last = input->last,
        .many = running->provider->many,
    };

    if (running->provider->attached)
        snprintf(job.attached, sizeof job.attached, "%s", running->provider->attached->name);
    size_t n = input->size < SQL_PIECE - sizeof job ? input->size : SQL_PIECE - sizeof job;
    memcpy(running->message, &job, sizeof job);
    if (n)
        memcpy(running->message + sizeof job, input->text, n);
    return answer(running, running->message, sizeof job + n);
}

static int hear_begun(struct running *running)
{
    if (running->begun)
        return -EPROTO;
    running->begun = true;
    return 0;
}

static int answer_text(struct running *running, const struct sql_request *request)
{
    const struct input *input = running->input;
    size_t left = request->number < input->size ? input->size - request->number : 0;

    if (!left)
        return -EPROTO;
    return answer(running, input->text + request->number, left < SQL_PIECE ? left : SQL_PIECE);
}

static void forget_rows(struct running *running)
{
    struct heap *before = heap_enter(running->given);

    for (size_t i = 0; i < running->n; i++)
        rows_deinit(&running->wanted[i].rows);
    heap_enter(before);
    free(running->wanted);
    running->wanted = NULL;
    running->n = 0;
    running->stream = (struct rows_stream){0};
}

static int provide(struct running *running, struct text *why)
{
    const struct provider *provider = running->provider;
    struct wanted **wanted = calloc(running->n, sizeof(struct wanted *));

    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; i < running->n; i++)
        wanted[i] = &running->wanted[i];
    struct heap *before = heap_enter(running->given);
    heap_watch(&running->stop);
    int r = provider->fill(provider->arg, wanted, running->n, &running->stop, why);
    heap_watch(NULL);
    heap_enter(before);
    for (size_t i = 0; r == 0 && i < running->n; i++)
        r = wanted[i]->rows.error;
    free(wanted);
    return r;
}

static int answer_rows(struct running *running, const struct sql_request *request, size_t size)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct sql_filled filled = {0};

    forget_rows(running);
    size_t n = request->number;
    int r = sql_wanted_read(running->message + sizeof *request, size - sizeof *request,
                            &running->wanted, &n);
    if (r < 0)
        return r;
    running->n = n;
    filled.error = provide(running, &why);
    filled.exceeded = atomic_load(&running->given->exceeded);
    if (filled.error == 0)
        running->stream = (struct rows_stream){.wanted = running->wanted, .n = n};
    filled.why = why.size < SQL_WHY_SHOWN ? why.size : SQL_WHY_SHOWN;
    memcpy(running->message, &filled, sizeof filled);
    if (filled.why)
        memcpy(running->message + sizeof filled, why.data, filled.why);
    size = sizeof filled + filled.why;
    size += rows_stream_take(&running->stream, running->message + size, SQL_PIECE - size);
    return answer(running, running->message, size);
}

static int answer_next(struct running *running)
{
    size_t n = rows_stream_take(&running->stream, running->message, SQL_PIECE);

    return n ? answer(running, running->message, n) : -EPROTO;
}

static int answer_share(struct running *running, const struct sql_request *request)
{
    struct heap *before = heap_enter(running->claimed);
    const char yes = request->number <= HEAP_MAX && heap_take(request->number);

    heap_enter(before);
    return answer(running, &yes, 1);
}

/* ---- what it asks beside ---- */

/* An error or 0, and more. */
static int answer_with_words(struct running *running, int error, const struct text *words)
{
    const int32_t head = error;
    size_t n = words->size < SQL_PIECE - sizeof head ? words->size : SQL_PIECE - sizeof head;

    memcpy(running->message, &head, sizeof head);
    if (n)
        memcpy(running->message + sizeof head, words->data, n);
    return answer(running, running->message, sizeof head + n);
}

static int answer_attach(struct running *running)
{
    _cleanup_(text_deinit) struct text tables = TEXT_INIT, why = TEXT_INIT;
    const struct attached_schema *schema = running->provider->attached;

    if (!schema || running->file)
        return -EPROTO;
    int r = schema->ops->open(schema->arg, &running->stop, &tables, &why, &running->file);
    return answer_with_words(running, r, r < 0 ? &why : &tables);
}

static int begin_reading(struct running *running, struct reading *reading, unsigned cursor,
                         const char *message, size_t size, struct text *why)
{
    struct attached_plan plan;

    if (size < sizeof plan)
        return -EPROTO;
    memcpy(&plan, message, sizeof plan);
    if (!attached_file_has(running->file, &plan))
        return -EPROTO;
    reading->stmt = NULL;
    int r = attached_file_prepare(running->file, cursor, &plan, &reading->stmt, why);
    if (r < 0)
        return answer_with_words(running, r, why);
    r = sql_values_bind(message + sizeof plan, size - sizeof plan, reading->stmt, plan.nbounds);
    reading->ncolumns = attached_file_columns(running->file, plan.table);
    reading->ended = false;
    reading->taken = 0;
    text_clear(&reading->batch);
    return r == 0 ? answer_with_words(running, 0, why) : r;
}

static void add_column(sqlite3_stmt *stmt, int i, struct text *out)
{
    int type = sqlite3_column_type(stmt, i);
    uint64_t word = 0;
    const char *bytes = NULL;

    if (type == SQLITE_INTEGER) {
        word = (uint64_t)sqlite3_column_int64(stmt, i);
    } else if (type == SQLITE_FLOAT) {
        word = sql_value_word(sqlite3_column_double(stmt, i));
    } else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
        bytes = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(stmt, i)
                                    : sqlite3_column_blob(stmt, i);
        word = bytes ? (uint64_t)sqlite3_column_bytes(stmt, i) : 0;
    }
    sql_value_add(out, type, word, bytes);
}

static void add_step(struct text *out, uint64_t step)
{
    text_add(out, (const char *)&step, sizeof step);
}

/* The next rows, or the end of them. */
static void fill_batch(struct running *running, unsigned cursor, struct reading *reading)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct text *batch = &reading->batch;

    text_clear(batch);
    reading->taken = 0;
    while (batch->size < BATCH && !reading->ended) {
        int r = attached_file_ops.next(running->file, cursor, &why);
        reading->ended = r <= 0;
        add_step(batch, r > 0 ? SQL_STEP_ROW : r == 0 ? SQL_STEP_END : SQL_STEP_FAILED);
        if (r < 0)
            sql_value_add(batch, SQLITE_TEXT, why.size, why.data);
        for (unsigned i = 0; r > 0 && i < reading->ncolumns; i++)
            add_column(reading->stmt, (int)i, batch);
    }
}

static int answer_step(struct running *running, unsigned cursor, struct reading *reading)
{
    struct text *batch = &reading->batch;

    if (!reading->stmt || (reading->ended && reading->taken == batch->size))
        return -EPROTO;
    if (reading->taken == batch->size)
        fill_batch(running, cursor, reading);
    if (batch->error || batch->cut)
        return batch->cut ? -EFBIG : -ENOMEM;
    size_t left = batch->size - reading->taken, n = left < SQL_PIECE ? left : SQL_PIECE;
    const char *from = batch->data + reading->taken;
    reading->taken += n;
    return answer(running, from, n);
}

static int answer_end(struct running *running, unsigned cursor, struct reading *reading)
{
    const char byte = 0;

    attached_file_ops.end(running->file, cursor);
    reading->stmt = NULL;
    return answer(running, &byte, 1);
}

/* What is asked of a cursor. What SQLite takes for it is the statement's. */
static int answer_cursor(struct running *running, const struct sql_request *request, size_t size)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    const char *more = running->message + sizeof *request;

    if (!running->file || request->number >= ATTACHED_CURSORS)
        return -EPROTO;
    unsigned cursor = (unsigned)request->number;
    struct reading *reading = &running->readings[cursor];
    switch (request->op) {
    case STATEMENT_BEGIN:
        return begin_reading(running, reading, cursor, more, size - sizeof *request, &why);
    case STATEMENT_STEP: return answer_step(running, cursor, reading);
    default: return answer_end(running, cursor, reading);
    }
}

static int answer_beside(struct running *running, const struct sql_request *request, size_t size)
{
    struct heap *before = heap_enter(running->claimed);

    heap_watch(&running->stop);
    int r = request->op == STATEMENT_ATTACH ? answer_attach(running)
                                            : answer_cursor(running, request, size);
    heap_watch(NULL);
    heap_enter(before);
    return r;
}

static void close_beside(struct running *running)
{
    struct heap *before = heap_enter(running->claimed);

    if (running->file)
        attached_file_ops.close(running->file);
    heap_enter(before);
    for (size_t i = 0; i < ATTACHED_CURSORS; i++)
        text_deinit(&running->readings[i].batch);
}

/* ---- what it tells ---- */

static int receive_text(struct running *running, size_t size, struct text *out)
{
    while (out->size < size) {
        if (running->at == running->size) {
            ssize_t n = receive(running);
            if (n < 0)
                return (int)n;
            running->at = 0;
            running->size = (size_t)n;
        }
        size_t left = running->size - running->at;
        size_t n = left < size - out->size ? left : size - out->size;
        text_add(out, running->message + running->at, n);
        running->at += n;
        if (out->error)
            return -ENOMEM;
    }
    return 0;
}

/* What came of the text. 1, and *error, which is the text's. */
static int receive_done(struct running *running, size_t size, struct text *said, struct text *why,
                        struct outcome *outcome, int *error)
{
    _cleanup_(text_deinit) struct text words = TEXT_INIT, text = TEXT_INIT;
    struct sql_done done;

    if (size < sizeof(struct sql_request) + sizeof done)
        return -EPROTO;
    memcpy(&done, running->message + sizeof(struct sql_request), sizeof done);
    if (!sql_done_is_sane(&done, running->input->size))
        return -EPROTO;
    running->until = monotonic_ns() + STATEMENTS_TELL_NS;
    running->at = sizeof(struct sql_request) + sizeof done;
    running->size = size;
    int r = receive_text(running, done.why, &words);
    if (r == 0)
        r = receive_text(running, done.said, &text);
    if (r == 0 && running->at < running->size)
        r = -EPROTO;
    if (r < 0)
        return r;
    owner_drop_controls(&words, -1);
    owner_drop_controls(&text, '\r'); /* of CSV, whose control characters are escaped */
    text_add(why, words.data ? words.data : "", words.size);
    text_add(said, text.data ? text.data : "", text.size);
    outcome->consumed = done.consumed;
    outcome->passing = done.passing;
    outcome->retake = done.retake;
    *error = said->error ? said->error : done.error;
    return 1;
}

/* Answers what the process asks until it is done. 1, and *error, which is the text's; or -errno. */
static int converse(struct running *running, struct text *said, struct text *why,
                    struct outcome *outcome, int *error)
{
    int r = give(running);

    while (r == 0) {
        struct sql_request request;
        ssize_t n = receive(running);
        if (n < 0)
            return (int)n;
        if (n < (ssize_t)sizeof request)
            return -EPROTO;
        memcpy(&request, running->message, sizeof request);
        switch (request.op) {
        case STATEMENT_BEGUN: r = hear_begun(running); break;
        case STATEMENT_TEXT: r = answer_text(running, &request); break;
        case STATEMENT_ROWS: r = answer_rows(running, &request, (size_t)n); break;
        case STATEMENT_NEXT: r = answer_next(running); break;
        case STATEMENT_SHARE: r = answer_share(running, &request); break;
        case STATEMENT_ATTACH:
        case STATEMENT_BEGIN:
        case STATEMENT_STEP:
        case STATEMENT_END: r = answer_beside(running, &request, (size_t)n); break;
        case STATEMENT_DONE: r = receive_done(running, (size_t)n, said, why, outcome, error); break;
        default: r = -EPROTO;
        }
    }
    return r;
}

static void explain(int error, struct text *why)
{
    if (error == -EINTR)
        text_puts(why, "interrupted");
    else if (error == -ETIMEDOUT)
        text_puts(why, "over the limit: a statement may take 10 s");
    else if (error == -ETIME)
        text_puts(why, "what ran the statement was stopped, and ended: run it again");
    else if (error == -ENOMEM)
        text_puts(why, "out of memory");
    else
        text_puts(why, "what ran the statement has crashed: nothing but this reply is lost");
}

/* ---- the whole ---- */

static int run(struct statements *statements, struct running *running, struct text *said,
               struct text *why, struct outcome *outcome)
{
    int error = 0;

    int r = -EIO;
    for (int tries = 0; tries < 2 && r == -EIO && !running->begun; tries++) {
        r = take(statements, &running->worker);
        if (r < 0) {
            text_puts(why, "no process can be started that runs statements: try again");
            return r;
        }
        r = converse(running, said, why, outcome, &error); /* it may have been ended by somebody */
        leave(statements, running->worker);
    }
    forget_rows(running);
    close_beside(running);
    if (r > 0)
        return error;
    explain(r, why);
    return r == -EPROTO ? -EIO : r == -ETIME ? -ETIMEDOUT : r;
}

static int feed(void *arg, const struct provider *provider, const struct interrupt *interrupt,
                const struct input *input, struct text *said, struct text *why,
                struct outcome *outcome)
{
    struct running *running = calloc(1, sizeof *running);

    int r = running ? heap_start() : -ENOMEM;
    if (r == 0)
        r = heap_new(HEAP_MAX, provider->uid, &running->claimed);
    if (r == 0)
        r = heap_new(HEAP_MAX, provider->uid, &running->given);
    if (r == 0) {
        uint64_t wait = provider->deadline_ns ? provider->deadline_ns : ENGINE_DEADLINE_NS;
        running->provider = provider;
        running->input = input;
        running->stop = (struct stop){interrupt, monotonic_ns() + wait};
        running->until = running->stop.deadline_ns + STATEMENTS_AFTER_NS;
        struct heap *before = heap_enter(running->claimed);
        running->share = heap_take(HEAP_PIECE) ? HEAP_PIECE : 0;
        heap_enter(before);
        r = run(arg, running, said, why, outcome);
    } else {
        text_puts(why, "out of memory");
    }
    if (running) {
        heap_unref(running->claimed);
        heap_unref(running->given);
        free(running);
    }
    return r;
}

int statements_new(struct statements **out)
{
    struct statements *statements = calloc(1, sizeof *statements);

    if (!statements)
        return -ENOMEM;
    statements->runner = (struct statement_runner){.arg = statements, .feed = feed};
    statements->next.fd = -1;
    pthread_mutex_init(&statements->lock, NULL);
    pthread_cond_init(&statements->changed, NULL);
    *out = statements;
    return 0;
}

void statements_free(struct statements *statements)
{
    if (!statements)
        return;
    if (statements->ends) {
        pthread_mutex_lock(&statements->lock);
        statements->closing = true;
        pthread_cond_signal(&statements->changed);
        pthread_mutex_unlock(&statements->lock);
        pthread_join(statements->ending, NULL);
    }
    end_next(statements);
    end_starter(&statements->starter);
    pthread_cond_destroy(&statements->changed);
    pthread_mutex_destroy(&statements->lock);
    free(statements);
}

const struct statement_runner *statements_runner(struct statements *statements)
{
    return &statements->runner;
}
