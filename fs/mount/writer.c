#include "fs/mount/writer.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ERROR_LOOKED_AT 4096 /* bytes, where the end may say already what the error is */

int writer_new(int flags, bool clears, const struct reply_key *key, uint64_t number,
               struct budget *budget, struct writer **out)
{
    struct writer *writer = calloc(1, sizeof *writer);
    char *word = writer ? strdup(key->word ? key->word : "") : NULL;
    struct lifetime *lifetime = word ? lifetime_new(number) : NULL;
    if (!lifetime) {
        free(word);
        free(writer);
        return -ENOMEM;
    }
    writer->lifetime = lifetime;
    writer->flags = flags;
    writer->clears = clears && flags & O_TRUNC;
    writer->key = *key;
    writer->key.word = writer->word = word; /* the node may be forgotten while a command runs */
    credentials_ref(key->credentials);
    writer->budget = budget;
    pthread_mutex_init(&writer->turn, NULL);
    pthread_mutex_init(&writer->lock, NULL);
    *out = writer;
    return 0;
}

/* Caller holds lock, or is the last. */
static void forget_pending_by(struct writer *writer)
{
    while (writer->npending_by)
        credentials_unref(writer->pending_by[--writer->npending_by]);
}

void writer_free(struct writer *writer)
{
    if (!writer)
        return;
    forget_pending_by(writer);
    credentials_unref(writer->key.credentials);
    text_deinit(&writer->pending);
    reply_unref(writer->reply);
    lifetime_unref(writer->lifetime);
    pthread_mutex_destroy(&writer->lock);
    pthread_mutex_destroy(&writer->turn);
    free(writer->word);
    free(writer);
}

/* Whether one of the last lines is just these words, as of a traceback. */
static bool says_already(const struct text *said, const struct text *why)
{
    if (!said->size)
        return false;
    const char *at = said->data, *end = said->data + said->size;
    if (said->size > ERROR_LOOKED_AT)
        at = end - ERROR_LOOKED_AT;
    while ((at = memmem(at, (size_t)(end - at), why->data, why->size))) {
        const char *after = at + why->size;
        if ((at == said->data || at[-1] == '\n') && (after == end || *after == '\n'))
            return true;
        at++;
    }
    return false;
}

/* "error: " and the words, on lines of their own. */
static void add_error(struct text *said, const struct text *why)
{
    if (says_already(said, why))
        return;
    if (said->size && said->data[said->size - 1] != '\n')
        text_putc(said, '\n');
    text_puts(said, "error: ");
    text_add(said, why->data, why->size);
    text_putc(said, '\n');
}

/* Takes down how a command ended: its outcome, what it said, what of the input is left. */
static int finish(struct writer *writer, int error, const struct text *said, size_t passing,
                  struct replies *replies)
{
    struct reply *reply = NULL;

    pthread_mutex_lock(&writer->lock);
    writer->failed = error;
    writer->keeps = writer->keeps || error;
    writer->runs = false;
    writer->npending = writer->pending.size;
    if (!writer->npending && !writer->clears)
        forget_pending_by(writer);
    if (!writer->reply)
        (void)reply_new(&writer->key, writer->budget, &writer->reply);
    if (writer->reply) {
        reply_add(writer->reply, writer->read, writer->retaken, said);
        writer->read = 0;
        writer->retaken = 0;
        writer->passing = passing;
        reply = reply_ref(writer->reply);
    }
    pthread_mutex_unlock(&writer->lock);
    if (reply && replies)
        replies_put(replies, reply);
    reply_unref(reply);
    return error;
}

/* Adds what was written to what is pending. */
static int take(struct writer *writer, const struct input *input, struct text *why)
{
    if (input->size > INPUT_MAX - writer->pending.size) {
        text_puts(why,
                  "more than 1 MiB was written that makes no complete statement: nothing of it "
                  "was used");
        return -EFBIG;
    }
    text_add(&writer->pending, input->text, input->size);
    return writer->pending.error;
}

/* Takes off what is done with, but for what stays. */
static void consume(struct text *pending, size_t stays, size_t size)
{
    if (size >= pending->size)
        size = pending->size;
    if (size <= stays)
        return;
    if (!stays && size == pending->size) {
        text_deinit(pending);
        return;
    }
    memmove(pending->data + stays, pending->data + size, pending->size - size + 1);
    pending->size -= size - stays;
}

/* Counts the lines of what is taken off now. */
static void count_lines(struct writer *writer, size_t size)
{
    const struct text *pending = &writer->pending;
    size_t n = 0;

    for (size_t i = 0; i < size && i < pending->size; i++)
        n += pending->data[i] == '\n';
    _guard_mutex_(&writer->lock);
    writer->lines += n;
}

/* What is still to be cleared after a command. */
static void set_clears(struct writer *writer, const struct outcome *outcome)
{
    _guard_mutex_(&writer->lock);
    writer->clears = writer->clears && !outcome->cleared;
    writer->keeps = writer->keeps || outcome->keeps;
}

/* What waits, does so in somebody's name, too. Caller holds lock. */
static int add_pending_by(struct writer *writer, struct credentials *acting)
{
    if (!acting || credentials_same(writer->key.credentials, acting))
        return 0;
    for (size_t i = 0; i < writer->npending_by; i++)
        if (credentials_same(writer->pending_by[i], acting))
            return 0;
    if (writer->npending_by == PENDING_BY_MAX)
        return -EPERM;
    writer->pending_by[writer->npending_by++] = credentials_ref(acting);
    return 0;
}

/* All in whose name a command runs now. Of a process's own file it may itself be one; `all/` is
 * about whatever process has that pid. Caller holds lock. */
static void gather(const struct writer *writer, const struct credentials *acting, bool of_process,
                   struct principals *out)
{
    struct credentials *opener = writer->key.credentials;
    bool lives = of_process && acting && credentials_same(opener, acting) &&
                 credentials_same_program(opener, acting);

    out->opener = opener;
    out->n = 0;
    (void)principals_add(out, opener, lives);
    for (size_t i = 0; i < writer->npending_by; i++)
        (void)principals_add(out, writer->pending_by[i], false);
}

int writer_run(struct writer *writer, file_run *run, struct file_context *context,
               struct credentials *acting, const struct input *input, struct replies *replies)
{
    _cleanup_(text_deinit) struct text said = TEXT_INIT;
    struct principals principals;
    struct outcome outcome = {0};
    int r = 0;

    _guard_mutex_(&writer->turn);
    size_t before = writer->pending.size;
    pthread_mutex_lock(&writer->lock);
    int failed = writer->failed;
    writer->npending = 0;
    size_t lines = writer->lines;
    context->clears = writer->clears;
    bool nothing = !failed && !input->size && !writer->pending.size &&
                   !(input->last && writer->clears);
    writer->runs = !failed && !nothing;
    if (!failed && !nothing)
        r = add_pending_by(writer, acting);
    gather(writer, acting, context->process, &principals);
    pthread_mutex_unlock(&writer->lock);
    if (failed || nothing)
        return failed;

    context->principals = &principals;
    if (r < 0)
        text_printf(&context->why,
                    "more than %d others than who opened this file have written to it: nothing of "
                    "that was used",
                    PENDING_BY_MAX);
    else
        r = take(writer, input, &context->why);
    if (r == 0) {
        const struct input all = {.text = writer->pending.data ? writer->pending.data : "",
                                  .size = writer->pending.size,
                                  .before = before,
                                  .lines = lines,
                                  .last = input->last};
        r = run(context, &all, &said, &outcome);
        writer->retaken = outcome.retake ? writer->passing : 0;
    }
    int whole = text_finish(&said);
    if (r == 0)
        r = whole;
    if (context->why.size && r < 0)
        add_error(&said, &context->why);
    count_lines(writer, r < 0 || input->last ? SIZE_MAX : outcome.consumed);
    bool ends = r < 0 || input->last;
    consume(&writer->pending, ends ? 0 : outcome.stays, ends ? SIZE_MAX : outcome.consumed);
    set_clears(writer, &outcome);
    /* what was said in passing stays so until it is taken back, or what it was said of is done */
    size_t passing = outcome.passing + (outcome.retake || outcome.consumed ? 0 : writer->passing);
    return finish(writer, r, &said, passing, replies);
}

int writer_fail(struct writer *writer, int error, const struct text *why, struct replies *replies)
{
    _cleanup_(text_deinit) struct text said = TEXT_INIT;

    if (pthread_mutex_trylock(&writer->turn))
        return error; /* a command of this file runs: its outcome is the one to show */
    pthread_mutex_lock(&writer->lock);
    int failed = writer->failed;
    pthread_mutex_unlock(&writer->lock);
    if (!failed) {
        if (why->size)
            add_error(&said, why);
        text_deinit(&writer->pending);
        failed = finish(writer, error, &said, 0, replies);
    }
    pthread_mutex_unlock(&writer->turn);
    return failed;
}

int writer_failed(struct writer *writer)
{
    _guard_mutex_(&writer->lock);
    return writer->failed;
}

bool writer_pending(struct writer *writer)
{
    _guard_mutex_(&writer->lock);
    return writer->npending > 0 || (writer->clears && !writer->runs && !writer->keeps);
}

int writer_truncate(struct writer *writer, struct credentials *acting)
{
    _guard_mutex_(&writer->lock);
    int r = add_pending_by(writer, acting);
    if (r < 0)
        return r;
    writer->clears = true;
    writer->keeps = false;
    return 0;
}

void writer_flushed(struct writer *writer)
{
    _guard_mutex_(&writer->lock);
    writer->failed = 0;
}

void writer_drop(struct writer *writer)
{
    if (pthread_mutex_trylock(&writer->turn))
        return;
    text_deinit(&writer->pending);
    pthread_mutex_lock(&writer->lock);
    writer->npending = 0;
    writer->clears = false;
    forget_pending_by(writer);
    pthread_mutex_unlock(&writer->lock);
    pthread_mutex_unlock(&writer->turn);
}

size_t writer_read(struct writer *writer, char *buf, size_t size)
{
    _guard_mutex_(&writer->lock);
    writer->failed = 0;
    if (!writer->reply)
        return 0;
    writer->lines = 0;
    size_t n = reply_copy(writer->reply, writer->read, buf, size);
    writer->read += n;
    return n;
}
