#include "fs/owner/sql_process.h"

#include "agent/base/cleanup.h"
#include "fs/owner/child.h"
#include "fs/owner/class.h"
#include "fs/owner/confine.h"
#include "fs/owner/message.h"
#include "fs/owner/sql_message.h"
#include "fs/sql/heap.h"
#include "fs/tree/query.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* What has come of a stream, and isn't used yet. */
struct stream {
    enum statement_op op; /* what asks for more of it ... */
    uint64_t number;      /* ... with that */
    size_t at, size;
    char bytes[SQL_PIECE];
};

/* ---- the conversation ---- */

static int tell(const void *message, size_t size)
{
    ssize_t n;

    do
        n = send(CHILD_CONTROL, message, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* Receives one message. Its bytes, which may be 0; -errno. */
static ssize_t hear(void *out, size_t cap)
{
    ssize_t n;

    do
        n = recv(CHILD_CONTROL, out, cap, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t ask(enum statement_op op, uint64_t number, void *out, size_t cap)
{
    const struct sql_request request = {.op = op, .number = number};

    int r = tell(&request, sizeof request);
    return r < 0 ? r : hear(out, cap);
}

/* heap_give_share */
static bool give_share(void *arg, size_t bytes)
{
    char yes = 0;

    return ask(STATEMENT_SHARE, bytes, &yes, 1) == 1 && yes == 1;
}

/* ---- streams ---- */

/* rows_read */
static int read_stream(void *arg, void *out, size_t size)
{
    struct stream *stream = arg;
    char *to = out;

    while (size) {
        if (stream->at == stream->size) {
            ssize_t n = ask(stream->op, stream->number, stream->bytes, sizeof stream->bytes);
            if (n <= 0)
                return n < 0 ? (int)n : -EIO;
            stream->at = 0;
            stream->size = (size_t)n;
        }
        size_t n = stream->size - stream->at < size ? stream->size - stream->at : size;
        memcpy(to, stream->bytes + stream->at, n);
        stream->at += n;
        to += n;
        size -= n;
    }
    return 0;
}

/* ---- rows ---- */

/* Asks for the rows, and hears the first of them. 0, or why there are none. */
static int ask_for_rows(struct wanted *const *wanted, size_t n, struct stream *stream,
                        struct text *why)
{
    const struct sql_request head = {.op = STATEMENT_ROWS, .number = n};
    struct sql_filled filled;
    char *message = stream->bytes;

    memcpy(message, &head, sizeof head);
    size_t size = sql_wanted_write(wanted, n, message + sizeof head, SQL_PIECE - sizeof head);
    int r = tell(message, sizeof head + size);
    ssize_t got = r < 0 ? r : hear(message, SQL_PIECE);
    if (got < (ssize_t)sizeof filled)
        return got < 0 ? (int)got : -EIO;
    memcpy(&filled, message, sizeof filled);
    text_add(why, message + sizeof filled, filled.why);
    stream->at = sizeof filled + filled.why;
    stream->size = (size_t)got;
    if (filled.exceeded)
        atomic_store(&heap_current()->exceeded, true);
    return filled.error;
}

/* The provider. */
static int fill(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                struct text *why)
{
    _cleanup_free_ struct stream *stream = malloc(sizeof *stream);

    if (!stream)
        return -ENOMEM;
    stream->op = STATEMENT_NEXT;
    stream->number = 0;
    int r = ask_for_rows(wanted, n, stream, why);
    return r == 0 ? rows_stream_read(read_stream, stream, SIZE_MAX, wanted, n) : r;
}

/* ---- what is asked beside ---- */

/* A cursor of the schema that is attached. */
struct reading {
    struct stream stream;
    unsigned ncolumns;
    struct sql_value values[ATTACHED_COLUMNS];
    size_t at[ATTACHED_COLUMNS]; /* where their bytes are */
    struct text bytes;
};

/* The schema. */
struct attachment {
    struct text names;
    struct attached_tables tables;
    struct reading *readings[ATTACHED_CURSORS];
    char message[SQL_PIECE];
};

/* Asks what is answered by an error, and words, which are the message's from *words on. */
static int ask_with_words(struct attachment *attachment, size_t size, const char **words,
                          size_t *nwords)
{
    int32_t error;

    int r = tell(attachment->message, size);
    ssize_t n = r < 0 ? r : hear(attachment->message, sizeof attachment->message);
    if (n < (ssize_t)sizeof error)
        return n < 0 ? (int)n : -EIO;
    memcpy(&error, attachment->message, sizeof error);
    *words = attachment->message + sizeof error;
    *nwords = (size_t)n - sizeof error;
    return error;
}

static void close_attachment(void *of)
{
    struct attachment *attachment = of;

    for (size_t i = 0; i < ATTACHED_CURSORS; i++)
        if (attachment->readings[i]) {
            text_deinit(&attachment->readings[i]->bytes);
            free(attachment->readings[i]);
        }
    attached_tables_deinit(&attachment->tables);
    text_deinit(&attachment->names);
    free(attachment);
}

static int open_attachment(void *arg, const struct stop *stop, struct text *tables,
                           struct text *why, void **out)
{
    const struct sql_request request = {.op = STATEMENT_ATTACH};
    struct attachment *attachment = calloc(1, sizeof *attachment);
    const char *words;
    size_t n = 0;

    if (!attachment)
        return -ENOMEM;
    memcpy(attachment->message, &request, sizeof request);
    int r = ask_with_words(attachment, sizeof request, &words, &n);
    if (n)
        text_add(r < 0 ? why : &attachment->names, words, n);
    if (r == 0)
        r = attached_tables_read(&attachment->names, &attachment->tables);
    if (r < 0) {
        close_attachment(attachment);
        return r;
    }
    text_add(tables, attachment->names.data ? attachment->names.data : "", attachment->names.size);
    *out = attachment;
    return 0;
}

static void add_argument(struct text *out, sqlite3_value *value)
{
    int type = sqlite3_value_type(value);
    uint64_t word = 0;
    const char *bytes = NULL;

    if (type == SQLITE_INTEGER) {
        word = (uint64_t)sqlite3_value_int64(value);
    } else if (type == SQLITE_FLOAT) {
        word = sql_value_word(sqlite3_value_double(value));
    } else {
        bytes = type == SQLITE_TEXT ? (const char *)sqlite3_value_text(value)
                                    : sqlite3_value_blob(value);
        word = (uint64_t)sqlite3_value_bytes(value);
    }
    sql_value_add(out, type, word, bytes);
}

static int begin_reading(void *of, unsigned cursor, const struct attached_plan *plan, int argc,
                         sqlite3_value **argv, struct text *why)
{
    struct attachment *attachment = of;
    const struct sql_request request = {.op = STATEMENT_BEGIN, .number = cursor};
    struct reading **reading = &attachment->readings[cursor];
    _cleanup_(text_deinit) struct text message = TEXT_INIT;
    const char *words;
    size_t n = 0;

    if (!*reading && !(*reading = calloc(1, sizeof **reading)))
        return -ENOMEM;
    text_add(&message, (const char *)&request, sizeof request);
    text_add(&message, (const char *)plan, sizeof *plan);
    for (int i = 0; i < argc; i++)
        add_argument(&message, argv[i]);
    if (message.error || message.size > SQL_PIECE) {
        text_puts(why, "a value that a column is compared with is too long");
        return message.error ? message.error : -EFBIG;
    }
    (*reading)->stream.op = STATEMENT_STEP;
    (*reading)->stream.number = cursor;
    (*reading)->stream.at = (*reading)->stream.size = 0;
    (*reading)->ncolumns = attachment->tables.items[plan->table].ncolumns;
    memcpy(attachment->message, message.data, message.size);
    int r = ask_with_words(attachment, message.size, &words, &n);
    if (n)
        text_add(why, words, n);
    return r;
}

/* Reads a value, whose bytes are added. */
static int read_value(struct stream *stream, struct sql_value *value, struct text *bytes)
{
    char part[4096];

    int r = read_stream(stream, value, sizeof *value);
    for (size_t left = r == 0 ? sql_value_bytes(value) : 0, n; r == 0 && left; left -= n) {
        n = left < sizeof part ? left : sizeof part;
        r = read_stream(stream, part, n);
        if (r == 0)
            text_add(bytes, part, n);
    }
    return r == 0 ? bytes->error : r;
}

static int next_row(void *of, unsigned cursor, struct text *why)
{
    struct reading *reading = ((struct attachment *)of)->readings[cursor];
    struct sql_value value;
    uint64_t step;

    int r = read_stream(&reading->stream, &step, sizeof step);
    if (r < 0 || step == SQL_STEP_END)
        return r;
    if (step == SQL_STEP_FAILED) {
        r = read_value(&reading->stream, &value, why);
        return r < 0 ? r : -EIO;
    }
    text_clear(&reading->bytes);
    for (unsigned i = 0; r == 0 && i < reading->ncolumns; i++) {
        reading->at[i] = reading->bytes.size;
        r = read_value(&reading->stream, &reading->values[i], &reading->bytes);
    }
    return r < 0 ? r : 1;
}

static void give_column(void *of, unsigned cursor, int i, sqlite3_context *result)
{
    const struct reading *reading = ((struct attachment *)of)->readings[cursor];
    const struct sql_value *value = &reading->values[i];
    const char *bytes = reading->bytes.data ? reading->bytes.data + reading->at[i] : "";

    switch (value->type) {
    case SQLITE_INTEGER: sqlite3_result_int64(result, (sqlite3_int64)value->word); break;
    case SQLITE_FLOAT: sqlite3_result_double(result, sql_value_real(value)); break;
    case SQLITE_TEXT:
        sqlite3_result_text64(result, bytes, value->word, SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
    case SQLITE_BLOB: sqlite3_result_blob64(result, bytes, value->word, SQLITE_TRANSIENT); break;
    default: sqlite3_result_null(result);
    }
}

static void end_reading(void *of, unsigned cursor)
{
    char byte;

    if (((struct attachment *)of)->readings[cursor])
        (void)ask(STATEMENT_END, cursor, &byte, 1);
}

static const struct attached_ops attachment_ops = {
    .open = open_attachment,
    .begin = begin_reading,
    .next = next_row,
    .column = give_column,
    .end = end_reading,
    .close = close_attachment,
};

/* ---- the text ---- */

/* Gets what is missing of it. */
static int get_text(char *text, uint64_t at, uint64_t size)
{
    while (at < size) {
        ssize_t n = ask(STATEMENT_TEXT, at, text + at, size - at);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        at += (uint64_t)n;
    }
    return 0;
}

/* Tells what is left of it. */
static int tell_text(const struct text *text, size_t at, size_t size)
{
    int r = 0;

    for (size_t n; r == 0 && at < size; at += n) {
        n = size - at < SQL_PIECE ? size - at : SQL_PIECE;
        r = tell(text->data + at, n);
    }
    return r;
}

static int tell_done(int error, const struct outcome *outcome, const struct text *said,
                     const struct text *why)
{
    const struct {
        struct sql_request request;
        struct sql_done done;
    } head = {
        .request.op = STATEMENT_DONE,
        .done = {.error = error,
                 .retake = outcome->retake,
                 .consumed = outcome->consumed,
                 .passing = outcome->passing,
                 .why = why->size < SQL_WHY_MAX ? why->size : SQL_WHY_MAX,
                 .said = said->size},
    };
    size_t room = SQL_PIECE - sizeof head;
    size_t of_why = head.done.why < room ? head.done.why : room;
    size_t of_said = said->size < room - of_why ? said->size : room - of_why;
    _cleanup_(text_deinit) struct text message = TEXT_INIT;

    text_add(&message, (const char *)&head, sizeof head);
    if (of_why)
        text_add(&message, why->data, of_why);
    if (of_said)
        text_add(&message, said->data, of_said);
    int r = message.error;
    if (r == 0)
        r = tell(message.data, message.size);
    if (r == 0)
        r = tell_text(why, of_why, head.done.why);
    return r == 0 ? tell_text(said, of_said, said->size) : r;
}

static int run(const struct sql_job *job, struct engine *engine, const char *text)
{
    const struct attached_schema attached = {job->attached, &attachment_ops, NULL};
    const struct provider provider = {
        .tables = &python_tables,
        .many = job->many,
        .fill = fill,
        .attached = *job->attached ? &attached : NULL,
        .deadline_ns = job->left_ns,
    };
    const struct input input = {.text = text,
                                .size = job->size,
                                .before = job->before,
                                .lines = job->lines,
                                .last = job->last};
    struct text said = TEXT_INIT, why = TEXT_INIT;
    struct outcome outcome = {0};

    engine_begin(engine, &provider, NULL);
    heap_give_taken(heap_current(), job->share);
    int r = query_feed_engine(engine, &input, &said, &why, &outcome);
    if (r == 0 && said.error)
        r = said.error;
    return tell_done(r, &outcome, &said, &why);
}

/* One for texts over one process, and one for those over many. */
struct engines {
    struct engine *one, *many;
};

/* One text: what a process is there for. */
static void run_one(const struct engines *engines)
{
    const struct sql_request begun = {.op = STATEMENT_BEGUN};
    char *message = malloc(SQL_PIECE);
    struct sql_job job;

    ssize_t n = message ? hear(message, SQL_PIECE) : -ENOMEM;
    if (n < (ssize_t)sizeof job || tell(&begun, sizeof begun) < 0)
        return;
    memcpy(&job, message, sizeof job);
    size_t came = (size_t)n - sizeof job;
    char *text = malloc(job.size + 1);
    if (!text)
        return;
    memcpy(text, message + sizeof job, came);
    if (get_text(text, came, job.size) == 0) /* whoever asked has its reply, or is gone */
        (void)run(&job, job.many ? engines->many : engines->one, text);
}

/* ---- the whole ---- */

/* Makes them before there is a text: it takes longer than most statements do. */
static int make_engines(struct engines *engines)
{
    const struct provider one = {.tables = &python_tables},
                          many = {.tables = &python_tables, .many = true};

    int r = engine_make(&one, &engines->one);
    if (r == 0)
        r = engine_make(&many, &engines->many);
    return r;
}

static int begin(struct engines *engines)
{
    const struct owner_class nobody = {.nobody = true};
    int r = confine_descriptors(CHILD_CONTROL);

    if (r == 0)
        r = confine_files(CONFINE_STATEMENT, 0);
    if (r == 0)
        r = class_become(&nobody, -1);
    if (r == 0)
        r = make_engines(engines);
    heap_ask(give_share, NULL);
    return r == 0 ? confine_calls(CONFINE_STARTING) : r;
}

/* Has a new process run a text, whose conversation goes by fd. It is the child of this one's
 * parent, which waits for it, and ends it. */
static pid_t start_one(int fd, const struct engines *engines)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

    if (pid)
        return pid < 0 ? -errno : pid;
    bool has_it = dup2(fd, CHILD_CONTROL) == CHILD_CONTROL;
    close(fd);
    sqlite3_randomness(0, NULL); /* each has numbers of its own */
    if (has_it && confine_calls(CONFINE_STATEMENT) == 0)
        run_one(engines);
    _exit(0);
}

int sql_process_main(void)
{
    struct engines engines = {0};
    struct sql_started started = {.error = begin(&engines)};
    char byte;
    int fd;

    prctl(PR_SET_NAME, SQL_PROCESS_NAME);
    while (tell(&started, sizeof started) == 0 && !started.error &&
           owner_receive(CHILD_CONTROL, &byte, sizeof byte, &fd) == 0 && fd >= 0) {
        started.pid = start_one(fd, &engines);
        started.error = started.pid < 0 ? started.pid : 0;
        close(fd);
    }
    kill(0, SIGKILL); /* its group, which nobody waits for any more: all that it has started */
    _exit(0);
}
