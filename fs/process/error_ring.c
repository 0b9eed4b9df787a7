#include "fs/process/error_ring.h"

#include "agent/base/cleanup.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct error_ring *ring_get(_Atomic(struct error_ring *) *ring)
{
    struct error_ring *seen = atomic_load(ring);
    if (seen)
        return seen;
    struct error_ring *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    pthread_mutex_init(&made->lock, NULL);
    if (atomic_compare_exchange_strong(ring, &seen, made))
        return made;
    error_ring_free(made); /* another thread was faster */
    return seen;
}

void error_ring_add(_Atomic(struct error_ring *) *ring, struct credentials *whose, const char *file,
                    int error, const char *words)
{
    struct error_ring *r = ring_get(ring);
    if (!r)
        return;
    _guard_mutex_(&r->lock);
    struct error_line *line = &r->lines[r->next++ % ERROR_RING_LINES];
    credentials_unref(line->whose);
    line->whose = credentials_ref(whose);
    clock_gettime(CLOCK_REALTIME, &line->when);
    line->error = -error;
    snprintf(line->file, sizeof line->file, "%s", file);
    snprintf(line->words, sizeof line->words, "%s", words && *words ? words : strerror(-error));
}

void error_ring_free(struct error_ring *ring)
{
    if (!ring)
        return;
    for (unsigned i = 0; i < ERROR_RING_LINES; i++)
        credentials_unref(ring->lines[i].whose);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

void error_ring_render(struct error_ring *ring, const struct credentials *whose, struct text *out)
{
    if (!ring)
        return;
    _guard_mutex_(&ring->lock);
    for (unsigned i = 0; i < ERROR_RING_LINES; i++) {
        const struct error_line *line = &ring->lines[(ring->next + i) % ERROR_RING_LINES];
        struct tm tm;
        char when[32];

        if (!line->error || !credentials_same(line->whose, whose))
            continue;
        localtime_r(&line->when.tv_sec, &tm);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
        text_printf(out, "%s.%03ld %s ", when, line->when.tv_nsec / 1000000, line->file);
        const char *name = strerrorname_np(line->error);
        if (name)
            text_puts(out, name);
        else
            text_printf(out, "errno %d", line->error);
        text_putc(out, ' ');
        text_add_escaped(out, line->words, strlen(line->words));
        text_putc(out, '\n');
    }
}
