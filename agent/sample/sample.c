#include "agent/sample/sample.h"

#include "agent/base/clock.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/signal_stack.h"
#include "agent/cpython/struct_layout.h"
#include "agent/watch/trap.h"
#include "agent/wire/record.h"
#include "agent/wire/refuse.h"
#include "agent/wire/trap_samples.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LEAVE_NS 100000000ull /* until nobody is in the handler any more */
#define GONE_NS 1000000000ull /* a daemon that is killed takes so long to end, at most */
#define OWNED_BY_GENERATOR 1
#define FRAME_MAX 256 /* bytes of a frame that are looked at, at most */

static struct trap_samples *samples; /* NULL: never begun. Stays until a detach */
static uint32_t inside;              /* threads in the handler */
static bool ending;                  /* Python's thread states may be freed */
static pid_t self;                   /* this process */
static PyTypeObject *code_type;
static size_t frame_size; /* bytes of a frame that are looked at */
static uint64_t gone;     /* when the daemon went that had begun; 0: it is there */

/* ---- in the program's threads, in a handler ---- */

/* A thread may be interrupted while it puts a frame on top, or takes one away: a pointer may lead
 * to what is no frame then, or no memory. So the kernel copies it, which says when it can't. */
static bool copy(uint64_t from, void *to, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};

    return process_vm_readv(self, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool is_code(uint64_t address)
{
    PyObject head;

    return copy(address, &head, sizeof head) && Py_TYPE(&head) == code_type;
}

/* Takes the Python frames of a thread, as the kernel's sampler has them. Calls of the evaluation
 * loop are left out. */
static void take_frames(const PyThreadState *state, struct trap_sample *out)
{
    const struct offsets *o = struct_layout();
    uint64_t at = state ? (uint64_t)(uintptr_t)struct_layout_frame(state) : 0;
    char frame[FRAME_MAX];
    int offset;

    for (; at && out->n < TRAP_FRAMES_MAX;
         at = (uint64_t)(uintptr_t)struct_layout_frame_back(frame)) {
        if (!copy(at, frame, frame_size))
            return;
        PyObject *code = struct_layout_frame_code(frame, &offset);
        struct trap_frame *to = &out->frames[out->n];
        if (!code)
            continue;
        to->code = (uint64_t)(uintptr_t)code & ~7ull;
        if (!out->n && !is_code(to->code)) /* the others were there before */
            return;
        if (o->frame_owner >= 0 && frame[o->frame_owner] == OWNED_BY_GENERATOR)
            to->code |= TRAP_FRAME_GENERATOR;
        to->at = python.version < 0x030b
                     ? (uint32_t) * (const int *)(const void *)(frame + o->frame_lasti)
                     : (uint64_t)(uintptr_t)struct_layout_pointer(frame, o->frame_instr);
        out->n++;
    }
    if (at)
        out->flags |= TRAP_SAMPLE_CUT;
}

static void take_python(struct trap_sample *out)
{
    bool gil;

    out->interp = 0;
    if (__atomic_load_n(&ending, __ATOMIC_SEQ_CST))
        return;
    const PyThreadState *state = signal_stack_state(&gil);
    if (state)
        out->interp =
            (uint64_t)(uintptr_t)struct_layout_pointer(state, struct_layout()->tstate_interp);
    if (gil)
        out->flags |= TRAP_SAMPLE_GIL;
    take_frames(state, out);
}

static void take(struct trap_samples *to, uint64_t now)
{
    uint64_t number = __atomic_fetch_add(&to->next, 1, __ATOMIC_SEQ_CST);
    struct trap_sample *slot = &to->slot[number % TRAP_SAMPLES_MAX];

    if (__atomic_exchange_n(&slot->busy, 1, __ATOMIC_ACQUIRE)) {
        __atomic_add_fetch(&to->lost, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(&slot->turn, 0, __ATOMIC_SEQ_CST);
    slot->when = now;
    slot->cpu_ns = thread_cpu_ns();
    slot->thread = (uint64_t)pthread_self();
    slot->tid = (int32_t)syscall(SYS_gettid);
    slot->flags = slot->n = 0;
    take_python(slot);
    __atomic_store_n(&slot->turn, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->busy, 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&to->ns, monotonic_ns() - now, __ATOMIC_RELAXED);
}

static void on_sample(bool late)
{
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    struct trap_samples *to = __atomic_load_n(&samples, __ATOMIC_SEQ_CST);
    if (to && late)
        __atomic_add_fetch(&to->late, 1, __ATOMIC_RELAXED);
    else if (to && __atomic_load_n(&to->on, __ATOMIC_RELAXED))
        take(to, monotonic_ns());
    __atomic_sub_fetch(&inside, 1, __ATOMIC_RELEASE);
}

/* ---- its life ---- */

/* Whether nobody is in the handler any more, who was there when this was called. */
static bool wait_outside(void)
{
    uint64_t until = monotonic_ns() + LEAVE_NS;

    while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST))
        if (monotonic_ns() > until)
            return false;
        else
            sched_yield();
    return true;
}

static int make_samples(char words[PROTO_WORDS_MAX])
{
    if (samples)
        return 0;
    struct trap_samples *memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(ENOMEM, words, "no memory for samples");
    memory->magic = TRAP_SAMPLES_MAGIC;
    __atomic_store_n(&samples, memory, __ATOMIC_SEQ_CST);
    __atomic_store_n(&probe_agent_record.samples, (uint64_t)(uintptr_t)memory, __ATOMIC_RELEASE);
    return 0;
}

/* Finds what the handler needs. One may run meanwhile, and finds the same. False: it can't be
 * had. */
static bool find_needs(void)
{
    const struct offsets *o = struct_layout();
    const int64_t fields[] = {o->frame_previous, o->frame_code, o->frame_owner, o->frame_lasti,
                              o->frame_instr};
    size_t size = 0;
    char copied;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i] >= 0 && (size_t)fields[i] + sizeof(void *) > size)
            size = (size_t)fields[i] + sizeof(void *);
    frame_size = size;
    self = getpid();
    code_type = looked_up.PyCode_Type;
    return size <= FRAME_MAX && code_type && copy((uint64_t)(uintptr_t)&self, &copied, 1);
}

int sample_begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    if (guest_watching(&interpreter->guest) < 0) /* tries out the layout of frames */
        PyErr_Clear();                           /* then the next says no */
    int r = trap_stand(words);
    if (r == 0 && !find_needs())
        r = refuse(EOPNOTSUPP, words, "the program may not use process_vm_readv(2) here");
    if (r == 0)
        r = make_samples(words);
    if (r < 0)
        return r;
    trap_on_sample(on_sample);
    gone = 0;
    __atomic_store_n(&samples->on, monotonic_ns(), __ATOMIC_RELEASE);
    return 0;
}

static void drop_slots(void)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)samples->slot + page - 1) & ~(page - 1);

    madvise((void *)begin, (uintptr_t)(samples + 1) - begin, MADV_DONTNEED);
}

void sample_end(void)
{
    if (!samples || !samples->on)
        return;
    __atomic_store_n(&samples->on, 0, __ATOMIC_SEQ_CST);
    if (wait_outside()) /* the head stays: numbers go on */
        drop_slots();
}

void sample_daemon_gone(void)
{
    if (samples && samples->on)
        gone = monotonic_ns();
    sample_end();
}

void sample_let_go(const struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter) || !interpreter->closed)
        return;
    __atomic_store_n(&ending, true, __ATOMIC_SEQ_CST);
    (void)wait_outside();
}

void sample_leave(struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter) || !samples)
        return;
    sample_end();
    trap_keep(gone && monotonic_ns() - gone < GONE_NS);
    struct trap_samples *memory = samples;
    probe_agent_record.samples = 0;
    __atomic_store_n(&samples, NULL, __ATOMIC_SEQ_CST);
    if (wait_outside())
        munmap(memory, sizeof *memory);
}

void sample_forget(void)
{
    if (samples)
        munmap(samples, sizeof *samples); /* its only thread isn't in a handler: it forks */
    samples = NULL;
    inside = 0;
    gone = 0;
    probe_agent_record.samples = 0;
}
