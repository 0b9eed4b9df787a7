/* Samples are counted in `now`, the slice that isn't closed: a cell for each lane (a thread, and a
 * kind of sample) and node. A closed slice is its cells behind each other, by lane and node, as
 * varints of differences: 6 to 10 bytes a cell. Old slices are merged, and the oldest dropped. When
 * there is no room for another node, or thread, those that no slice has any more are given up;
 * where that doesn't help a stack ends in [other]. */
#include "fs/profile/store.h"

#include "agent/base/clock.h"
#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <stdio.h>

/* Thread 0 stands for those that have no line of their own. */
#define OTHER_THREADS 0
/* The current slice is closed early when it has so many cells. */
#define CELLS_MAX 65536u
/* Nodes that are kept for [other]. */
#define NODES_KEPT (STORE_NODES_MAX / 16)
/* ns between two tries to give up nodes or threads. */
#define TIDY_EVERY (60 * STORE_SLICE)

struct cell {
    uint32_t lane, node;
    int64_t weight;
    uint64_t count;
};

struct slice {
    uint64_t from, to;
    uint8_t *bytes;
    size_t size;
};

struct thread {
    pid_t tid;
    char name[64];
    uint64_t seen; /* when, last */
};

struct recent {
    uint64_t when;
    int64_t weight;
    uint32_t node, lane;
};

struct mark {
    char name[STORE_MARK_NAME_MAX + 1];
    uint64_t when;
};

struct store {
    _Atomic unsigned references;
    pthread_mutex_t lock; /* for all below */
    pid_t pid;
    struct store_budget *budget;
    size_t charged; /* bytes of it */
    struct trie trie;
    struct cell *cells; /* of the current slice */
    size_t ncells, cells_alloc;
    struct index by_cell;
    uint64_t now_from, now_to; /* the current slice; 0: there is none */
    struct slice *slices;      /* by time */
    size_t nslices, slices_alloc, slices_bytes;
    struct thread *threads;
    size_t nthreads, threads_alloc;
    struct index by_tid;
    struct recent *recent; /* a ring once it is full; next is the oldest */
    size_t nrecent, recent_alloc, next;
    struct mark marks[STORE_MARKS_MAX];
    size_t nmarks;
    uint64_t tidied, period;
    uint64_t cleared;                /* samples from before are not taken */
    uint64_t epoch;                  /* of the nodes' numbers */
    struct store_stats stats;        /* its counts */
    const struct store_relay *relay; /* NULL: samples are kept here */
};

static uint32_t lane_of(uint32_t thread, enum sample_kind kind, bool gil)
{
    return thread << 4 | (uint32_t)kind << 1 | gil;
}
static uint32_t lane_thread(uint32_t lane) { return lane >> 4; }
static enum sample_kind lane_kind(uint32_t lane) { return lane >> 1 & 7; }
static bool lane_gil(uint32_t lane) { return lane & 1; }

/* Whether a view of this mode has samples of this lane. */
static bool mode_has(enum profile_mode mode, uint32_t lane)
{
    switch (lane_kind(lane)) {
    case SAMPLE_CPU:
        return mode == MODE_CPU || mode == MODE_WALL ||
               mode == (lane_gil(lane) ? MODE_GIL : MODE_NOGIL);
    case SAMPLE_OFF: return mode == MODE_OFF || mode == MODE_WALL;
    case SAMPLE_PREEMPTED: return mode == MODE_WALL;
    case SAMPLE_FAULT: return mode == MODE_FAULTS;
    case SAMPLE_ALLOC: return mode == MODE_ALLOC;
    case SAMPLE_HEAP: return mode == MODE_HEAP;
    case SAMPLE_KINDS: break;
    }
    return false;
}

/* LEB128 */
static uint8_t *put(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static const uint8_t *get(const uint8_t *at, uint64_t *value)
{
    unsigned shift = 0;

    *value = 0;
    for (; *at & 0x80; shift += 7)
        *value |= (uint64_t)(*at++ & 0x7f) << shift;
    *value |= (uint64_t)*at++ << shift;
    return at;
}

static uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }
static int64_t unzigzag(uint64_t value) { return (int64_t)(value >> 1 ^ -(value & 1)); }

static int by_lane_and_node(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;

    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The cells of a slice, one after the other. */
struct cells_reader {
    const uint8_t *at, *end;
    struct cell cell;
};

static bool next_cell(struct cells_reader *reader)
{
    uint64_t lane, node, weight;

    if (reader->at >= reader->end)
        return false;
    reader->at = get(reader->at, &lane);
    reader->at = get(reader->at, &node);
    reader->at = get(reader->at, &weight);
    reader->at = get(reader->at, &reader->cell.count);
    reader->cell.node = (lane ? 0 : reader->cell.node) + (uint32_t)node;
    reader->cell.lane += (uint32_t)lane;
    reader->cell.weight = unzigzag(weight);
    return true;
}

static struct cells_reader read_cells(const struct slice *slice)
{
    return (struct cells_reader){.at = slice->bytes, .end = slice->bytes + slice->size};
}

/* Sorts cells, adds up those that are twice, and writes them. -ENOMEM. */
static int pack_cells(struct cell *cells, size_t n, uint8_t **bytes, size_t *size)
{
    uint32_t lane = 0, node = 0;

    if (n)
        array_sort(cells, n, sizeof *cells, by_lane_and_node);
    _cleanup_free_ uint8_t *packed = malloc(n * (5 + 5 + 10 + 10) + 1);
    if (!packed)
        return -ENOMEM;
    uint8_t *at = packed;
    for (size_t i = 0; i < n; i++) {
        struct cell sum = cells[i];
        while (i + 1 < n && !by_lane_and_node(&sum, &cells[i + 1])) {
            sum.weight += cells[++i].weight;
            sum.count += cells[i].count;
        }
        if (sum.lane != lane)
            node = 0;
        at = put(at, sum.lane - lane);
        at = put(at, sum.node - node);
        at = put(at, zigzag(sum.weight));
        at = put(at, sum.count);
        lane = sum.lane;
        node = sum.node;
    }
    *size = (size_t)(at - packed);
    *bytes = malloc(*size + 1);
    if (!*bytes)
        return -ENOMEM;
    memcpy(*bytes, packed, *size);
    return 0;
}

static size_t bytes_of(const struct store *store)
{
    return sizeof *store + trie_bytes(&store->trie) + store->slices_bytes +
           store->slices_alloc * sizeof *store->slices + store->cells_alloc * sizeof *store->cells +
           index_bytes(&store->by_cell) + store->threads_alloc * sizeof *store->threads +
           index_bytes(&store->by_tid) + store->recent_alloc * sizeof *store->recent;
}

static void charge(struct store *store)
{
    size_t bytes = bytes_of(store);

    atomic_fetch_add(&store->budget->used, bytes - store->charged); /* modulo 2^64 */
    store->charged = bytes;
}

static void drop_slices(struct store *store, size_t n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n; i++) {
        store->slices_bytes -= store->slices[i].size;
        free(store->slices[i].bytes);
    }
    store->nslices -= n;
    memmove(store->slices, store->slices + n, store->nslices * sizeof *store->slices);
}

/* Whether a mark lies inside of this time: then what is before it stays apart. */
static bool has_mark(const struct store *store, uint64_t from, uint64_t to)
{
    for (size_t i = 0; i < store->nmarks; i++)
        if (store->marks[i].when > from && store->marks[i].when < to)
            return true;
    return false;
}

/* Makes one slice of some that follow each other. -ENOMEM: they stay as they are. */
static int join(struct store *store, size_t first, size_t n)
{
    struct slice *slices = store->slices + first, joined = slices[0];
    _cleanup_free_ struct cell *cells = NULL;
    size_t ncells = 0, alloc = 0;

    for (size_t i = 0; i < n; i++)
        for (struct cells_reader reader = read_cells(&slices[i]); next_cell(&reader);) {
            if (ARRAY_GROW(cells, alloc, ncells + 1) < 0)
                return -ENOMEM;
            cells[ncells++] = reader.cell;
        }
    int error = pack_cells(cells, ncells, &joined.bytes, &joined.size);
    if (error)
        return error;
    joined.to = slices[n - 1].to;
    for (size_t i = 0; i < n; i++) {
        store->slices_bytes -= slices[i].size;
        free(slices[i].bytes);
    }
    slices[0] = joined;
    store->slices_bytes += joined.size;
    store->nslices -= n - 1;
    memmove(slices + 1, slices + n, (store->nslices - first - 1) * sizeof *slices);
    return 0;
}

/* How long slices are that are so old. */
static uint64_t grain(uint64_t age)
{
    return age > STORE_OLDEST ? STORE_SLICE_OLDEST
           : age > STORE_OLD  ? STORE_SLICE_OLD
                              : STORE_SLICE;
}

/* Merges what has got old, drops what is too old. */
static void age(struct store *store, uint64_t now)
{
    size_t drop = 0;

    while (drop < store->nslices && store->slices[drop].to + STORE_KEPT < now)
        drop++;
    drop_slices(store, drop);
    for (size_t i = 0; i < store->nslices; i++) {
        uint64_t from = store->slices[i].from, length = grain(now - store->slices[i].to);
        uint64_t end = (from / length + 1) * length;
        size_t n = 1;
        if (store->slices[i].to > now || length == STORE_SLICE)
            break;
        while (i + n < store->nslices && store->slices[i + n].to <= end &&
               grain(now - end) == length && !has_mark(store, from, store->slices[i + n].to))
            n++;
        if (n > 1 && join(store, i, n) < 0)
            break;
    }
}

/* Drops slices until the rest fits. */
static void make_room(struct store *store)
{
    charge(store);
    while (store->nslices && (bytes_of(store) > STORE_BYTES_MAX ||
                              atomic_load(&store->budget->used) > STORE_BYTES_ALL)) {
        drop_slices(store, 1);
        store->stats.dropped_slices++;
        charge(store);
    }
}

/* Closes the current slice at this moment, or at its end if that is earlier. -ENOMEM: it goes on.
 */
static int close_slice(struct store *store, uint64_t at)
{
    struct slice slice = {.from = store->now_from, .to = at < store->now_to ? at : store->now_to};

    if (!store->now_to)
        return 0;
    if (store->ncells) {
        if (ARRAY_GROW(store->slices, store->slices_alloc, store->nslices + 1) < 0 ||
            pack_cells(store->cells, store->ncells, &slice.bytes, &slice.size) < 0)
            return -ENOMEM;
        store->slices[store->nslices++] = slice;
        store->slices_bytes += slice.size;
    }
    store->ncells = 0;
    index_clear(&store->by_cell);
    if (slice.from / STORE_SLICE_OLD != at / STORE_SLICE_OLD)
        age(store, at);
    store->now_from = store->now_to = 0;
    make_room(store);
    return 0;
}

/* Gives up the single samples that no slice has any more; the others get new numbers. */
static void keep_recent(struct store *store, const uint32_t *nodes, const uint32_t *threads)
{
    size_t room = store->nrecent, n = 0;
    struct recent *kept = room ? calloc(room, sizeof *kept) : NULL;

    for (size_t i = 0; kept && i < store->nrecent; i++) {
        struct recent recent = store->recent[(store->next + i) % store->nrecent];
        if (!nodes[recent.node])
            continue;
        recent.node = nodes[recent.node];
        recent.lane = threads[lane_thread(recent.lane)] << 4 | (recent.lane & 15);
        kept[n++] = recent;
    }
    free(store->recent);
    store->recent = kept;
    store->recent_alloc = kept ? room : 0;
    store->nrecent = n;
    store->next = 0;
}

/* Gives up nodes and threads that nothing has any more; threads that weren't seen for ten minutes
 * become "others". At most once a minute. */
static bool tidy(struct store *store, uint64_t now)
{
    if (store->tidied && now - store->tidied < TIDY_EVERY)
        return false;
    store->tidied = now;
    if (close_slice(store, now) < 0)
        return false;

    _cleanup_free_ uint32_t *nodes = calloc(store->trie.nnodes, sizeof *nodes);
    _cleanup_free_ uint32_t *threads = calloc(store->nthreads, sizeof *threads);
    if (!nodes || !threads)
        return false;
    for (size_t i = 0; i < store->nslices; i++)
        for (struct cells_reader reader = read_cells(&store->slices[i]); next_cell(&reader);)
            nodes[reader.cell.node] = 1;
    store->epoch++;
    uint32_t other;
    if (trie_find(&store->trie, TRIE_ROOT, STORE_OTHER, &other))
        nodes[other] = 1;
    if (trie_keep(&store->trie, nodes) < 0)
        return false;

    uint32_t kept = 1;
    index_clear(&store->by_tid);
    for (size_t i = 1; i < store->nthreads; i++) {
        struct thread thread = store->threads[i];
        if (thread.seen + STORE_OLD < now ||
            index_add(&store->by_tid, (uint64_t)thread.tid, kept) < 0)
            continue;
        store->threads[kept] = thread;
        threads[i] = kept++;
    }
    store->nthreads = kept;
    keep_recent(store, nodes, threads);
    for (size_t i = 0; i < store->nslices; i++) {
        struct slice *slice = &store->slices[i];
        _cleanup_free_ struct cell *cells = NULL;
        size_t ncells = 0, alloc = 0;
        bool fits = true;
        for (struct cells_reader reader = read_cells(slice); fits && next_cell(&reader);) {
            struct cell cell = reader.cell;
            cell.node = nodes[cell.node];
            cell.lane = threads[lane_thread(cell.lane)] << 4 | (cell.lane & 15);
            fits = ARRAY_GROW(cells, alloc, ncells + 1) >= 0;
            if (fits)
                cells[ncells++] = cell;
        }
        uint8_t *bytes = NULL;
        size_t size = 0;
        if (fits && pack_cells(cells, ncells, &bytes, &size) < 0)
            fits = false;
        /* The slice's numbers mean nothing any more. */
        store->slices_bytes -= slice->size;
        free(slice->bytes);
        slice->bytes = bytes;
        slice->size = fits ? size : 0;
        store->slices_bytes += slice->size;
        store->stats.dropped_slices += !fits;
    }
    return true;
}

static uint32_t thread_number(struct store *store, pid_t tid, uint64_t now)
{
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        size_t step = 0;
        uint32_t number;
        while (index_next(&store->by_tid, (uint64_t)tid, &step, &number))
            if (store->threads[number].tid == tid)
                return number;
        if (store->nthreads < STORE_THREADS_MAX)
            break;
        if (!tidy(store, now))
            return OTHER_THREADS;
    }
    if (store->nthreads >= STORE_THREADS_MAX ||
        ARRAY_GROW(store->threads, store->threads_alloc, store->nthreads + 1) < 0 ||
        index_add(&store->by_tid, (uint64_t)tid, (uint32_t)store->nthreads) < 0)
        return OTHER_THREADS;
    store->threads[store->nthreads] = (struct thread){.tid = tid};
    return (uint32_t)store->nthreads++;
}

/* Goes on to a frame inside of a node. -ENOSPC: there is no room for more; -ENOMEM. */
static int child(struct store *store, uint32_t frame, uint32_t *node)
{
    if (trie_find(&store->trie, *node, frame, node))
        return 0;
    if (store->trie.nnodes >= STORE_NODES_MAX - NODES_KEPT)
        return -ENOSPC;
    return trie_child(&store->trie, *node, frame, node);
}

/* The node of a stack: of its outermost frames and [other] where there is no room for more of them:
 * then 1. -ENOMEM. */
static int node_of(struct store *store, const struct sample *sample, uint32_t *out)
{
    size_t n = sample->n < STORE_DEPTH_MAX ? sample->n : STORE_DEPTH_MAX;
    bool cut = n < sample->n;
    uint32_t node = TRIE_ROOT;
    int error = 0;

    for (size_t i = 0; !error && i < n; i++)
        error = child(store, sample->frames[i], &node);
    if (!error && sample->torn && !cut)
        error = child(store, STORE_TORN, &node);
    if (!error && !sample->n && !sample->torn)
        error = child(store, STORE_NO_STACK, &node);
    if (!error && !cut) {
        *out = node;
        return 0;
    }
    if (error == -ENOMEM)
        return error;
    store->stats.folded++;
    /* Where not even that fits, [other] of what is outside of it: the root always has one. */
    while (trie_child(&store->trie, node, STORE_OTHER, out) < 0 && node != TRIE_ROOT)
        node = store->trie.nodes[node].parent;
    return 1;
}

static bool is_placed(const struct store *store, const struct sample *sample)
{
    return sample->place && sample->place->epoch == store->epoch;
}

/* Finds the place of a sample's stack, and remembers where that is. */
static int place(struct store *store, const struct sample *sample, uint32_t *out)
{
    if (is_placed(store, sample)) {
        *out = sample->place->node;
        return 0;
    }
    int r = node_of(store, sample, out);
    if (r == 0 && sample->place)
        *sample->place = (struct store_place){store->epoch, *out};
    return r < 0 ? r : 0;
}

static int count(struct store *store, uint32_t lane, uint32_t node, const struct sample *sample)
{
    uint64_t hash = hash_add(1, (uint64_t)lane << 32 | node);
    struct cell *cell = NULL;
    size_t step = 0;
    uint32_t i;

    while (!cell && index_next(&store->by_cell, hash, &step, &i))
        if (store->cells[i].lane == lane && store->cells[i].node == node)
            cell = &store->cells[i];
    if (!cell) {
        if (ARRAY_GROW(store->cells, store->cells_alloc, store->ncells + 1) < 0 ||
            index_add(&store->by_cell, hash, (uint32_t)store->ncells) < 0)
            return -ENOMEM;
        cell = &store->cells[store->ncells++];
        *cell = (struct cell){.lane = lane, .node = node};
    }
    cell->weight += sample->weight;
    cell->count += sample->count ? sample->count : 1;
    return 0;
}

/* Keeps the sample as such, in place of the oldest one. */
static void keep(struct store *store, uint32_t lane, uint32_t node, const struct sample *sample)
{
    struct recent recent = {sample->when, sample->weight, node, lane};

    if (store->nrecent < STORE_RECENT_MAX &&
        ARRAY_GROW(store->recent, store->recent_alloc, store->nrecent + 1) >= 0) {
        store->recent[store->nrecent++] = recent;
        return;
    }
    if (!store->nrecent)
        return;
    store->recent[store->next] = recent;
    store->next = (store->next + 1) % store->nrecent;
}

static int add(struct store *store, const struct sample *sample)
{
    uint32_t node;

    for (size_t i = 0; i < sample->n && !is_placed(store, sample); i++)
        if (sample->frames[i] >= store->trie.nframes)
            return -EINVAL;
    if ((store->now_to && sample->when >= store->now_to) || store->ncells >= CELLS_MAX)
        close_slice(store, sample->when);
    if (store->trie.nnodes >= STORE_NODES_MAX - NODES_KEPT - STORE_DEPTH_MAX)
        tidy(store, sample->when);
    uint32_t thread = thread_number(store, sample->tid, sample->when);
    if (!store->now_to) {
        store->now_from = sample->when;
        store->now_to = (sample->when / STORE_SLICE + 1) * STORE_SLICE;
        store->stats.first = store->stats.first ? store->stats.first : sample->when;
    }
    int error = place(store, sample, &node);
    uint32_t lane = lane_of(thread, sample->kind, sample->gil);
    if (!error)
        error = count(store, lane, node, sample);
    if (error)
        return error;
    store->threads[thread].seen = sample->when;
    keep(store, lane, node, sample);
    store->stats.samples += sample->count ? sample->count : 1;
    store->stats.torn += sample->torn;
    store->stats.no_stack += !sample->n && !sample->torn;
    if (sample->when > store->stats.last)
        store->stats.last = sample->when;
    return 0;
}

int store_add(struct store *store, const struct sample *sample)
{
    _guard_mutex_(&store->lock);
    if (store->relay) {
        thread_number(store, sample->tid, sample->when);
        store->relay->sample(store->relay->arg, sample);
        return 0;
    }
    int error = sample->when < store->cleared ? 0 : add(store, sample);

    store->stats.lost += error != 0;
    return error;
}

int store_new(pid_t pid, struct store_budget *budget, struct store **out)
{
    static const struct profile_frame always[] = {
        [STORE_OTHER] = {PROFILE_WORD, "[other]", "", 0, 0},
        [STORE_TORN] = {PROFILE_WORD, "?? (torn)", "", 0, 0},
        [STORE_NO_STACK] = {PROFILE_WORD, "[no stack]", "", 0, 0},
    };
    struct store *store = calloc(1, sizeof *store);
    uint32_t id, node;

    if (!store)
        return -ENOMEM;
    store->references = store->epoch = 1;
    store->pid = pid;
    store->budget = budget;
    pthread_mutex_init(&store->lock, NULL);
    int error = trie_init(&store->trie, STORE_NODES_MAX, STORE_FRAMES_MAX);
    store->trie.max_names = STORE_NAMES_MAX;
    for (size_t i = 0; !error && i < ARRAY_SIZE(always); i++)
        error = trie_frame(&store->trie, &always[i], &id);
    if (!error)
        error = trie_child(&store->trie, TRIE_ROOT, STORE_OTHER, &node);
    if (!error)
        error = ARRAY_GROW(store->threads, store->threads_alloc, 1);
    if (error) {
        store_unref(store);
        return error;
    }
    store->nthreads = 1;
    charge(store);
    *out = store;
    return 0;
}

struct store *store_ref(struct store *store)
{
    if (store)
        atomic_fetch_add(&store->references, 1);
    return store;
}

void store_unref(struct store *store)
{
    if (!store || atomic_fetch_sub(&store->references, 1) > 1)
        return;
    drop_slices(store, store->nslices);
    atomic_fetch_sub(&store->budget->used, store->charged);
    trie_deinit(&store->trie);
    free(store->slices);
    free(store->cells);
    free(store->threads);
    free(store->recent);
    index_clear(&store->by_cell);
    index_clear(&store->by_tid);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

int store_intern(struct store *store, const struct profile_frame *frame, uint32_t *id)
{
    _guard_mutex_(&store->lock);
    size_t known = store->trie.nframes;
    int error = trie_frame(&store->trie, frame, id);

    if (error == 0 && *id == known && store->relay)
        store->relay->frame(store->relay->arg, *id, frame);
    if (error != -ENOSPC)
        return error;
    *id = STORE_OTHER;
    return 0;
}

void store_lose(struct store *store, uint64_t n)
{
    _guard_mutex_(&store->lock);
    store->stats.lost += n;
    if (store->relay && n)
        store->relay->lose(store->relay->arg, n);
}

void store_relay(struct store *store, const struct store_relay *relay)
{
    _guard_mutex_(&store->lock);
    store->relay = relay;
}

void store_period(struct store *store, uint64_t period)
{
    _guard_mutex_(&store->lock);
    store->period = period;
}

void store_thread_name(struct store *store, pid_t tid, const char *name)
{
    _guard_mutex_(&store->lock);
    uint32_t thread = thread_number(store, tid, store->stats.last);

    if (thread != OTHER_THREADS)
        snprintf(store->threads[thread].name, sizeof store->threads[thread].name, "%s", name);
    if (thread != OTHER_THREADS && !store->threads[thread].seen)
        store->threads[thread].seen = store->stats.last;
    if (store->relay)
        store->relay->thread_name(store->relay->arg, tid, name);
}

int store_mark(struct store *store, const char *name, uint64_t when)
{
    _guard_mutex_(&store->lock);
    size_t i = 0;

    if (strlen(name) > STORE_MARK_NAME_MAX)
        return -ENAMETOOLONG;
    while (i < store->nmarks && strcmp(store->marks[i].name, name))
        i++;
    if (i == STORE_MARKS_MAX)
        return -ENOSPC;
    if (i < store->nmarks) {
        memmove(&store->marks[i], &store->marks[i + 1],
                (store->nmarks - i - 1) * sizeof *store->marks);
        store->nmarks--;
    }
    strcpy(store->marks[store->nmarks].name, name);
    store->marks[store->nmarks++].when = when;
    close_slice(store, when);
    return 0;
}

bool store_marked(struct store *store, const char *name, uint64_t *when)
{
    _guard_mutex_(&store->lock);

    for (size_t i = 0; i < store->nmarks; i++)
        if (!strcmp(store->marks[i].name, name)) {
            *when = store->marks[i].when;
            return true;
        }
    return false;
}

int store_marks(struct store *store, int (*each)(void *arg, const char *name, uint64_t when),
                void *arg)
{
    _guard_mutex_(&store->lock);
    int error = 0;

    for (size_t i = 0; !error && i < store->nmarks; i++)
        error = each(arg, store->marks[i].name, store->marks[i].when);
    return error;
}

static int by_tid(const void *a, const void *b)
{
    const struct thread *x = a, *y = b;

    return (x->tid > y->tid) - (x->tid < y->tid);
}

bool store_thread_named(struct store *store, pid_t tid)
{
    _guard_mutex_(&store->lock);
    uint32_t thread = thread_number(store, tid, store->stats.last);

    return *store->threads[thread].name;
}

int store_threads(struct store *store, int (*each)(void *arg, pid_t tid, const char *name),
                  void *arg)
{
    struct thread threads[STORE_THREADS_MAX];
    int error = 0;

    pthread_mutex_lock(&store->lock);
    size_t n = store->nthreads - 1;
    memcpy(threads, store->threads + 1, n * sizeof *threads);
    pthread_mutex_unlock(&store->lock);
    array_sort(threads, n, sizeof *threads, by_tid);
    for (size_t i = 0; !error && i < n; i++)
        error = each(arg, threads[i].tid, threads[i].name);
    return error;
}

void store_clear(struct store *store, uint64_t now)
{
    _guard_mutex_(&store->lock);
    uint32_t node;

    store->cleared = now;
    drop_slices(store, store->nslices);
    store->ncells = store->nrecent = store->next = store->nmarks = 0;
    store->now_from = store->now_to = 0;
    index_clear(&store->by_cell);
    trie_clear(&store->trie);
    store->epoch++;
    trie_child(&store->trie, TRIE_ROOT, STORE_OTHER, &node);
    store->stats = (struct store_stats){0};
    charge(store);
}

/* What takes a store's numbers to those of a sum; 0: not yet, else the number + 1. */
struct into {
    struct store *store;
    const struct store_view *view;
    struct sum *sum;
    uint32_t *nodes, *frames, *threads;
};

static int into_frame(struct into *into, uint32_t frame, uint32_t *out)
{
    if (!into->frames[frame]) {
        struct profile_frame names = trie_frame_of(&into->store->trie, frame);
        int error = trie_frame(&into->sum->trie, &names, out);
        if (error)
            return error;
        into->frames[frame] = *out + 1;
    }
    *out = into->frames[frame] - 1;
    return 0;
}

static int into_node(struct into *into, uint32_t node, uint32_t *out)
{
    uint32_t path[STORE_DEPTH_MAX + 2], n = 0, frame;
    uint32_t at = node;

    while (!into->nodes[at]) {
        path[n++] = at;
        at = into->store->trie.nodes[at].parent;
    }
    *out = into->nodes[at] - 1;
    while (n) {
        at = path[--n];
        int error = into_frame(into, into->store->trie.nodes[at].frame, &frame);
        if (!error)
            error = trie_child(&into->sum->trie, *out, frame, out);
        if (error && error != -ENOSPC)
            return error;
        into->nodes[at] = *out + 1;
    }
    return 0;
}

static int into_thread(struct into *into, uint32_t thread, uint32_t *out)
{
    if (!into->threads[thread]) {
        struct sum_thread line = {.pid = into->store->pid, .tid = into->store->threads[thread].tid};
        snprintf(line.name, sizeof line.name, "%s", into->store->threads[thread].name);
        int error = sum_thread(into->sum, &line, out);
        if (error)
            return error;
        into->threads[thread] = *out + 1;
    }
    *out = into->threads[thread] - 1;
    return 0;
}

static bool view_has(const struct into *into, uint32_t lane)
{
    return mode_has(into->view->mode, lane) &&
           (!into->view->tid || into->store->threads[lane_thread(lane)].tid == into->view->tid);
}

static int into_moment(struct into *into, struct sum_moment moment)
{
    struct sum *sum = into->sum;

    if (ARRAY_GROW(sum->moments, sum->moments_alloc, sum->nmoments + 1) < 0)
        return -ENOMEM;
    sum->moments[sum->nmoments++] = moment;
    return 0;
}

/* Adds one cell to a sum; when: 0, or the moment that it is shown at. */
static int into_cell(struct into *into, const struct cell *cell, uint64_t when)
{
    uint32_t thread, node;

    if (!view_has(into, cell->lane))
        return 0;
    int error = into_thread(into, lane_thread(cell->lane), &thread);
    if (!error)
        error = into_node(into, cell->node, &node);
    if (!error)
        error = sum_add(into->sum, thread, node, cell->weight, 0, cell->count);
    if (!error && when)
        error =
            into_moment(into, (struct sum_moment){when, thread, node, cell->weight, cell->count});
    return error;
}

/* A slice belongs to the part that it begins in: no sample is in two. */
static bool begins_in(const struct store_view *view, uint64_t when)
{
    return when >= view->from && (!view->to || when < view->to);
}

static void widen(struct sum *sum, const struct store_view *view, uint64_t from, uint64_t to)
{
    from = from > view->from ? from : view->from;
    to = view->to && view->to < to ? view->to : to;
    if (!sum->from || from < sum->from)
        sum->from = from;
    if (to > sum->to)
        sum->to = to;
}

/* Everything before this has lost its single samples. */
static uint64_t recent_from(const struct store *store)
{
    if (store->nrecent < STORE_RECENT_MAX)
        return 0;
    return store->recent[store->next].when;
}

static int into_slices(struct into *into)
{
    struct store *store = into->store;
    const struct store_view *view = into->view;
    uint64_t singly = view->moments ? recent_from(store) : 0;
    int error = 0;

    for (size_t i = 0; !error && i < store->nslices; i++) {
        const struct slice *slice = &store->slices[i];
        uint64_t when = slice->from;
        if (!begins_in(view, slice->from))
            continue;
        for (struct cells_reader reader = read_cells(slice); !error && next_cell(&reader);)
            error = into_cell(into, &reader.cell, slice->from < singly ? when++ : 0);
        widen(into->sum, view, slice->from, slice->to);
    }
    if (store->now_to && begins_in(view, store->now_from)) {
        for (size_t i = 0; !error && i < store->ncells; i++)
            error = into_cell(into, &store->cells[i],
                              store->now_from < singly ? store->now_from + i : 0);
        widen(into->sum, view, store->now_from, store->stats.last);
    }
    for (size_t i = 0; !error && view->moments && i < store->nrecent; i++) {
        const struct recent *recent = &store->recent[(store->next + i) % store->nrecent];
        uint32_t thread, node;
        if (recent->when < singly || !begins_in(view, recent->when) ||
            !view_has(into, recent->lane))
            continue;
        error = into_thread(into, lane_thread(recent->lane), &thread);
        if (!error)
            error = into_node(into, recent->node, &node);
        if (!error)
            error = into_moment(into,
                                (struct sum_moment){recent->when, thread, node, recent->weight, 1});
    }
    return error;
}

static int by_when(const void *a, const void *b)
{
    const struct sum_moment *x = a, *y = b;

    return x->when < y->when ? -1 : x->when > y->when;
}

int store_sum(struct store *store, const struct store_view *view, struct sum *sum)
{
    _guard_mutex_(&store->lock);
    _cleanup_free_ uint32_t *nodes = calloc(store->trie.nnodes, sizeof *nodes);
    _cleanup_free_ uint32_t *frames = calloc(store->trie.nframes, sizeof *frames);
    _cleanup_free_ uint32_t *threads = calloc(store->nthreads, sizeof *threads);
    struct into into = {store, view, sum, nodes, frames, threads};

    if (!nodes || !frames || !threads)
        return -ENOMEM;
    nodes[TRIE_ROOT] = TRIE_ROOT + 1;
    sum->wall_zero = realtime_ns() - monotonic_ns();
    sum->period = store->period;
    int error = into_slices(&into);
    if (!error && sum->nmoments)
        array_sort(sum->moments, sum->nmoments, sizeof *sum->moments, by_when);
    return error;
}

int store_recent(struct store *store, struct store_recent **out, size_t *n)
{
    _guard_mutex_(&store->lock);
    struct store_recent *rows = calloc(store->nrecent + 1, sizeof *rows);

    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < store->nrecent; i++) {
        const struct recent *recent = &store->recent[(store->next + i) % store->nrecent];
        rows[i] = (struct store_recent){
            .when = recent->when,
            .weight = recent->weight,
            .node = recent->node,
            .tid = store->threads[lane_thread(recent->lane)].tid,
            .kind = lane_kind(recent->lane),
            .gil = lane_gil(recent->lane),
        };
    }
    *out = rows;
    *n = store->nrecent;
    return 0;
}

int store_stacks(struct store *store,
                 int (*each)(void *arg, uint32_t node, size_t depth, struct profile_frame frame),
                 void *arg)
{
    _guard_mutex_(&store->lock);
    _cleanup_free_ uint32_t *ends = calloc(store->trie.nnodes, sizeof *ends);
    int error = ends ? 0 : -ENOMEM;

    for (size_t i = 0; !error && i < store->nrecent; i++)
        ends[store->recent[i].node] = 1;
    for (uint32_t node = 1; !error && node < store->trie.nnodes; node++) {
        size_t depth = 0;
        if (!ends[node])
            continue;
        for (uint32_t at = node; !error && at; at = store->trie.nodes[at].parent)
            error =
                each(arg, node, depth++, trie_frame_of(&store->trie, store->trie.nodes[at].frame));
    }
    return error;
}

void store_stats(struct store *store, struct store_stats *out)
{
    _guard_mutex_(&store->lock);

    *out = store->stats;
    out->nodes = store->trie.nnodes;
    out->frames = store->trie.nframes;
    out->threads = store->nthreads - 1;
    out->slices = store->nslices;
    out->bytes = bytes_of(store);
    if (store->nslices)
        out->first = store->slices[0].from;
}
