#include "agent/allocation/allocation.h"

#include "agent/allocation/gap.h"
#include "agent/allocation/table.h"
#include "agent/base/clock.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/signal_stack.h"
#include "agent/cpython/struct_layout.h"
#include "agent/wire/record.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define FRAMES_MAX 64 /* innermost ones that tell two sites apart */
#define TRIES 1000    /* to get in, where another interpreter's thread is inside */
#define NEVER (INT64_MAX / 2)

/* Include/cpython/pymem.h, since 3.5 */
struct allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t n, size_t size);
    void *(*realloc)(void *context, void *block, size_t size);
    void (*free)(void *context, void *block);
};
enum domain { DOMAIN_RAW, DOMAIN_MEM, DOMAIN_OBJ, DOMAINS };

static struct {
    void (*get)(enum domain domain, struct allocator *out); /* PyMem_GetAllocator */
    void (*set)(enum domain domain, struct allocator *new); /* PyMem_SetAllocator */
} api;

static struct allocator before[DOMAINS]; /* who stood there before us */
static bool installed[DOMAINS];
static struct table *table; /* NULL: never sampled. Stays: who is inside may use it */

/* Bytes until the next sample: of all threads, which have the GIL. Those of several interpreters
 * may lose each other's, which does no harm. */
static int64_t left = NEVER;
static bool armed;
static double mean;
static uint64_t random_state;
static bool inside; /* somebody uses the table */

static bool enter(void)
{
    for (int i = 0; i < TRIES; i++)
        if (!__atomic_exchange_n(&inside, true, __ATOMIC_ACQUIRE))
            return true;
    return false;
}

static void leave(void) { __atomic_store_n(&inside, false, __ATOMIC_RELEASE); }

/* ---- in the program's threads ---- */

static uint64_t hash_stack(const PyThreadState *state)
{
    const char *frame = state ? struct_layout_frame(state) : NULL;
    uint64_t hash = 0x9e3779b97f4a7c15ull;

    for (int i = 0, offset = 0; frame && i < FRAMES_MAX;
         i++, frame = struct_layout_frame_back(frame)) {
        PyObject *code = struct_layout_frame_code(frame, &offset);
        hash = (hash ^ (uintptr_t)code) * 0x9e3779b97f4a7c15ull;
        hash = (hash ^ hash >> 29 ^ (unsigned)offset) * 0xbf58476d1ce4e5b9ull;
    }
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

static struct allocation_site *find_site(void)
{
    struct signal_stack stack;
    bool gil;

    const PyThreadState *state = signal_stack_state(&gil);
    if (!gil)
        state = NULL;
    uint64_t hash = hash_stack(state);
    struct allocation_site *site = table_find(table, hash);
    if (site)
        return site;
    site = table_make(table, hash);
    if (!site->hash)
        return site; /* that of all others */
    signal_stack_capture(state, &stack);
    site->start = stack.start;
    memcpy(site->stack + stack.start, stack.stack + stack.start, sizeof stack.stack - stack.start);
    table_publish(table, site);
    return site;
}

static __attribute__((noinline)) void sample(void *block, size_t size)
{
    if (!__atomic_load_n(&armed, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&left, NEVER, __ATOMIC_RELAXED);
        return;
    }
    if (!enter()) {
        __atomic_add_fetch(&table->seen.lost, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(&left, gap_next(&random_state, mean), __ATOMIC_RELAXED);
    if (block)
        table_add(table, find_site(), block, gap_weight(size, mean));
    leave();
}

static __attribute__((noinline)) void gone(void *block)
{
    if (!enter())
        return; /* it lives on in our books */
    table_drop(table, block);
    leave();
}

static inline void count(void *block, size_t size)
{
    int64_t rest = __atomic_load_n(&left, __ATOMIC_RELAXED) - (int64_t)size;

    __atomic_store_n(&left, rest, __ATOMIC_RELAXED);
    if (__builtin_expect(rest <= 0, 0))
        sample(block, size);
}

/* clang-format off */
#define IN_FRONT_OF(domain) \
    static void *malloc_##domain(void *context, size_t size) \
    { \
        void *block = before[domain].malloc(context, size); \
        count(block, size); \
        return block; \
    } \
    static void *calloc_##domain(void *context, size_t n, size_t size) \
    { \
        void *block = before[domain].calloc(context, n, size); \
        count(block, n * size); \
        return block; \
    } \
    static void *realloc_##domain(void *context, void *old, size_t size) \
    { \
        void *block = before[domain].realloc(context, old, size); \
        if (block && old && table_may_have(table, old)) \
            gone(old); \
        count(block, size); \
        return block; \
    } \
    static void free_##domain(void *context, void *block) \
    { \
        if (table_may_have(table, block)) \
            gone(block); \
        before[domain].free(context, block); \
    } \
    static const struct allocator ours_##domain = { \
        .malloc = malloc_##domain, .calloc = calloc_##domain, \
        .realloc = realloc_##domain, .free = free_##domain, \
    };
IN_FRONT_OF(DOMAIN_MEM)
IN_FRONT_OF(DOMAIN_OBJ)
/* clang-format on */

static const struct allocator *const ours[DOMAINS] = {
    [DOMAIN_MEM] = &ours_DOMAIN_MEM,
    [DOMAIN_OBJ] = &ours_DOMAIN_OBJ,
};

/* ---- with the main interpreter's GIL ---- */

static bool is_on_top(enum domain domain)
{
    struct allocator now;

    api.get(domain, &now);
    return now.malloc == ours[domain]->malloc && now.calloc == ours[domain]->calloc &&
           now.realloc == ours[domain]->realloc && now.free == ours[domain]->free;
}

/* Puts our allocators on top of those that are there. One that stands on ours already calls us: to
 * stand on it as well would go round in circles. */
static void install(char words[PROTO_WORDS_MAX])
{
    for (enum domain domain = DOMAIN_MEM; domain < DOMAINS; domain++) {
        struct allocator next = *ours[domain];
        if (installed[domain]) {
            if (!is_on_top(domain))
                snprintf(words, PROTO_WORDS_MAX,
                         "another tool's allocator stands on top, as tracemalloc's does: what it "
                         "doesn't pass on isn't seen");
            continue;
        }
        api.get(domain, &before[domain]);
        next.context = before[domain].context;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        api.set(domain, &next);
        installed[domain] = true;
    }
}

/* What evaluate/watching.py tries out is the layout of frames, where one of Python's runs. */
static int bind(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    api.get = (void (*)(enum domain, struct allocator *))looked_up.PyMem_GetAllocator;
    api.set = (void (*)(enum domain, struct allocator *))looked_up.PyMem_SetAllocator;
    if (guest_watching(&interpreter->guest) < 0)
        PyErr_Clear(); /* then the next says no */
    if (api.get && api.set && signal_stack_bind())
        return 0;
    return refuse(EOPNOTSUPP, words, "this interpreter's frames can't be read where it allocates");
}

static int make_table(char words[PROTO_WORDS_MAX])
{
    if (table)
        return 0;
    void *memory = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(ENOMEM, words, "no memory for the table of sites");
    table = memory;
    __atomic_store_n(&probe_agent_record.allocations, (uint64_t)(uintptr_t)table, __ATOMIC_RELEASE);
    return 0;
}

static void disarm(void)
{
    __atomic_store_n(&armed, false, __ATOMIC_RELEASE);
    __atomic_store_n(&left, NEVER, __ATOMIC_RELAXED);
    if (!table || !table->seen.on)
        return;
    table->seen.until = realtime_s();
    __atomic_store_n(&table->seen.on, 0, __ATOMIC_RELEASE);
}

static int arm(uint64_t wanted, char words[PROTO_WORDS_MAX])
{
    disarm();
    if (!enter())
        return refuse(EAGAIN, words, "another interpreter is taking a sample: try again");
    mean = (double)wanted;
    random_state = realtime_ns() | 1;
    table_begin(table, wanted, realtime_s());
    leave();
    __atomic_store_n(&table->seen.on, 1, __ATOMIC_RELEASE);
    install(words);
    __atomic_store_n(&left, gap_next(&random_state, mean), __ATOMIC_RELAXED);
    __atomic_store_n(&armed, true, __ATOMIC_RELEASE);
    return 0;
}

int allocation_switch(struct interpreter *interpreter, const struct proto_allocations *order,
                      char words[PROTO_WORDS_MAX])
{
    if (!order->mean) {
        disarm();
        return 0;
    }
    if (order->mean < ALLOCATION_MEAN_MIN || order->mean > ALLOCATION_MEAN_MAX)
        return refuse(EINVAL, words, "from one sample to the next it is 1 KiB to 1 GiB");
    int r = bind(interpreter, words);
    if (r == 0)
        r = make_table(words);
    return r == 0 ? arm(order->mean, words) : r;
}

void allocation_leave(struct interpreter *interpreter)
{
    if (interpreter != interpreter_main())
        return;
    disarm();
    for (enum domain domain = DOMAIN_MEM; domain < DOMAINS; domain++)
        if (installed[domain] && interpreter_is_alone() && is_on_top(domain)) {
            api.set(domain, &before[domain]);
            installed[domain] = false;
        }
    if (!table || allocation_remains())
        return;
    probe_agent_record.allocations = 0;
    munmap(table, sizeof *table); /* who is inside has the GIL, and so nobody is */
    table = NULL;
}

bool allocation_remains(void) { return installed[DOMAIN_MEM] || installed[DOMAIN_OBJ]; }

void allocation_forget(void)
{
    __atomic_store_n(&armed, false, __ATOMIC_RELEASE);
    left = NEVER;
    inside = false;
    if (table)
        table->seen.on = 0;
}
