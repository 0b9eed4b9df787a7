#include "fs/process/replies.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct reply {
    struct reply_key key;
    char *word; /* the key's */
    atomic_uint refs;
    struct budget *budget;
    pthread_mutex_t lock; /* guards the text */
    struct text text;
    struct timespec changed;
    size_t taken;       /* of the budget */
    struct reply *next; /* in the list, guarded by that */
};

int reply_new(const struct reply_key *key, struct budget *budget, struct reply **out)
{
    struct reply *reply = calloc(1, sizeof *reply);
    char *word = reply ? strdup(key->word ? key->word : "") : NULL;
    if (!word) {
        free(reply);
        return -ENOMEM;
    }
    reply->key = *key;
    reply->key.word = reply->word = word;
    credentials_ref(key->credentials);
    reply->budget = budget;
    clock_gettime(CLOCK_REALTIME, &reply->changed);
    atomic_init(&reply->refs, 1);
    pthread_mutex_init(&reply->lock, NULL);
    *out = reply;
    return 0;
}

/* The user whose share a reply takes. */
static uid_t uid_of(const struct reply *reply) { return reply->key.credentials->who.fsuid; }

struct reply *reply_ref(struct reply *reply)
{
    atomic_fetch_add(&reply->refs, 1);
    return reply;
}

void reply_unref(struct reply *reply)
{
    if (!reply || atomic_fetch_sub(&reply->refs, 1) > 1)
        return;
    budget_give(reply->budget, uid_of(reply), reply->taken);
    text_deinit(&reply->text);
    credentials_unref(reply->key.credentials);
    free(reply->word);
    pthread_mutex_destroy(&reply->lock);
    free(reply);
}

/* Makes the text begin later. */
static void drop(struct text *text, size_t size)
{
    if (!size)
        return;
    if (size > text->size)
        size = text->size;
    memmove(text->data, text->data + size, text->size - size + 1);
    text->size -= size;
}

/* Forgets it all, its memory too, and says why. */
static void begin_anew(struct reply *reply, const char *why)
{
    text_deinit(&reply->text);
    budget_give(reply->budget, uid_of(reply), reply->taken);
    reply->taken = 0;
    text_puts(&reply->text, why);
}

void reply_add(struct reply *reply, size_t read, size_t retaken, const struct text *text)
{
    static const char
        full[] = "[cut: earlier replies; one holds at most 32 MiB]\n",
        poor[] = "[cut: your open files and replies hold 128 MiB, or those of all users 512 MiB]\n";

    _guard_mutex_(&reply->lock);
    clock_gettime(CLOCK_REALTIME, &reply->changed);
    text_truncate(&reply->text,
                  reply->text.size - (retaken < reply->text.size ? retaken : reply->text.size));
    drop(&reply->text, read);
    if (reply->text.size && text->size + reply->text.size > REPLY_MAX)
        begin_anew(reply, full);
    /* what growing takes at most, see base/text.c */
    size_t most = 2 * (reply->text.size + text->size) + 1024;
    if (most > reply->taken) {
        if (budget_take(reply->budget, uid_of(reply), most - reply->taken)) {
            reply->taken = most;
        } else {
            begin_anew(reply, poor);
            return;
        }
    }
    text_add(&reply->text, text->data, text->size);
    budget_give(reply->budget, uid_of(reply), reply->taken - reply->text.alloc);
    reply->taken = reply->text.alloc;
}

size_t reply_copy(struct reply *reply, size_t offset, char *buf, size_t size)
{
    _guard_mutex_(&reply->lock);
    if (offset >= reply->text.size)
        return 0;
    if (size > reply->text.size - offset)
        size = reply->text.size - offset;
    memcpy(buf, reply->text.data + offset, size);
    return size;
}

static size_t reply_size(struct reply *reply)
{
    _guard_mutex_(&reply->lock);
    return reply->text.size;
}

void replies_init(struct replies *replies)
{
    *replies = (struct replies){0};
    pthread_mutex_init(&replies->lock, NULL);
}

/* Takes the reply at *at out of the list. Caller holds lock. */
static void unlist(struct reply **at)
{
    struct reply *reply = *at;

    *at = reply->next;
    reply_unref(reply);
}

void replies_clear(struct replies *replies)
{
    _guard_mutex_(&replies->lock);
    while (replies->first)
        unlist(&replies->first);
}

void replies_deinit(struct replies *replies)
{
    replies_clear(replies);
    pthread_mutex_destroy(&replies->lock);
}

static bool same_key(const struct reply_key *a, const struct reply_key *b)
{
    return a->file == b->file && a->tid == b->tid && a->depth == b->depth &&
           !strcmp(a->word ? a->word : "", b->word ? b->word : "") &&
           credentials_same(a->credentials, b->credentials);
}

void replies_put(struct replies *replies, struct reply *reply)
{
    size_t n = 1, bytes = reply_size(reply);

    _guard_mutex_(&replies->lock);
    reply_ref(reply);
    for (struct reply **at = &replies->first; *at;) {
        if (*at == reply || same_key(&(*at)->key, &reply->key)) {
            unlist(at);
            continue;
        }
        n++;
        bytes += reply_size(*at);
        if (n > REPLIES_MAX || bytes > REPLIES_BYTES_MAX) {
            bytes -= reply_size(*at);
            n--;
            unlist(at);
            continue;
        }
        at = &(*at)->next;
    }
    reply->next = replies->first;
    replies->first = reply;
}

/* The last reply at key; NULL: there is none. Caller holds the list's lock. */
static struct reply *find(struct replies *replies, const struct reply_key *key)
{
    struct reply *reply = replies->first;

    while (reply && !same_key(&reply->key, key))
        reply = reply->next;
    return reply;
}

void replies_render(struct replies *replies, const struct reply_key *key, struct text *out)
{
    _guard_mutex_(&replies->lock);
    struct reply *reply = find(replies, key);

    if (!reply)
        return;
    pthread_mutex_lock(&reply->lock);
    text_add(out, reply->text.data, reply->text.size);
    pthread_mutex_unlock(&reply->lock);
}

bool replies_any(struct replies *replies)
{
    _guard_mutex_(&replies->lock);
    return replies->first;
}

bool replies_changed(struct replies *replies, const struct reply_key *key, struct timespec *out)
{
    _guard_mutex_(&replies->lock);
    struct reply *reply = find(replies, key);

    if (!reply)
        return false;
    pthread_mutex_lock(&reply->lock);
    *out = reply->changed;
    pthread_mutex_unlock(&reply->lock);
    return true;
}
