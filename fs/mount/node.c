#include "fs/mount/node.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUCKETS 4096

struct nodes {
    pthread_mutex_t lock;
    struct node root;
    struct node *buckets[BUCKETS];
    uint64_t generation;
};

static bool same_place(const struct place *a, const struct place *b)
{
    return a->entry == b->entry && a->process == b->process && a->tid == b->tid &&
           a->depth == b->depth && a->rank == b->rank && !strcmp(a->word, b->word) &&
           !strcmp(a->part, b->part);
}

void place_set(struct place *place, enum number_kind kind, unsigned value, const char *word)
{
    switch (kind) {
    case NUMBER_PID: /* that is its process */ break;
    case NUMBER_TID: place->tid = (pid_t)value; break;
    case NUMBER_DEPTH: place->depth = value; break;
    case NUMBER_RANK:
    case NUMBER_WORKER: place->rank = value; break;
    case WORD_MODULE:
    case WORD_JOB:
    case WORD_CORE: snprintf(place->word, sizeof place->word, "%s", word); break;
    case WORD_PROFILE: snprintf(place->part, sizeof place->part, "%s", word); break;
    }
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

uint64_t place_number(const struct place *place)
{
    uint64_t hash = mix(1, (uint64_t)(place->entry - layout));

    if (place->entry == LAYOUT_ROOT)
        return 1;
    if (place->process) {
        hash = mix(hash, (uint64_t)place->process->pid);
        hash = mix(hash, place->process->start_time);
        hash = mix(hash, place->process->serial);
    }
    hash = mix(hash, (uint64_t)place->tid);
    hash = mix(hash, (uint64_t)place->depth << 32 | place->rank);
    for (const char *p = place->word; *p; p++)
        hash = mix(hash, (unsigned char)*p);
    for (const char *p = place->part; *p; p++)
        hash = mix(hash, (unsigned char)*p);
    return hash > 1 ? hash : 2;
}

void place_path(const struct place *place, char *buf, size_t cap)
{
    const char *p = place->entry->path;
    size_t n = 0;

    if (entry_exited(place->entry))
        p += strlen("exited/");
    if (!strncmp(p, "cores/", 6))
        p += strlen("cores/<name>") + (p[strlen("cores/<name>")] == '/');
    else if (!strncmp(p, "<pid>/", 6))
        p += 6;
    buf[0] = 0;
    while (*p && n + 1 < cap) {
        if (!strncmp(p, "<tid>", 5)) {
            n += (size_t)snprintf(buf + n, cap - n, "%d", place->tid);
            p += 5;
        } else if (!strncmp(p, "<depth>", 7)) {
            n += (size_t)snprintf(buf + n, cap - n, "%u", place->depth);
            p += 7;
        } else if (*p == '<') {
            n += (size_t)snprintf(buf + n, cap - n, "%s", *place->part ? place->part : place->word);
            p = strchr(p, '>') + 1;
        } else {
            buf[n++] = *p++;
            buf[n] = 0;
        }
    }
}

int nodes_new(struct nodes **out)
{
    struct nodes *nodes = calloc(1, sizeof *nodes);
    if (!nodes)
        return -ENOMEM;
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->root.place.entry = LAYOUT_ROOT;
    nodes->root.number = 1;
    *out = nodes;
    return 0;
}

static void node_free(struct node *node)
{
    process_unref(node->place.process);
    credentials_unref(node->opener);
    free(node);
}

void nodes_free(struct nodes *nodes)
{
    if (!nodes)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (nodes->buckets[i]) {
            struct node *node = nodes->buckets[i];
            nodes->buckets[i] = node->next;
            node_free(node);
        }
    }
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}

struct node *nodes_root(struct nodes *nodes) { return &nodes->root; }

int nodes_get(struct nodes *nodes, const struct place *place, struct node **out)
{
    uint64_t number = place_number(place);

    _guard_mutex_(&nodes->lock);
    struct node **bucket = &nodes->buckets[number % BUCKETS];
    for (struct node *node = *bucket; node && !place->entry->run; node = node->next) {
        if (same_place(&node->place, place)) {
            node->lookups++;
            *out = node;
            return 0;
        }
    }
    struct node *node = calloc(1, sizeof *node);
    if (!node)
        return -ENOMEM;
    node->place = *place;
    if (place->process)
        process_ref(place->process);
    node->number = number;
    node->generation = ++nodes->generation;
    node->lookups = 1;
    node->next = *bucket;
    *bucket = node;
    *out = node;
    return 0;
}

void nodes_forget(struct nodes *nodes, struct node *node, uint64_t n)
{
    if (node == &nodes->root)
        return;
    pthread_mutex_lock(&nodes->lock);
    bool gone = node->lookups <= n;
    node->lookups = gone ? 0 : node->lookups - n;
    if (gone) {
        struct node **at = &nodes->buckets[node->number % BUCKETS];
        while (*at != node)
            at = &(*at)->next;
        *at = node->next;
    }
    pthread_mutex_unlock(&nodes->lock);
    if (gone)
        node_free(node);
}

void nodes_opened(struct nodes *nodes, struct node *node, size_t size, struct credentials *opener)
{
    _guard_mutex_(&nodes->lock);
    node->opened++;
    node->size = size;
    credentials_unref(node->opener);
    node->opener = credentials_ref(opener);
}

void nodes_closed(struct nodes *nodes, struct node *node)
{
    _guard_mutex_(&nodes->lock);
    if (--node->opened == 0) {
        node->size = 0;
        credentials_unref(steal_pointer(node->opener));
    }
}

bool nodes_is_open(struct nodes *nodes, const struct node *node)
{
    _guard_mutex_(&nodes->lock);
    return node->opened > 0;
}

bool nodes_content(struct nodes *nodes, const struct node *node, const struct credentials *who,
                   size_t *size)
{
    _guard_mutex_(&nodes->lock);
    if (!node->opened || !credentials_same(node->opener, who))
        return false;
    *size = node->size;
    return true;
}

bool nodes_content_of_opener(struct nodes *nodes, const struct node *node,
                             const struct caller *caller, size_t *size)
{
    _guard_mutex_(&nodes->lock);
    const struct access_caller *who = node->opened ? &node->opener->who : NULL;
    if (!who || !caller->pid || who->tid != caller->pid || who->fsuid != caller->uid ||
        who->fsgid != caller->gid)
        return false;
    *size = node->size;
    return true;
}
