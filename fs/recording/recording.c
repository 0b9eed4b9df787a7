#include "fs/recording/recording.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* From one look for an agent in vain, but the first one, to the next: twice as long each time. */
#define LOOK_WAIT_MIN 250000000u
#define LOOK_WAIT_MAX 4000000000u /* ns */
/* So long it is waited for somebody else who looks at the same: that look may hang, in memory that
 * a file system of the target's own has to bring. Then what is held is what there is. */
#define REFRESH_WAIT 1000000000u
#define CHANGE_TRIES 3 /* readings of a record that changes meanwhile */

/* What is held of one table. */
struct held_ring {
    struct ring_reader *reader; /* NULL: none yet, or others are to decode it ... */
    int fd;                     /* ... and this is its file; 0: it isn't kept */
    uint64_t inode;             /* 0: there is none */
    uint64_t size;              /* of the file */
    struct recording_state state;
};

_Static_assert((int)RECORDED_TABLES <= PROTO_RINGS_MAX, "each table has a place in the record");

struct recording {
    atomic_uint refs;
    atomic_bool expected;        /* a look may find an agent that runs ... */
    atomic_bool at_once;         /* ... and is not to be put off */
    struct ring_decoder decoder; /* copy NULL: this process decodes */

    pthread_mutex_t looking; /* guards what is known of the agent; taken before lock */
    struct found_agent agent;
    bool found;                                    /* agent is there, running or not */
    bool looked;                                   /* for it, once already */
    bool told;                                     /* by others, who do that from then on */
    uint64_t look_after, wait;                     /* CLOCK_MONOTONIC, ns */
    struct probe_ring_place seen[PROTO_RINGS_MAX]; /* that have been dealt with */

    pthread_mutex_t lock; /* guards what follows */
    bool running;         /* the agent was, when its record was last read ... */
    bool watching;        /* ... and wanted memory to be watched */
    uint32_t on_crash;    /* ... and did this with crashes: enum crash_mode */
    struct text crash;    /* the stacks when a signal ended it */
    struct held_ring rings[RECORDED_TABLES];
};

int recording_new(struct recording **out)
{
    struct recording *recording = calloc(1, sizeof *recording);
    if (!recording)
        return -ENOMEM;
    atomic_init(&recording->refs, 1);
    pthread_mutex_init(&recording->looking, NULL);
    pthread_mutex_init(&recording->lock, NULL);
    atomic_init(&recording->expected, true);
    *out = recording;
    return 0;
}

struct recording *recording_ref(struct recording *recording)
{
    atomic_fetch_add(&recording->refs, 1);
    return recording;
}

static void let_go(struct held_ring *held)
{
    ring_reader_unref(held->reader);
    if (held->fd > 0)
        close(held->fd);
    held->reader = NULL;
    held->fd = 0;
    held->inode = held->size = 0;
}

void recording_clear(struct recording *recording)
{
    _guard_mutex_(&recording->lock);
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        let_go(&recording->rings[i]);
        recording->rings[i].state = (struct recording_state){0};
    }
    text_deinit(&recording->crash);
}

void recording_unref(struct recording *recording)
{
    if (!recording || atomic_fetch_sub(&recording->refs, 1) > 1)
        return;
    recording_clear(recording);
    pthread_mutex_destroy(&recording->lock);
    pthread_mutex_destroy(&recording->looking);
    free(recording);
}

/* ---- the files ---- */

/* Whether fd, opened with O_PATH, is of the file system that all memfds are in, and bears that
 * inode number: 0, or -EPROTO; -EMFILE, -ENOMEM: that can't be found out now. Asks no server of a
 * file system of the target's own, which could wait for ever. */
static int check_memfd(int fd, uint64_t inode)
{
    struct statx ours, theirs;

    _cleanup_close_ int sample = memfd_create("probefs", MFD_CLOEXEC);
    if (sample < 0 || statx(sample, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &ours) < 0 ||
        statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &theirs) < 0)
        return -errno;
    return theirs.stx_dev_major == ours.stx_dev_major &&
                   theirs.stx_dev_minor == ours.stx_dev_minor && S_ISREG(theirs.stx_mode) &&
                   theirs.stx_ino == inode
               ? 0
               : -EPROTO;
}

/* Opens the file of a descriptor of the target for reading; one of anything else than the memfd
 * that it is said to be is never opened. -EPROTO: it is another file; -ESRCH, -EACCES, -EMFILE. */
static int open_file(const struct target *target, int number, uint64_t inode, int *out)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", target->pid, number);
    _cleanup_close_ int place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0 && errno == ENOENT)
        return target_alive(target) ? -EPROTO : -ESRCH;
    if (place < 0)
        return -errno;
    if (!target_alive(target))
        return -ESRCH; /* and the file is a successor's */
    int r = check_memfd(place, inode);
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "/proc/self/fd/%d", place);
    *out = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return *out < 0 ? -errno : 0;
}

/* Takes a ring in place of the one that was held. Not one of another program that the process
 * executes by now: that is another recording's, and perhaps not for the same eyes. */
static int take_ring(struct recording *recording, const struct target *target, enum recorded table,
                     const struct probe_ring_place *place)
{
    struct held_ring *held = &recording->rings[table];
    struct ring_reader *reader = NULL;
    _cleanup_close_ int fd = -1;
    uint64_t size = 0;

    int r = open_file(target, place->fd, place->inode, &fd);
    if (r == 0 && recording->told)
        r = ring_file_is_safe(fd, &size) && size <= RING_HEADER_SIZE + RING_SIZE_MAX ? 0 : -EPROTO;
    else if (r == 0)
        r = ring_reader_open(fd, &recorded_layouts[table], &reader);
    if (r < 0)
        return r;
    if (!target_same_program(target)) {
        ring_reader_unref(reader);
        return -ESRCH;
    }
    _guard_mutex_(&recording->lock);
    let_go(held);
    held->reader = reader;
    held->inode = place->inode;
    held->size = reader ? ring_reader_size(reader) : size;
    if (recording->told)
        held->fd = steal_fd(fd);
    return 0;
}

static bool is_held(struct recording *recording, enum recorded table, uint64_t inode)
{
    _guard_mutex_(&recording->lock);
    return inode && recording->rings[table].inode == inode;
}

/* ---- the agent's record ---- */

static void note_state(struct recording *recording, enum recorded table,
                       const struct probe_ring_place *place)
{
    bool sound = place->rate > 0 && place->rate <= 1; /* no NaN */

    _guard_mutex_(&recording->lock);
    recording->rings[table].state = (struct recording_state){
        .on = place->on,
        .rate = sound ? place->rate : 0,
        .error = place->error > 0 ? place->error : 0,
    };
}

/* -EAGAIN: the agent was just changing it. What is no ring isn't looked at again
 * until it changes. */
static int take_place(struct recording *recording, const struct target *target, enum recorded table)
{
    const struct found_agent *agent = &recording->agent;
    const struct probe_ring_place *place = &agent->record.rings[table];
    int r = 0;

    if (place->change & 1)
        return -EAGAIN;
    if (agent->record.pid == agent->pid && place->fd >= 0 &&
        !is_held(recording, table, place->inode))
        r = take_ring(recording, target, table, place);
    if (r < 0 && r != -EPROTO)
        return r;
    note_state(recording, table, place);
    recording->seen[table] = *place;
    return r == -EPROTO ? -EAGAIN : 0;
}

/* Deals with what has changed of a record that was just read. -EAGAIN: read it again. */
static int take_changes(struct recording *recording, const struct target *target)
{
    const struct probe_ring_place *places = recording->agent.record.rings;
    int result = 0;

    for (enum recorded table = 0; table < RECORDED_TABLES; table++) {
        if (!memcmp(&places[table], &recording->seen[table], sizeof *places))
            continue;
        int r = take_place(recording, target, table);
        if (r < 0 && r != -EAGAIN)
            return r;
        result = r < 0 ? r : result;
    }
    return result;
}

/* Whether an agent is worth to be looked for now. */
static bool is_due(const struct recording *recording)
{
    return atomic_load(&recording->expected) &&
           (atomic_load(&recording->at_once) || monotonic_ns() >= recording->look_after);
}

/* One is looked for. */
static void note_look(struct recording *recording)
{
    if (atomic_exchange(&recording->at_once, false))
        recording->wait = 0;
    atomic_store(&recording->expected, false);
    if (recording->looked) {
        recording->wait = recording->wait ? recording->wait * 2 : LOOK_WAIT_MIN;
        if (recording->wait > LOOK_WAIT_MAX)
            recording->wait = LOOK_WAIT_MAX;
    }
    recording->looked = true;
    recording->look_after = monotonic_ns() + recording->wait;
    memset(recording->seen, 0, sizeof recording->seen); /* it may be another one's record */
}

/* Walks the target's mappings, which takes a while: not at each occasion. */
static int look_for_agent(struct recording *recording, struct target *target)
{
    if (recording->told || !is_due(recording))
        return recording->found ? 0 : -ENOENT;
    note_look(recording);
    int r = found_agent_find(&target->memory, &recording->agent);
    recording->found = r == 0;
    return r;
}

static bool wants_watches(const struct probe_agent_record *record)
{
    for (size_t i = 0; i < PROTO_WATCHES_MAX; i++)
        if (record->watches[i].id)
            return true;
    return false;
}

/* Reads the record, wherever it is. -ENOENT: there is none; -EAGAIN: it changes. */
static int refresh(struct recording *recording, struct target *target)
{
    int r = -ENOENT;

    if (recording->found) {
        r = found_agent_refresh(&target->memory, &recording->agent);
        if (r == -ENOENT) { /* unloaded */
            recording->found = false;
            atomic_store(&recording->expected, true);
        }
    }
    if (r == -ENOENT || (r == 0 && !recording->agent.running))
        r = look_for_agent(recording, target);
    if (r != -EAGAIN) { /* while the record changes, what was known holds */
        _guard_mutex_(&recording->lock);
        recording->running = r == 0 && recording->agent.running;
        recording->watching = recording->running && wants_watches(&recording->agent.record);
        recording->on_crash = recording->running ? recording->agent.record.on_crash : CRASH_OFF;
    }
    return r == 0 ? take_changes(recording, target) : r;
}

bool recording_due(struct recording *recording)
{
    if (pthread_mutex_trylock(&recording->looking) != 0)
        return true; /* somebody reads it */
    bool due = recording->found || is_due(recording);
    pthread_mutex_unlock(&recording->looking);
    return due;
}

int recording_refresh(struct recording *recording, struct target *target)
{
    const struct timespec t = timespec_of(monotonic_ns() + REFRESH_WAIT);
    int r = -EAGAIN;

    if (pthread_mutex_clocklock(&recording->looking, CLOCK_MONOTONIC, &t) != 0)
        return 0;
    for (int tries = 0; r == -EAGAIN && tries < CHANGE_TRIES; tries++)
        r = refresh(recording, target);
    pthread_mutex_unlock(&recording->looking);
    return r == -ENOENT || r == -EOPNOTSUPP || r == -EAGAIN ? 0 : r;
}

void recording_expect(struct recording *recording, bool at_once)
{
    if (at_once)
        atomic_store(&recording->at_once, true);
    atomic_store(&recording->expected, true);
}

bool recording_wants_agent(struct recording *recording)
{
    if (pthread_mutex_trylock(&recording->looking) != 0)
        return false; /* somebody looks */
    bool wants = !(recording->found && recording->agent.running) && is_due(recording);
    pthread_mutex_unlock(&recording->looking);
    return wants;
}

void recording_tell_agent(struct recording *recording, const struct found_agent *agent)
{
    _guard_mutex_(&recording->looking);
    recording->told = true;
    note_look(recording);
    recording->found = agent != NULL;
    if (agent)
        recording->agent = *agent;
}

/* ---- what is held ---- */

struct ring_reader *recording_ring(struct recording *recording, enum recorded table)
{
    _guard_mutex_(&recording->lock);
    struct ring_reader *reader = recording->rings[table].reader;
    return reader ? ring_reader_ref(reader) : NULL;
}

void recording_decode_by(struct recording *recording, const struct ring_decoder *decoder)
{
    recording->decoder = *decoder;
}

int recording_write_copies(struct recording *recording, const struct ring_ask *asks, size_t n,
                           struct text *answer)
{
    struct ring_position behind[RECORDED_TABLES] = {0};
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        enum recorded table = (enum recorded)asks[i].table;
        struct ring_reader *ring = recording_ring(recording, table);
        r = ring_copy_write(ring, &asks[i], &behind[table], answer);
        ring_reader_unref(ring);
    }
    return r;
}

int recording_copy(struct recording *recording, struct ring_copy *copies, size_t n,
                   struct text *answer)
{
    const struct ring_decoder *decoder = &recording->decoder;
    struct ring_ask asks[RING_COPIES_MAX];

    for (size_t i = 0; i < n; i++)
        copies[i].ask.serial = monotonic_ns();
    if (decoder->copy)
        return decoder->copy(decoder->of, copies, n, answer);
    for (size_t i = 0; i < n; i++)
        asks[i] = copies[i].ask;
    int r = recording_write_copies(recording, asks, n, answer);
    return r < 0 ? r : ring_copies_read(copies, n, answer);
}

int recording_count(struct recording *recording, enum recorded table, struct ring_counts *out,
                    uint64_t *size)
{
    _cleanup_(text_deinit) struct text answer = TEXT_INIT;
    struct ring_copy copy = {.ask = {.table = table}};

    if (!recording_has(recording, table))
        return 0;
    int r = recording_copy(recording, &copy, 1, &answer);
    if (r < 0 || !copy.told.is_there)
        return r;
    *out = copy.told.counts;
    *size = copy.told.size;
    return 1;
}

int recording_pass(struct recording *recording, enum recorded table, uint64_t most,
                   const struct ring_follower *follower, struct ring_counts *counts)
{
    _cleanup_(text_deinit) struct text answer = TEXT_INIT;
    struct ring_copy copy = {.ask = {.table = table}};
    struct ring_position at = {0};
    unsigned pieces = RING_SIZE_MAX / RING_COPY_BYTES;
    int r = recording_has(recording, table) ? recording_copy(recording, &copy, 1, &answer) : 0;

    *counts = copy.told.counts;
    copy.ask.since = copy.told.since;
    copy.ask.most = most;
    copy.told.more = copy.told.is_there;
    while (r == 0 && copy.told.more && pieces-- > 0) {
        text_clear(&answer);
        copy.ask.at = at;
        at.dropped = UINT64_MAX; /* these were never among the others: the counts say so */
        r = recording_copy(recording, &copy, 1, &answer);
        if (r == 0 && copy.told.since == copy.ask.since)
            r = ring_copy_pass(&copy, &at, follower);
    }
    return r;
}

struct scanning {
    int (*each)(void *arg, const struct ring_row *row);
    void *arg;
    bool any;
    int error;
};

static int scan_row(void *arg, const struct ring_row *row)
{
    struct scanning *scanning = arg;

    scanning->any = true;
    return scanning->error ? scanning->error : scanning->each(scanning->arg, row);
}

/* Those before are not without a gap any more. */
static void scan_lost(void *arg, uint64_t count)
{
    struct scanning *scanning = arg;

    if (scanning->any && !scanning->error)
        scanning->error = scanning->each(scanning->arg, NULL);
    scanning->any = false;
}

int recording_scan(struct recording *recording, enum recorded table,
                   int (*each)(void *arg, const struct ring_row *row), void *arg,
                   struct ring_counts *counts)
{
    struct scanning scanning = {.each = each, .arg = arg};
    const struct ring_follower follower = {scan_row, scan_lost, &scanning};

    if (recording->decoder.copy)
        return recording_pass(recording, table, UINT64_MAX, &follower, counts);
    struct ring_reader *ring = recording_ring(recording, table);
    *counts = (struct ring_counts){0};
    int r = ring ? ring_reader_scan(ring, each, arg, counts) : 0;
    ring_reader_unref(ring);
    return r;
}

bool recording_mark(struct recording *recording, enum recorded table, struct ring_mark *out)
{
    const struct held_ring *held = &recording->rings[table];

    _guard_mutex_(&recording->lock);
    out->inode = held->inode;
    return held->fd > 0   ? ring_file_mark(held->fd, out)
           : held->reader ? ring_reader_mark(held->reader, out)
                          : false;
}

bool recording_has(struct recording *recording, enum recorded table)
{
    _guard_mutex_(&recording->lock);
    return recording->rings[table].inode;
}

int recording_ring_file(struct recording *recording, enum recorded table)
{
    _guard_mutex_(&recording->lock);
    int fd = recording->rings[table].fd;
    return fd > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

int recording_take_ring(struct recording *recording, enum recorded table, int fd)
{
    struct ring_reader *reader;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (is_held(recording, table, st.st_ino))
        return 0;
    int r = ring_reader_open(fd, &recorded_layouts[table], &reader);
    if (r < 0)
        return r;
    _guard_mutex_(&recording->lock);
    let_go(&recording->rings[table]);
    recording->rings[table].reader = reader;
    recording->rings[table].inode = st.st_ino;
    recording->rings[table].size = ring_reader_size(reader);
    return 0;
}

bool recording_any(struct recording *recording)
{
    _guard_mutex_(&recording->lock);
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (recording->rings[i].inode)
            return true;
    return false;
}

size_t recording_size(struct recording *recording)
{
    size_t size;

    _guard_mutex_(&recording->lock);
    size = recording->crash.alloc;
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        size += recording->rings[i].size;
    return size;
}

void recording_state(struct recording *recording, enum recorded table, struct recording_state *out)
{
    _guard_mutex_(&recording->lock);
    *out = recording->rings[table].state;
    out->on = out->on && recording->running;
}

bool recording_attached(struct recording *recording)
{
    _guard_mutex_(&recording->lock);
    return recording->running;
}

bool recording_watching(struct recording *recording)
{
    _guard_mutex_(&recording->lock);
    return recording->watching;
}

bool recording_agent(struct recording *recording, struct found_agent *out)
{
    const struct timespec t = timespec_of(monotonic_ns() + REFRESH_WAIT);

    if (!recording_attached(recording) ||
        pthread_mutex_clocklock(&recording->looking, CLOCK_MONOTONIC, &t) != 0)
        return false;
    bool runs = recording->found && recording->agent.running;
    if (runs)
        *out = recording->agent;
    pthread_mutex_unlock(&recording->looking);
    return runs;
}

uint32_t recording_on_crash(struct recording *recording)
{
    _guard_mutex_(&recording->lock);
    return recording->on_crash;
}

void recording_keep_crash(struct recording *recording, struct text *text)
{
    _guard_mutex_(&recording->lock);
    text_deinit(&recording->crash);
    recording->crash = *text;
    *text = TEXT_INIT;
}

void recording_add_crash(struct recording *recording, struct text *out)
{
    _guard_mutex_(&recording->lock);
    text_add(out, recording->crash.data, recording->crash.size);
}
