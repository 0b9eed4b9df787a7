/* Threads of this very process sleep at the end of all kinds of call chains; glibc's backtrace(3)
 * (libgcc's unwinder, run by the thread itself) has said before what their stacks are. */
#include "fs/remote/native/unwind.h"
#include "tests/unit/check.h"

#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __clang__ /* which keeps a frame pointer where __builtin_frame_address() is used */
#define NOINLINE __attribute__((noinline))
#define FRAME_POINTER __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#define FRAME_POINTER __attribute__((noinline, noclone, optimize("no-omit-frame-pointer")))
#endif
#define DEPTH 400

static struct {
    void *expected[DEPTH];
    int n;
    pid_t tid;
    int wake[2];
    atomic_bool ready;
} sleeper;

static unsigned sink; /* keeps calls from becoming jumps; wraps */

/* The C library's own: a sanitizer puts frames of its own between. */
static int (*real_backtrace)(void **, int);
static ssize_t (*real_read)(int, void *, size_t);

NOINLINE int sleep_here(void);
NOINLINE int sleep_here(void)
{
    char byte;

    sleeper.n = real_backtrace(sleeper.expected, DEPTH);
    sleeper.tid = (pid_t)syscall(SYS_gettid);
    sleeper.ready = true;
    sink += (unsigned)real_read(sleeper.wake[0], &byte, 1);
    return (int)sink;
}

/* ---- call chains ---- */

static void *plain(void *arg)
{
    sink += sleep_here();
    return NULL;
}

NOINLINE static int recurse(int n) { return n ? recurse(n - 1) + sink : sleep_here() + sink; }
static void *deep(void *arg)
{
    sink += recurse(300);
    return NULL;
}

/* 200 KiB of stack: more than a first copy holds */
NOINLINE static int recurse_wide(int n)
{
    volatile char wide[2000];
    wide[n] = 1;
    return (n ? recurse_wide(n - 1) : sleep_here()) + wide[n];
}
static void *wide(void *arg)
{
    sink += recurse_wide(100);
    return NULL;
}

static bool compared;
static int compare(const void *a, const void *b)
{
    if (!compared)
        sink += sleep_here();
    compared = true;
    return *(const int *)a - *(const int *)b;
}
static void *callback(void *arg)
{
    int numbers[] = {3, 1, 2};
    compared = false;
    qsort(numbers, 3, sizeof *numbers, compare);
    return NULL;
}

static void handle(int sig) { sink += sleep_here(); }
static void *signalled(void *arg)
{
    signal(SIGUSR1, handle);
    pthread_kill(pthread_self(), SIGUSR1);
    return NULL;
}

/* The stack pointer moves by an amount known at run time only. */
NOINLINE static int call_with_alloca(int n)
{
    volatile char *p = alloca((size_t)n * 3 + 1);
    p[n] = 1;
    return sleep_here() + p[n];
}
static void *with_alloca(void *arg)
{
    sink += call_with_alloca(sleeper.n % 7 + 40);
    return NULL;
}

/* The stack pointer is aligned: the frame is found by an expression. */
NOINLINE static int call_aligned(int n)
{
    volatile char block[128] __attribute__((aligned(64)));
    block[n] = 1;
    return sleep_here() + block[n];
}
static void *aligned(void *arg)
{
    sink += call_aligned(3);
    return NULL;
}

/* As in programs built with frame pointers: the kernel doesn't tell rbp. */
FRAME_POINTER static int pointer_leaf(int n)
{
    volatile char local[200];
    char byte;
    local[n] = __builtin_frame_address(0) != NULL;
    sleeper.n = real_backtrace(sleeper.expected, DEPTH);
    sleeper.tid = (pid_t)syscall(SYS_gettid);
    sleeper.ready = true;
    return (int)real_read(sleeper.wake[0], &byte, 1) + local[n];
}
FRAME_POINTER static int pointer_middle(int n)
{
    sink += __builtin_frame_address(0) == NULL;
    if (n > 5)
        return pointer_middle(n - 1) + sink;
    return pointer_leaf(n) + sink;
}
static void *frame_pointers(void *arg)
{
    sink += pointer_middle(9);
    return NULL;
}

/* ---- the comparison ---- */

static struct native *native;
static struct native_stack stack;

/* Lets a thread run into its sleep and reads its stack from outside. */
static void look(void *(*chain)(void *), pthread_t *thread)
{
    struct maps maps;

    CHECK_INT(pipe(sleeper.wake), 0);
    sleeper.ready = false;
    CHECK_INT(pthread_create(thread, NULL, chain, NULL), 0);
    for (int tries = 0; tries < 10000; tries++) {
        usleep(1000);
        if (!sleeper.ready)
            continue;
        stack = (struct native_stack){.tid = sleeper.tid};
        CHECK_INT(maps_read(getpid(), &maps), 0);
        native_begin(native);
        CHECK_INT(native_capture(native, &maps, &stack, 1), 0);
        CHECK_INT(native_unwind(native, &maps, 0, &stack, 1), 0);
        maps_deinit(&maps);
        if (stack.end != NATIVE_RUNNING && stack.end != NATIVE_TORN)
            return; /* else it hadn't come to rest */
    }
    CHECK(!"the thread never slept");
}

static void wake(pthread_t thread)
{
    CHECK_INT(write(sleeper.wake[1], "", 1), 1);
    pthread_join(thread, NULL);
    close(sleeper.wake[0]);
    close(sleeper.wake[1]);
    native_stacks_deinit(&stack, 1);
}

/* How many frames, from the caller of the function that called backtrace() on, are as it said. */
static size_t compare_frames(void)
{
    size_t at = 0, same = 0;

    CHECK(sleeper.n > 2);
    while (at < stack.nframes && stack.frames[at].pc != (uint64_t)sleeper.expected[1])
        at++;
    while (at + same < stack.nframes && same + 1 < (size_t)sleeper.n &&
           stack.frames[at + same].pc == (uint64_t)sleeper.expected[1 + same])
        same++;
    CHECK_INT(at + same, stack.nframes); /* none that it doesn't know */
    return same;
}

static void check_complete(void *(*chain)(void *))
{
    pthread_t thread;

    look(chain, &thread);
    CHECK_INT(stack.end, NATIVE_BASE);
    CHECK_INT(stack.syscall, SYS_read);
    CHECK_INT(compare_frames(), sleeper.n - 1);
    for (size_t i = 0; i + 1 < stack.nframes; i++)
        CHECK(stack.frames[i].sp < stack.frames[i].cfa &&
              stack.frames[i].cfa == stack.frames[i + 1].sp);
    wake(thread);
}

/* What can't be known is not shown, and the stack says so. */
static void check_stops(void *(*chain)(void *), enum native_end end)
{
    pthread_t thread;

    look(chain, &thread);
    if (stack.end != NATIVE_BASE) {
        CHECK_INT(stack.end, end);
        CHECK(native_end_describe(stack.end));
        CHECK(stack.nframes > 0);
        for (size_t i = 0; i < stack.nframes; i++) {
            bool known = stack.frames[i].pc - (uint64_t)sleep_here < 4096 || i == 0;
            for (int k = 0; k < sleeper.n; k++)
                known |= stack.frames[i].pc == (uint64_t)sleeper.expected[k];
            CHECK(known);
        }
    } else
        CHECK_INT(compare_frames(), sleeper.n - 1);
    wake(thread);
}

static void check_names(void)
{
    struct native_symbol symbol;
    pthread_t thread;
    bool found = false;

    look(callback, &thread);
    for (size_t i = 0; i < stack.nframes; i++) {
        native_resolve(native, &stack.frames[i], &symbol);
        if (symbol.name && !strcmp(symbol.name, "sleep_here")) {
            CHECK(!strncmp(symbol.module, "test_native", 11));
            found = true;
        }
    }
    CHECK(found);
    native_resolve(native, &stack.frames[0], &symbol);
    CHECK(symbol.name && !strncmp(symbol.module, "libc", 4));
    CHECK(strstr(symbol.name, "read"));
    wake(thread);
}

static atomic_bool spinning, stop;
static void *spin(void *arg)
{
    sleeper.tid = (pid_t)syscall(SYS_gettid);
    spinning = true;
    while (!stop)
        ;
    return NULL;
}

static void read_one(pid_t tid)
{
    struct maps maps;

    CHECK_INT(maps_read(getpid(), &maps), 0);
    stack = (struct native_stack){.tid = tid};
    native_begin(native);
    CHECK_INT(native_capture(native, &maps, &stack, 1), 0);
    CHECK_INT(native_unwind(native, &maps, 0, &stack, 1), 0);
    maps_deinit(&maps);
}

static void check_not_sleeping(void)
{
    pthread_t thread;

    CHECK_INT(pthread_create(&thread, NULL, spin, NULL), 0);
    while (!spinning)
        usleep(1000);
    read_one(sleeper.tid);
    CHECK_INT(stack.end, NATIVE_RUNNING);
    CHECK_INT(stack.nframes, 0);
    stop = true;
    pthread_join(thread, NULL);
    read_one(1 << 29); /* no such thread */
    CHECK_INT(stack.end, NATIVE_GONE);
    CHECK_INT(stack.nframes, 0);
}

/* One that ran between the two halves is not believed. */
static void check_torn(void)
{
    struct maps maps;
    pthread_t thread;

    look(plain, &thread);
    native_stacks_deinit(&stack, 1);
    CHECK_INT(maps_read(getpid(), &maps), 0);
    native_begin(native);
    CHECK_INT(native_capture(native, &maps, &stack, 1), 0);
    CHECK_INT(stack.end, 0);
    wake(thread);
    CHECK_INT(native_unwind(native, &maps, 0, &stack, 1), 0);
    CHECK_INT(stack.end, NATIVE_TORN);
    CHECK_INT(stack.nframes, 0);
    maps_deinit(&maps);
}

int main(void)
{
    struct memory memory = {.pid = getpid()};
    void *warm[2];

    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    CHECK(libc);
    *(void **)&real_backtrace = dlsym(libc, "backtrace");
    *(void **)&real_read = dlsym(libc, "read");
    CHECK(real_backtrace && real_read);
    real_backtrace(warm, 2); /* loads libgcc_s */
    CHECK_INT(native_new(&memory, &native), 0);
    native_use(native, &unwind_own);          /* libunwind is held to it by unwind_twice */
    for (int round = 0; round < 2; round++) { /* cold, warm */
        check_complete(plain);
        check_complete(deep);
        check_complete(wide);
        check_complete(callback);
        check_complete(signalled);
        check_complete(frame_pointers);
        check_stops(with_alloca, NATIVE_NO_REGISTER);
        check_stops(aligned, NATIVE_NO_REGISTER);
    }
    check_names();
    check_not_sleeping();
    check_torn();
    native_free(native);
    return 0;
}
