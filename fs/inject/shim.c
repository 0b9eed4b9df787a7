/* The code in the memfd: runs in the target, at any address, with nothing but what the control page
 * says. Built as a flat binary (shim.lds) that begins with struct shim_head.
 *
 * The borrowed thread comes in by work(), starts a thread, waits for it (a fork in between would
 * give the child a loader that is locked for ever), and leaves. The new thread does the work,
 * waits until the borrowed one has left, and unmaps this code under its own feet, from a place
 * outside (bootstrap_unmap). So nothing stays, whether or not somebody watches. */
#define SHIM
#include "fs/inject/inject_abi.h"

#include "agent/wire/proto.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#define PTHREAD_CREATE_DETACHED 1
#define RTLD_NOW 2
#define SIG_SETMASK 2
#define NANOSECONDS 1000000000l

asm(".pushsection .text.head, \"ax\"\n"
    ".long work - ., 0\n"
    ".popsection\n");

/* ppoll() leaves the kernel's restart block alone; futex() and nanosleep() with a timeout don't. */
static void nap(long ns)
{
    struct timespec t = {.tv_nsec = ns};
    arch_call(__NR_ppoll, 0, 0, (long)&t, 0, 8);
}

static int64_t now(void)
{
    struct timespec t;
    arch_call(__NR_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0);
    return t.tv_sec * NANOSECONDS + t.tv_nsec;
}

static uint32_t get(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void set(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static void finish(struct shim_control *c)
{
    set(&c->done, 1);
    arch_call(__NR_futex, (long)&c->done, FUTEX_WAKE, INT32_MAX, 0, 0);
}

/* Waits for the new thread, but not for ever: it may itself need what this one holds. */
static void park(struct shim_control *c)
{
    int64_t end = now() + SHIM_PARK_NS;

    for (int64_t left; !get(&c->done) && (left = end - now()) > 0;) {
        struct timespec t = {.tv_nsec = left};
        if (c->gentle)
            nap(SHIM_PARK_NAP_NS);
        else
            arch_call(__NR_futex, (long)&c->done, FUTEX_WAIT, 0, (long)&t, 0);
    }
}

static void copy_words(char *to, const char *from)
{
    for (unsigned i = 0; from && i < SHIM_WORDS_MAX && (to[i] = from[i]); i++)
        ;
}

/* Whether the entry may be called: it is decided once, here. */
static int enter(struct shim_control *c)
{
    set(&c->phase, SHIM_ENTERED);
    if (!get(&c->cancelled))
        return 1;
    set(&c->phase, SHIM_CANCELLED);
    return 0;
}

static void call_entry(struct shim_control *c, uint64_t address, uint64_t handle)
{
    struct agent_boot boot = {.handle = handle, .origin = c->origin};
    int (*entry)(const struct agent_boot *) = (void *)address;

    c->result = entry(&boot);
    set(&c->phase, SHIM_RETURNED);
}

static void close_memfd(const struct shim_control *c)
{
    if (c->fd >= 0)
        arch_call(__NR_close, c->fd, 0, 0, 0, 0);
}

static void load(struct shim_control *c)
{
    void *(*dlopen)(const char *, int) = (void *)c->dlopen;
    int (*dlclose)(void *) = (void *)c->dlclose;
    char *(*dlerror)(void) = (void *)c->dlerror;

    void *handle = dlopen(c->path, RTLD_NOW);
    if (!handle)
        copy_words(c->words, dlerror());
    close_memfd(c);
    if (c->remove[0])
        arch_unlink(c->remove);
    if (!handle) {
        set(&c->phase, SHIM_NOT_LOADED);
        return;
    }
    c->handle = (uint64_t)handle;
    c->base = *(const uint64_t *)handle; /* struct link_map.l_addr, <link.h> */
    if (enter(c))
        call_entry(c, c->base + c->entry, c->handle);
    else
        dlclose(handle);
}

static void close_library(struct shim_control *c)
{
    int (*dlclose)(void *) = (void *)c->dlclose;

    if (!enter(c))
        return;
    c->result = dlclose((void *)c->handle);
    set(&c->phase, SHIM_RETURNED);
}

/* What the new thread runs; it returns where to go on from, or NULL. */
__attribute__((used, visibility("hidden"))) uint64_t thread_main(struct shim_control *c)
{
    uint64_t all = ~0ull;

    /* the one signal that the borrowed thread has open is not for this one */
    arch_call(__NR_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0);
    c->tid = (int32_t)arch_call(__NR_gettid, 0, 0, 0, 0, 0);
    if (c->op == SHIM_LOAD)
        load(c);
    else
        close_memfd(c);
    if (c->op == SHIM_CLOSE)
        close_library(c);
    if (c->op == SHIM_CALL && enter(c))
        call_entry(c, c->entry, 0);
    finish(c);
    for (int i = 0; i < SHIM_LEAVE_NAPS && !get(&c->left); i++)
        nap(i < 20 ? SHIM_PARK_NAP_NS : NANOSECONDS / 1000);
    return get(&c->left) ? c->unmap : 0;
}

#define TEXT(number) #number
#define TEXT_OF(number) TEXT(number)
asm(".pushsection .text\n" ARCH_CALL_AND_LEAVE("thread_start",
                                               TEXT_OF(SHIM_MAPPED)) ".popsection\n");
extern __attribute__((visibility("hidden"))) void *thread_start(void *control);

static int start_thread(struct shim_control *c)
{
    int (*attr_init)(void *) = (void *)c->attr_init;
    int (*attr_setdetachstate)(void *, int) = (void *)c->attr_setdetachstate;
    int (*attr_setstacksize)(void *, size_t) = (void *)c->attr_setstacksize;
    int (*attr_destroy)(void *) = (void *)c->attr_destroy;
    int (*pthread_create)(void *, void *, void *(*)(void *), void *) = (void *)c->pthread_create;
    uint64_t thread;

    int r = attr_init(c->attr);
    if (r)
        return r;
    attr_setdetachstate(c->attr, PTHREAD_CREATE_DETACHED);
    attr_setstacksize(c->attr, SHIM_STACK);
    r = pthread_create(&thread, c->attr, thread_start, c);
    if (r == EINVAL) {
        attr_setstacksize(c->attr, SHIM_STACK_LARGE);
        r = pthread_create(&thread, c->attr, thread_start, c);
    }
    attr_destroy(c->attr);
    return r;
}

/* What the borrowed thread runs. */
__attribute__((used, visibility("hidden"))) void work(struct shim_control *c)
{
    int *(*errno_location)(void) = (void *)c->errno_location;
    int *error = errno_location(), saved = *error;

    int r = start_thread(c);
    if (r) {
        c->result = -r;
        set(&c->phase, SHIM_NO_THREAD);
        finish(c);
    }
    park(c);
    *error = saved;
}
