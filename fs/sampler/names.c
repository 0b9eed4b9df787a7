#include "fs/sampler/names.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"
#include "fs/remote/frames/names.h"
#include "fs/remote/native/native.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEAD_MAX 512 /* bytes of a code object */

struct named_place {
    uint64_t at; /* the code object, or the pc */
    int32_t lasti;
    enum { PLACE_PYTHON, PLACE_RETURN, PLACE_EXACT } kind;
    uint32_t id;
    bool entered;
    uint64_t key;  /* of the code object that it was */
    uint64_t seen; /* CLOCK_MONOTONIC, ns: when that was looked up */
};

struct sampler_names {
    struct target *target;
    struct store *store;
    pthread_mutex_t lock; /* taken after the target's */
    struct named_place *places;
    size_t n, alloc;
    struct index by_place;
    uint8_t of_loop[STORE_FRAMES_MAX / 8 + 1]; /* a bit for each frame */
};

int sampler_names_new(struct target *target, struct store *store, struct sampler_names **out)
{
    struct sampler_names *names = calloc(1, sizeof *names);

    if (!names)
        return -ENOMEM;
    names->target = target;
    names->store = store;
    pthread_mutex_init(&names->lock, NULL);
    *out = names;
    return 0;
}

void sampler_names_free(struct sampler_names *names)
{
    if (!names)
        return;
    free(names->places);
    index_clear(&names->by_place);
    pthread_mutex_destroy(&names->lock);
    free(names);
}

static uint64_t hash_place(uint64_t at, int32_t lasti, int kind)
{
    return hash_add(hash_add((uint64_t)kind + 1, at), (uint32_t)lasti);
}

/* NULL: not known. The caller holds lock, here as below. */
static struct named_place *find(struct sampler_names *names, uint64_t at, int32_t lasti, int kind)
{
    uint64_t hash = hash_place(at, lasti, kind);
    size_t step = 0;
    uint32_t i;

    while (index_next(&names->by_place, hash, &step, &i)) {
        struct named_place *place = &names->places[i];
        if (place->at == at && place->lasti == lasti && (int)place->kind == kind)
            return place;
    }
    return NULL;
}

/* A place that is not known yet; NULL: no memory. */
static struct named_place *add(struct sampler_names *names, uint64_t at, int32_t lasti, int kind)
{
    if (names->n >= SAMPLER_NAMES_MAX) {
        names->n = 0;
        index_clear(&names->by_place);
    }
    if (ARRAY_GROW(names->places, names->alloc, names->n + 1) < 0 ||
        index_add(&names->by_place, hash_place(at, lasti, kind), (uint32_t)names->n) < 0)
        return NULL;
    struct named_place *place = &names->places[names->n++];
    *place = (struct named_place){.at = at, .lasti = lasti, .kind = (unsigned)kind};
    return place;
}

static uint64_t hash_key(const struct code *code)
{
    uint64_t hash = hash_add(1, code->key.filename);

    hash = hash_add(hash, code->key.name);
    hash = hash_add(hash, code->key.linetable);
    return hash_add(hash, (uint64_t)code->key.first_line << 32 | code->key.version);
}

/* A file of those that run an event loop: what calls a task's steps, and what starts that. */
static bool is_loop_file(const char *file)
{
    static const char *const ends[] = {"/asyncio/base_events.py", "/asyncio/events.py",
                                       "/asyncio/runners.py", "/asyncio/unix_events.py",
                                       "/uvloop/__init__.py"};
    size_t n = strlen(file);

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (n >= strlen(ends[i]) && !strcmp(file + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

bool sampler_names_of_loop(struct sampler_names *names, uint32_t id)
{
    _guard_mutex_(&names->lock);
    return id < STORE_FRAMES_MAX && names->of_loop[id / 8] >> id % 8 & 1;
}

static int intern_python(struct sampler_names *names, const struct code *code, int32_t lasti,
                         uint32_t *id)
{
    struct profile_frame frame = {.kind = PROFILE_PYTHON, .func = "?", .file = ""};

    if (code && code->state == CODE_LOADED) {
        int line = linetable_line(&code->lines, lasti);
        frame.func = code->name;
        frame.file = code->file;
        frame.first_line = code->lines.first_line;
        frame.line = line > 0 ? line : 0;
    }
    int error = store_intern(names->store, &frame, id);
    if (!error && *id < STORE_FRAMES_MAX && is_loop_file(frame.file))
        names->of_loop[*id / 8] |= (uint8_t)(1 << *id % 8);
    return error;
}

/* Brings a place up to date. code: NULL or unreadable, it is called "?". */
static int learn(struct sampler_names *names, struct named_place *place, const struct code *code,
                 uint64_t now)
{
    bool known = code && code->state == CODE_LOADED;
    uint64_t key = known ? hash_key(code) : 0;

    if (place->seen && place->key == key) {
        place->seen = now;
        return 0;
    }
    int error = intern_python(names, code, place->lasti, &place->id);
    if (error)
        return error;
    place->entered = !known || place->lasti >= code->first_traceable;
    place->key = key;
    place->seen = now;
    return 0;
}

int sampler_names_raw(struct sampler_names *names, const struct raw_frame *frame, uint32_t *id)
{
    _guard_mutex_(&names->lock);
    struct named_place *place = find(names, frame->code, frame->lasti, PLACE_PYTHON);

    if (!place)
        place = add(names, frame->code, frame->lasti, PLACE_PYTHON);
    if (!place)
        return -ENOMEM;
    int error = learn(names, place, frame->info, monotonic_ns());
    *id = place->id;
    return error;
}

/* The code object as it is now; NULL: there is none. The caller holds target->lock. */
static struct code *read_code(struct target *target, uint64_t addr)
{
    const struct offsets *offsets = &target->runtime.offsets;
    uint8_t head[HEAD_MAX];
    uint32_t size = code_head_size(offsets);

    if (size > sizeof head || memory_read(&target->memory, addr, head, size) < 0)
        return NULL;
    struct code *code = code_cache_find(target->codes, offsets, addr, head);
    if (code && code->state == CODE_NEW &&
        code_cache_load(target->codes, &target->memory, offsets) < 0)
        return NULL;
    return code;
}

static void note_until(const struct named_place *place, uint64_t *until)
{
    uint64_t end = place->seen + SAMPLER_NAMES_FRESH_NS;

    *until = end < *until ? end : *until;
}

int sampler_names_python(struct sampler_names *names, uint64_t code, int32_t lasti,
                         bool of_generator, uint32_t *id, uint64_t *until)
{
    uint64_t now = monotonic_ns();
    int error = 0;
    {
        _guard_mutex_(&names->lock);
        const struct named_place *place = find(names, code, lasti, PLACE_PYTHON);
        if (place && now - place->seen < SAMPLER_NAMES_FRESH_NS) {
            *id = place->id;
            note_until(place, until);
            return place->entered || of_generator ? 0 : -ENOENT;
        }
    }
    pthread_mutex_lock(&names->target->lock);
    code_cache_trim(names->target->codes);
    struct code *found = read_code(names->target, code);
    pthread_mutex_lock(&names->lock);
    struct named_place *place = find(names, code, lasti, PLACE_PYTHON);
    if (!place)
        place = add(names, code, lasti, PLACE_PYTHON);
    error = place ? learn(names, place, found, now) : -ENOMEM;
    if (!error) {
        *id = place->id;
        note_until(place, until);
        error = place->entered || of_generator ? 0 : -ENOENT;
    }
    pthread_mutex_unlock(&names->lock);
    pthread_mutex_unlock(&names->target->lock);
    return error;
}

int sampler_names_native(struct sampler_names *names, uint64_t pc, bool exact, uint32_t *id)
{
    struct native_frame at = {.pc = pc, .exact = exact};
    int kind = exact ? PLACE_EXACT : PLACE_RETURN;
    uint64_t now = monotonic_ns();
    {
        _guard_mutex_(&names->lock);
        const struct named_place *place = find(names, pc, 0, kind);
        if (place && now - place->seen < SAMPLER_NAMES_FRESH_NS) {
            *id = place->id;
            return 0;
        }
    }
    _guard_mutex_(&names->target->lock);
    struct native_symbol symbol;
    char unknown[64];

    native_resolve(names->target->native, &at, &symbol);
    snprintf(unknown, sizeof unknown, "[%s]", *symbol.module ? symbol.module : "native code");
    struct profile_frame frame = {.kind = PROFILE_NATIVE,
                                  .func = symbol.name ? symbol.name : unknown,
                                  .file = symbol.module};
    int error = store_intern(names->store, &frame, id);
    pthread_mutex_lock(&names->lock);
    struct named_place *place = error ? NULL : find(names, pc, 0, kind);
    if (!place && !error)
        place = add(names, pc, 0, kind);
    if (place) {
        place->id = *id;
        place->seen = now;
    }
    pthread_mutex_unlock(&names->lock);
    return error;
}

/* ---- threads ---- */

static void name_by_kernel(struct store *store, pid_t tid)
{
    char name[32];

    if (store_thread_named(store, tid) || proc_read(tid, "comm", name, sizeof name) <= 0)
        return;
    name[strcspn(name, "\n")] = 0;
    for (char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    store_thread_name(store, tid, name);
}

void sampler_names_begin(struct sampler_names *names, uint64_t interp, uint64_t max_age_ns)
{
    struct target *target = names->target;

    names_refresh(target->names, &target->runtime.offsets, interp, max_age_ns);
}

void sampler_names_thread(struct sampler_names *names, uint64_t interp, uint64_t thread, pid_t tid)
{
    struct target *target = names->target;
    const char *name = NULL;

    if (interp)
        name = names_find(target->names, &target->runtime.offsets, interp, thread, tid);
    if (name)
        store_thread_name(names->store, tid, name);
    else
        name_by_kernel(names->store, tid);
}
