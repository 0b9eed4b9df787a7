#include "fs/remote/waits/asked.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <limits.h>

#define HOLDS_MAX 4096 /* that are believed of one process */

enum question { ASK_THREAD, ASK_PEER, ASK_HOLDS };

static struct fields reading(const char *text, size_t size)
{
    return (struct fields){.at = text, .end = text + size};
}

/* Of an answer, all of which was read. */
static int finish(const struct fields *fields)
{
    return fields->error < 0 ? fields->error : fields->at == fields->end ? 0 : -EPROTO;
}

/* ---- what is said ---- */

void blocking_fields(struct fields *fields, struct blocking *blocking)
{
    FIELD(fields, blocking->kind, BLOCKING_UNKNOWN, BLOCKING_SLEEP);
    FIELD(fields, blocking->number, INT_MIN, INT_MAX);
    FIELD(fields, blocking->fd, INT_MIN, INT_MAX);
    FIELD_ANY(fields, blocking->address);
    FIELD_ANY(fields, blocking->writers);
    FIELD_ANY(fields, blocking->count);
    FIELD(fields, blocking->child, INT_MIN, INT_MAX);
    FIELD_BOOL(fields, blocking->pidfd);
    FIELD_BOOL(fields, blocking->shared);
    FIELD_BOOL(fields, blocking->timed);
}

static void word_fields(struct fields *fields, struct shared_word *word)
{
    FIELD(fields, word->dev_major, 0, UINT32_MAX);
    FIELD(fields, word->dev_minor, 0, UINT32_MAX);
    FIELD_ANY(fields, word->inode);
    FIELD_ANY(fields, word->offset);
}

static void thread_fields(struct fields *fields, struct peer_thread *thread)
{
    FIELD(fields, thread->tid, 0, INT_MAX);
    blocking_fields(fields, &thread->blocking);
    FIELD_ANY(fields, thread->switches);
    FIELD(fields, thread->nfds, 0, PEER_POLLED_MAX);
    for (size_t i = 0; i < thread->nfds; i++) {
        FIELD(fields, thread->fds[i].fd, INT_MIN, INT_MAX);
        FIELD_BOOL(fields, thread->fds[i].writes);
    }
    FIELD_ANY(fields, thread->more);
    FIELD_ANY(fields, thread->file);
    FIELD_BOOL(fields, thread->shares);
    word_fields(fields, &thread->word);
}

static void peer_fields(struct fields *fields, struct peer *peer)
{
    FIELD(fields, peer->state, 0, CHAR_MAX);
    field_string(fields, peer->command, sizeof peer->command);
    FIELD_BOOL(fields, peer->all);
    FIELD(fields, peer->nthreads, 0, PEER_THREADS_MAX);
    if (!fields->out && peer->nthreads) {
        peer->threads = calloc(peer->nthreads, sizeof *peer->threads);
        fields->error = peer->threads ? fields->error : -ENOMEM;
    }
    for (size_t i = 0; peer->threads && i < peer->nthreads; i++)
        thread_fields(fields, &peer->threads[i]);
}

static void hold_fields(struct fields *fields, struct semaphore_hold *hold)
{
    static const char *const kinds[] = {"multiprocessing.Semaphore", "multiprocessing.Lock",
                                        "multiprocessing.RLock"};
    size_t kind = 0;

    while (fields->out && kind + 1 < ARRAY_SIZE(kinds) && strcmp(kinds[kind], hold->kind))
        kind++;
    FIELD(fields, kind, 0, (int)ARRAY_SIZE(kinds) - 1);
    hold->kind = kinds[kind];
    word_fields(fields, &hold->word);
    FIELD_BOOL(fields, hold->one);
    FIELD(fields, hold->tid, 0, INT_MAX);
    field_string(fields, hold->func, sizeof hold->func);
    field_string(fields, hold->file, sizeof hold->file);
    FIELD(fields, hold->line, 0, INT_MAX);
}

/* ---- who is asked ---- */

static int tell_thread(pid_t pid, struct fields *question, struct fields *answer)
{
    _cleanup_(maps_deinit) struct maps maps = {0};
    struct peer_thread thread = {0};

    FIELD(question, thread.tid, 0, INT_MAX);
    blocking_fields(question, &thread.blocking);
    int r = finish(question);
    if (r < 0)
        return r;
    peer_thread_read(pid, &maps, &thread);
    thread_fields(answer, &thread);
    return 0;
}

static int tell_peer(pid_t pid, struct fields *question, struct fields *answer)
{
    const struct waits_reader here = {.ask = NULL};
    _cleanup_(peer_deinit) struct peer peer = {.pid = pid};
    struct peer *one = &peer;
    bool with_threads = false;

    FIELD_BOOL(question, with_threads);
    int r = finish(question);
    if (r < 0)
        return r;
    peers_read(&here, &one, 1, with_threads);
    if (peer.hangs)
        return -ETIMEDOUT;
    peer_fields(answer, &peer);
    return 0;
}

static int tell_holds(pid_t pid, struct fields *question, struct fields *answer)
{
    _cleanup_(semaphores_deinit) struct semaphores semaphores = {0};

    int r = finish(question);
    if (r == 0)
        r = semaphores_read_one(pid, &semaphores);
    if (r < 0)
        return r;
    if (semaphores.n > HOLDS_MAX)
        semaphores.n = HOLDS_MAX;
    FIELD(answer, semaphores.n, 0, HOLDS_MAX);
    for (size_t i = 0; i < semaphores.n; i++)
        hold_fields(answer, &semaphores.items[i]);
    return 0;
}

int asked_answer(pid_t pid, const char *question, size_t size, struct text *out)
{
    char text[QUESTION_MAX + 1] = "";
    struct fields asked, answer = {.out = out};
    enum question what = ASK_THREAD;

    if (size > QUESTION_MAX)
        return -EPROTO;
    memcpy(text, question, size);
    asked = reading(text, size);
    FIELD(&asked, what, ASK_THREAD, ASK_HOLDS);
    int r = asked.error          ? asked.error
            : what == ASK_THREAD ? tell_thread(pid, &asked, &answer)
            : what == ASK_PEER   ? tell_peer(pid, &asked, &answer)
                                 : tell_holds(pid, &asked, &answer);
    return r < 0 ? r : out->error;
}

/* ---- who asks ---- */

static int ask(const struct waits_reader *reader, pid_t pid, const struct text *question,
               struct text *answer)
{
    return question->error ? question->error
                           : reader->ask(reader->ask_arg, pid, question->data, answer);
}

static struct fields reading_text(const struct text *text)
{
    return reading(text->size ? text->data : "", text->size);
}

int asked_thread(const struct waits_reader *reader, pid_t pid, struct peer_thread *thread)
{
    _cleanup_(text_deinit) struct text question = TEXT_INIT, answer = TEXT_INIT;
    struct peer_thread told = {0};

    text_printf(&question, "%d %d ", ASK_THREAD, (int)thread->tid);
    blocking_fields(&(struct fields){.out = &question}, &thread->blocking);
    int r = ask(reader, pid, &question, &answer);
    if (r < 0)
        return r;
    struct fields fields = reading_text(&answer);
    thread_fields(&fields, &told);
    r = finish(&fields);
    if (r < 0)
        return r;
    told.tid = thread->tid;
    told.blocking = thread->blocking;
    told.switches = thread->switches;
    *thread = told;
    return 0;
}

int asked_peer_read(struct text *answer, struct peer *out)
{
    struct peer told = {.pid = out->pid};
    struct fields fields = reading_text(answer);

    peer_fields(&fields, &told);
    int r = finish(&fields);
    if (r < 0) {
        peer_deinit(&told);
        return r;
    }
    peer_deinit(out);
    *out = told;
    return 0;
}

int asked_peer(const struct waits_reader *reader, struct peer *peer, bool with_threads)
{
    _cleanup_(text_deinit) struct text question = TEXT_INIT, answer = TEXT_INIT;

    text_printf(&question, "%d %d ", ASK_PEER, with_threads);
    int r = ask(reader, peer->pid, &question, &answer);
    return r < 0 ? r : asked_peer_read(&answer, peer);
}

int asked_holds_read(struct text *answer, pid_t pid, struct semaphores *out)
{
    struct fields fields = reading_text(answer);
    const size_t before = out->n;
    size_t n = 0;

    FIELD(&fields, n, 0, HOLDS_MAX);
    int r = ARRAY_GROW(out->items, out->alloc, before + n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        struct semaphore_hold *hold = &out->items[before + i];
        *hold = (struct semaphore_hold){.pid = pid};
        hold_fields(&fields, hold);
    }
    r = finish(&fields);
    out->n += r == 0 ? n : 0;
    return r;
}

int asked_holds(const struct waits_reader *reader, pid_t pid, struct semaphores *semaphores)
{
    _cleanup_(text_deinit) struct text question = TEXT_INIT, answer = TEXT_INIT;

    text_printf(&question, "%d ", ASK_HOLDS);
    int r = ask(reader, pid, &question, &answer);
    return r < 0 ? r : asked_holds_read(&answer, pid, semaphores);
}
