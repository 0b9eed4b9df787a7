#include "fs/remote/frames/code.h"

#include "agent/base/cleanup.h"
#include "agent/wire/proto.h"
#include "fs/base/array.h"
#include "fs/remote/objects/unicode.h"

#include <errno.h>
#include <string.h>

#define BUCKETS 8192

/* What one read of a string or a table brings at first: enough for nearly all. */
#define STRING_GUESS 256
#define TABLE_GUESS 1024

struct code_cache {
    struct code *buckets[BUCKETS];
    size_t n, bytes;
    struct code **fresh; /* CODE_NEW entries */
    size_t nfresh, fresh_alloc;
};

int code_cache_new(struct code_cache **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -ENOMEM;
}

static void forget(struct code *code)
{
    free(code->name);
    free(code->file);
    linetable_deinit(&code->lines);
    code->name = code->file = NULL;
}

static size_t size_of(const struct code *code)
{
    return sizeof *code + (code->name ? strlen(code->name) : 0) +
           (code->file ? strlen(code->file) : 0) + code->lines.n * sizeof *code->lines.rows;
}

size_t code_cache_size(const struct code_cache *cache) { return cache->bytes; }

void code_cache_clear(struct code_cache *cache)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct code *c = cache->buckets[i], *next; c; c = next) {
            next = c->next;
            forget(c);
            free(c);
        }
        cache->buckets[i] = NULL;
    }
    cache->n = cache->bytes = cache->nfresh = 0;
}

void code_cache_free(struct code_cache *cache)
{
    if (!cache)
        return;
    code_cache_clear(cache);
    free(cache->fresh);
    free(cache);
}

void code_cache_trim(struct code_cache *cache)
{
    if (cache->n > CODE_CACHE_MAX || cache->bytes > CODE_CACHE_BYTES_MAX)
        code_cache_clear(cache);
}

uint32_t code_head_size(const struct offsets *o)
{
    return (uint32_t)(o->code_adaptive >= 0 ? o->code_adaptive : o->code_size);
}

static struct code_key key_of(const struct offsets *o, const uint8_t *head)
{
    struct code_key key; /* compared as bytes: no padding, see the assertion */

    _Static_assert(sizeof key == 5 * 8 + 2 * 4, "padding in struct code_key");
    key.type = load64(head + o->object_type);
    key.filename = load64(head + o->code_filename);
    key.name = load64(head + (o->code_qualname >= 0 ? o->code_qualname : o->code_name));
    key.linetable = load64(head + o->code_linetable);
    key.bytecode = o->code_bytecode >= 0 ? load64(head + o->code_bytecode) : 0;
    key.first_line = load32(head + o->code_firstlineno);
    key.version = o->code_version >= 0 ? load32(head + o->code_version) : 0;
    return key;
}

static int enqueue(struct code_cache *cache, struct code *code)
{
    if (ARRAY_GROW(cache->fresh, cache->fresh_alloc, cache->nfresh + 1) < 0)
        return -ENOMEM;
    cache->fresh[cache->nfresh++] = code;
    return 0;
}

struct code *code_cache_find(struct code_cache *cache, const struct offsets *offsets, uint64_t addr,
                             const uint8_t *head)
{
    struct code **bucket = &cache->buckets[(addr >> 4) * 0x9e3779b97f4a7c15ull >> 51];
    struct code_key key = key_of(offsets, head);
    struct code *code = *bucket;

    _Static_assert(BUCKETS == 1 << 13, "the hash keeps 13 bits");
    while (code && code->addr != addr)
        code = code->next;
    if (code && !memcmp(&code->key, &key, sizeof key) && code->state != CODE_UNREADABLE)
        return code;
    if (!code) {
        code = calloc(1, sizeof *code);
        if (!code)
            return NULL;
        code->state = CODE_UNREADABLE;
        code->addr = addr;
        code->next = *bucket;
        *bucket = code;
        cache->n++;
        cache->bytes += size_of(code);
    }
    if (code->state != CODE_NEW && enqueue(cache, code) < 0)
        return NULL;
    cache->bytes -= size_of(code);
    forget(code);
    cache->bytes += size_of(code);
    code->state = CODE_NEW;
    code->no_handlers = code->no_lock_calls = false;
    code->key = key;
    code->first_traceable = 0;
    /* _co_firsttraceable; co_extra; co_tlbc, if there is one; co_code_adaptive */
    int32_t behind = offsets->code_tlbc >= 0 ? offsets->code_tlbc : offsets->code_adaptive;
    if (behind >= 16)
        code->first_traceable = (int32_t)(load32(head + behind - 16) * 2);
    return code;
}

/* One object to fetch: a head and what follows it, first by a guess, then what was missing. */
struct fetch {
    uint64_t addr;
    uint8_t *bytes;
    uint32_t got, want;
};

static int fetch_all(const struct memory *memory, struct fetch *fetches,
                     struct memory_range *ranges, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (fetches[i].want > fetches[i].got)
            ranges[k++] = (struct memory_range){fetches[i].addr + fetches[i].got,
                                                fetches[i].bytes + fetches[i].got,
                                                fetches[i].want - fetches[i].got, false};
    int r = memory_read_ranges(memory, ranges, k);
    k = 0;
    for (size_t i = 0; i < n; i++)
        if (fetches[i].want > fetches[i].got) {
            if (ranges[k++].ok)
                fetches[i].got = fetches[i].want;
            else
                fetches[i].want = fetches[i].got; /* says: this is all there is */
        }
    return r;
}

/* How many bytes to fetch: as many as lie on addr's page, for the next one need not be mapped; but
 * always the head. */
static uint32_t guess(uint64_t addr, uint32_t want, uint32_t head)
{
    uint32_t left = 4096 - (uint32_t)(addr & 4095);
    return left < head ? head : left < want ? left : want;
}

/* How long an object whose head has arrived really is; 0 if it makes no sense. */
static uint32_t string_size(const struct offsets *o, const struct fetch *f)
{
    struct unicode u;

    if (f->got < (uint32_t)o->unicode_ascii_size || !unicode_head(o, f->bytes, &u) || !u.compact ||
        !u.kind)
        return 0;
    uint64_t characters = u.length < CODE_NAME_MAX ? u.length : CODE_NAME_MAX;
    return (uint32_t)(u.data + characters * u.kind);
}

static uint32_t table_size(const struct offsets *o, const struct fetch *f)
{
    if (f->got < (uint32_t)o->bytes_data)
        return 0;
    uint64_t size = load64(f->bytes + o->bytes_size);
    return size <= LINETABLE_BYTES_MAX ? (uint32_t)(o->bytes_data + size) : 0;
}

static char *string_of(const struct offsets *o, const struct fetch *f)
{
    struct text text = TEXT_INIT;
    struct unicode u;

    if (!f->got || !unicode_head(o, f->bytes, &u))
        return NULL;
    unicode_add(&u, f->bytes + u.data, (f->got - u.data) / u.kind, &text);
    if (u.length > CODE_NAME_MAX)
        text_puts(&text, "...");
    text_puts(&text, "");
    if (!text.data)
        return strdup("");
    return text.data;
}

enum { NAME, FILENAME, TABLE, PARTS };

/* Grows a fetch to the size its head asks for; one that makes no sense ends with got == 0. */
static int extend(struct fetch *f, uint32_t size)
{
    if (!size) {
        f->got = f->want = 0;
        return 0;
    }
    if (size > f->got) {
        uint8_t *more = realloc(f->bytes, size);
        if (!more)
            return -ENOMEM;
        f->bytes = more;
        f->want = size;
    } else {
        f->got = f->want = size;
    }
    return 0;
}

static int fetch_parts(const struct memory *memory, const struct offsets *o, struct code **codes,
                       size_t n, struct fetch *fetches, struct memory_range *ranges)
{
    for (size_t i = 0; i < n * PARTS; i++) {
        const struct code_key *key = &codes[i / PARTS]->key;
        struct fetch *f = &fetches[i];
        f->addr = i % PARTS == NAME       ? key->name
                  : i % PARTS == FILENAME ? key->filename
                                          : key->linetable;
        f->want = i % PARTS == TABLE
                      ? guess(f->addr, TABLE_GUESS, (uint32_t)o->bytes_data)
                      : guess(f->addr, STRING_GUESS, (uint32_t)o->unicode_ascii_size);
        f->bytes = malloc(f->want);
        if (!f->bytes)
            return -ENOMEM;
    }
    int r = fetch_all(memory, fetches, ranges, n * PARTS);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n * PARTS; i++) {
        struct fetch *f = &fetches[i];
        uint32_t size = i % PARTS == TABLE ? table_size(o, f) : string_size(o, f);
        if (extend(f, size) < 0)
            return -ENOMEM;
    }
    r = fetch_all(memory, fetches, ranges, n * PARTS);
    for (size_t i = 0; i < n * PARTS; i++) {
        uint32_t size = i % PARTS == TABLE ? table_size(o, &fetches[i])
                                           : string_size(o, &fetches[i]);
        if (fetches[i].got < size) /* its tail was not readable */
            fetches[i].got = 0;
    }
    return r;
}

static void note_whose(struct code *code)
{
    static const char *const entries[] = AGENT_ENTRIES;

    code->whose = strncmp(code->file, AGENT_FILES, sizeof AGENT_FILES - 1) ? CODE_PROGRAMS
                                                                           : CODE_AGENTS;
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
        if (!strcmp(code->file, entries[i]))
            code->whose = CODE_AGENTS_ENTRY;
}

static void finish(const struct offsets *o, struct code *code, const struct fetch *parts,
                   const struct memory_range *head)
{
    struct code_key now;

    code->state = CODE_UNREADABLE;
    if (!head->ok)
        return;
    now = key_of(o, head->data);
    if (memcmp(&now, &code->key, sizeof now) || !parts[TABLE].got)
        return;
    code->name = string_of(o, &parts[NAME]);
    code->file = string_of(o, &parts[FILENAME]);
    if (!code->name || !code->file ||
        linetable_decode(linetable_format_of(o->version), parts[TABLE].bytes + o->bytes_data,
                         parts[TABLE].got - (uint32_t)o->bytes_data, (int)code->key.first_line,
                         &code->lines) < 0) {
        forget(code);
        return;
    }
    note_whose(code);
    code->state = CODE_LOADED;
}

static int load(const struct memory *memory, const struct offsets *o, struct code **codes, size_t n)
{
    uint32_t head_size = code_head_size(o);
    struct fetch *fetches = calloc(n * PARTS, sizeof *fetches);
    _cleanup_free_ struct memory_range *ranges = calloc(n * PARTS, sizeof *ranges);
    _cleanup_free_ uint8_t *heads = calloc(n, head_size);
    int r = -ENOMEM;

    if (fetches && ranges && heads)
        r = fetch_parts(memory, o, codes, n, fetches, ranges);
    if (r == 0) {
        /* the code objects once more: unchanged means that the strings were theirs */
        for (size_t i = 0; i < n; i++)
            ranges[i] =
                (struct memory_range){codes[i]->addr, heads + i * head_size, head_size, false};
        r = memory_read_ranges(memory, ranges, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (r == 0)
            finish(o, codes[i], fetches + i * PARTS, &ranges[i]);
        else
            codes[i]->state = CODE_UNREADABLE;
    }
    for (size_t i = 0; fetches && i < n * PARTS; i++)
        free(fetches[i].bytes);
    free(fetches);
    return r;
}

int code_cache_load(struct code_cache *cache, const struct memory *memory,
                    const struct offsets *offsets)
{
    size_t n = cache->nfresh;

    cache->nfresh = 0;
    if (!n)
        return 0;
    for (size_t i = 0; i < n; i++)
        cache->bytes -= size_of(cache->fresh[i]);
    int r = load(memory, offsets, cache->fresh, n);
    for (size_t i = 0; i < n; i++)
        cache->bytes += size_of(cache->fresh[i]);
    return r;
}
