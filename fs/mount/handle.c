#include "fs/mount/handle.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/events/events.h"

#include <errno.h>

void handles_init(struct handles *handles)
{
    *handles = (struct handles){0};
    handles->numbered = realtime_ns(); /* beyond all numbers that an earlier daemon gave */
    budget_init(&handles->budget, HANDLES_BYTES_MAX, HANDLES_BYTES_EACH, HANDLES_BYTES_KEPT);
    pthread_mutex_init(&handles->lock, NULL);
}

void handles_deinit(struct handles *handles)
{
    while (handles->first)
        handle_unref(handles->first);
    pthread_mutex_destroy(&handles->lock);
}

static int handle_new(struct handles *handles, struct handle **out)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return -ENOMEM;
    atomic_init(&handle->refs, 1);
    handle->handles = handles;
    _guard_mutex_(&handles->lock);
    handle->next = handles->first;
    if (handle->next)
        handle->next->previous = handle;
    handles->first = handle;
    *out = handle;
    return 0;
}

struct handle *handle_ref(struct handle *handle)
{
    atomic_fetch_add(&handle->refs, 1);
    return handle;
}

void handle_unref(struct handle *handle)
{
    if (!handle || atomic_fetch_sub(&handle->refs, 1) > 1)
        return;
    struct handles *handles = handle->handles;
    pthread_mutex_lock(&handles->lock);
    if (handle->next)
        handle->next->previous = handle->previous;
    if (handle->previous)
        handle->previous->next = handle->next;
    else
        handles->first = handle->next;
    pthread_mutex_unlock(&handles->lock);
    budget_give(&handles->budget, handle->uid, handle->text.alloc);
    text_deinit(&handle->text);
    event_reader_free(handle->events);
    writer_free(handle->writer);
    listing_free(handle->listing);
    credentials_unref(handle->opener);
    free(handle);
}

/* Gives back what growing left over: a content is kept as long as the file is open. */
static void trim(struct text *text)
{
    char *data = text->data ? realloc(text->data, text->size + 1) : NULL;
    if (data) {
        text->data = data;
        text->alloc = text->size + 1;
    }
}

/* Puts a content into the handle, if there is room for it. Takes it over in any case. */
static int keep(struct handle *handle, struct text *text)
{
    if (!budget_take(&handle->handles->budget, handle->uid, text->alloc)) {
        text_deinit(text);
        return -ENFILE;
    }
    handle->text = *text;
    return 0;
}

int handle_open_text(struct handles *handles, uid_t uid, struct text *text, struct text *why,
                     struct handle **out)
{
    struct handle *handle;

    int r = handle_new(handles, &handle);
    if (r < 0) {
        text_deinit(text);
        return r;
    }
    handle->uid = uid;
    trim(text);
    r = keep(handle, text);
    if (r < 0) {
        text_puts(why,
                  "your open files and replies hold 128 MiB, or those of all users 512 MiB: close "
                  "some");
        handle_unref(handle);
        return r;
    }
    *out = handle;
    return 0;
}

static uint64_t next_number(struct handles *handles)
{
    _guard_mutex_(&handles->lock);
    return ++handles->numbered;
}

int handle_open_writer(struct handles *handles, int flags, bool clears, const struct reply_key *key,
                       struct handle **out)
{
    struct handle *handle;

    int r = handle_new(handles, &handle);
    if (r < 0)
        return r;
    r = writer_new(flags, clears, key, next_number(handles), &handles->budget, &handle->writer);
    if (r < 0) {
        handle_unref(handle);
        return r;
    }
    *out = handle;
    return 0;
}

int handle_open_events(struct handles *handles, struct event_reader *events, struct handle **out)
{
    int r = handle_new(handles, out);
    if (r < 0)
        event_reader_free(events);
    else
        (*out)->events = events;
    return r;
}

int handle_open_directory(struct handles *handles, struct listing *listing, struct handle **out)
{
    int r = handle_new(handles, out);
    if (r < 0)
        listing_free(listing);
    else
        (*out)->listing = listing;
    return r;
}

size_t handle_read(const struct handle *handle, uint64_t offset, size_t size, const char **out)
{
    if (offset >= handle->text.size)
        return 0;
    *out = handle->text.data + offset;
    return size < handle->text.size - offset ? size : handle->text.size - offset;
}
