#include "fs/sql/texts.h"

#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/random.h>

#define CHUNK_MIN 512
#define CHUNK_MAX (64u << 10)
#define SLOTS_MIN 16

struct texts_chunk {
    struct texts_chunk *next;
    size_t used, size;
    char bytes[];
};

void texts_deinit(struct texts *texts)
{
    while (texts->chunks) {
        struct texts_chunk *next = texts->chunks->next;
        sqlite3_free(texts->chunks);
        texts->chunks = next;
    }
    sqlite3_free(texts->items);
    sqlite3_free(texts->slots);
    *texts = (struct texts){0};
}

/* ---- hashing ---- */

/* What hashes begin with: who chooses the texts must not be able to choose their hashes. */
static uint64_t secrets[2];

static void make_secrets(void)
{
    if (getrandom(secrets, sizeof secrets, GRND_NONBLOCK) != sizeof secrets)
        secrets[0] = (uint64_t)(uintptr_t)&secrets; /* where the program lies is random, too */
    secrets[1] |= 1;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t hash_of(const char *bytes, size_t size)
{
    uint64_t hash = secrets[0] ^ size, word;

    for (; size >= 8; bytes += 8, size -= 8) {
        memcpy(&word, bytes, 8);
        hash = mix(hash ^ word, secrets[1]);
    }
    word = 0;
    memcpy(&word, bytes, size);
    hash = mix(hash ^ word, secrets[1]);
    return (uint32_t)(hash ^ hash >> 32);
}

/* ---- adding ---- */

static char *take(struct texts *texts, size_t size)
{
    struct texts_chunk *chunk = texts->chunks;

    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = !chunk ? CHUNK_MIN : chunk->size < CHUNK_MAX ? chunk->size * 2 : CHUNK_MAX;
        if (room < size)
            room = size;
        chunk = sqlite3_malloc64(sizeof *chunk + room);
        if (!chunk)
            return NULL;
        *chunk = (struct texts_chunk){.next = texts->chunks, .size = room};
        texts->chunks = chunk;
    }
    char *bytes = chunk->bytes + chunk->used;
    chunk->used += size;
    return bytes;
}

static void put(struct texts *texts, uint32_t number)
{
    size_t at = texts->items[number - 1].hash;

    while (texts->slots[at &= texts->nslots - 1])
        at++;
    texts->slots[at] = number;
}

/* Room for one more; at most half of the slots are taken. */
static int grow(struct texts *texts)
{
    if (texts->n == texts->alloc) {
        size_t alloc = texts->alloc ? texts->alloc * 2 : SLOTS_MIN / 2;
        struct texts_item *items = sqlite3_realloc64(texts->items, alloc * sizeof *items);
        if (!items)
            return -1;
        texts->items = items;
        texts->alloc = alloc;
    }
    if (texts->n * 2 < texts->nslots)
        return 0;
    size_t nslots = texts->nslots ? texts->nslots * 2 : SLOTS_MIN;
    uint32_t *slots = sqlite3_malloc64(nslots * sizeof *slots);
    if (!slots)
        return -1;
    memset(slots, 0, nslots * sizeof *slots);
    sqlite3_free(texts->slots);
    texts->slots = slots;
    texts->nslots = nslots;
    for (uint32_t number = 1; number <= texts->n; number++)
        put(texts, number);
    return 0;
}

static uint32_t find(const struct texts *texts, const char *bytes, size_t size, uint32_t hash)
{
    for (size_t at = hash; texts->nslots && texts->slots[at &= texts->nslots - 1]; at++) {
        uint32_t number = texts->slots[at];
        const struct texts_item *item = texts_get(texts, number);
        if (item->hash == hash && item->size == size && !memcmp(item->bytes, bytes, size))
            return number;
    }
    return 0;
}

uint32_t texts_find(const struct texts *texts, const char *bytes, size_t size)
{
    return find(texts, bytes, size, hash_of(bytes, size));
}

uint32_t texts_add(struct texts *texts, const char *bytes, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!texts->n)
        pthread_once(&once, make_secrets);
    uint32_t hash = hash_of(bytes, size);
    uint32_t number = find(texts, bytes, size, hash);
    if (number)
        return number;
    char *copy = grow(texts) < 0 ? NULL : take(texts, size);
    if (!copy)
        return 0;
    memcpy(copy, bytes, size);
    texts->items[texts->n++] = (struct texts_item){copy, (uint32_t)size, hash};
    put(texts, (uint32_t)texts->n);
    return (uint32_t)texts->n;
}
