/* Where a thread may be borrowed: children that stand somewhere are stopped and judged. */
#include "agent/base/clock.h"
#include "fs/inject/borrow.h"
#include "fs/inject/safe_point.h"
#include "fs/inject/stub_place.h"
#include "fs/proc/vma.h"
#include "fs/trace/tracer.h"
#include "tests/unit/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define ROOM 16384
#define TRIES 100
#define CARVED 65536 /* bytes of stack */

/* ---- where children stand ---- */

static int arrived[2]; /* a pipe: the child writes when it is nearly there */

static void arrive(void)
{
    pid_t tid = gettid();
    CHECK(write(arrived[1], &tid, sizeof tid) == sizeof tid);
}

static void stand(void)
{
    arrive();
    for (;;)
        pause();
}

static void in_pause(void) { stand(); }

static int iterate(struct dl_phdr_info *info, size_t size, void *arg)
{
    stand();
    return 0;
}
static void in_the_loaders_lock(void) { dl_iterate_phdr(iterate, NULL); }

static void on_signal(int number) { stand(); }
static void in_a_handler(void)
{
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
}

static void at_exit(void) { stand(); }
static void in_exit(void)
{
    atexit(at_exit);
    exit(0);
}

/* Code of no file: nothing is known of it. */
static void in_generated_code(void)
{
    static const uint8_t code[] = {0xeb, 0xfe}; /* jmp . */
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page, code, sizeof code);
    arrive();
    ((void (*)(void))page)();
}

static void *thread_main(void *arg)
{
    stand();
    return NULL;
}
static void in_thread(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, thread_main, NULL) == 0);
    for (;;)
        pause();
}

/* A thread whose stack is a part of a larger piece of memory. */
static void in_carved_stack(void)
{
    static char memory[1 << 20] __attribute__((aligned(4096)));
    pthread_attr_t attr;
    pthread_t thread;

    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstack(&attr, memory + sizeof memory / 2, CARVED) == 0);
    CHECK(pthread_create(&thread, &attr, thread_main, NULL) == 0);
    for (;;)
        pause();
}

/* A coroutine in C. */
static void in_coroutine(void)
{
    static char memory[1 << 20];
    static ucontext_t here, there;

    CHECK(getcontext(&there) == 0);
    there.uc_stack = (stack_t){.ss_sp = memory, .ss_size = sizeof memory};
    makecontext(&there, stand, 0);
    swapcontext(&here, &there);
}

/* Loops within a restartable sequence, in which the kernel aborts it now and then. */
static void in_a_sequence(void)
{
    static struct rseq_cs section;
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    uint64_t start, end, handler;

    asm("lea 2f(%%rip), %0\n lea 3f(%%rip), %1\n lea 4f(%%rip), %2\n"
        : "=r"(start), "=r"(end), "=r"(handler));
    section =
        (struct rseq_cs){.start_ip = start, .post_commit_offset = end - start, .abort_ip = handler};
    arrive();
    asm volatile("1: mov %1, (%0)\n"
                 "2: jmp 2b\n"
                 "3: ud2\n"
                 "   .long 0x53053053\n" /* RSEQ_SIG */
                 "4: jmp 1b\n" ::"r"(&area->rseq_cs),
                 "r"(&section)
                 : "memory");
}

/* ---- judging them ---- */

struct judgement {
    struct safe_points *points;
    pid_t tid;
    uint64_t room;
    enum safety safety;
    struct safety_place place;
    bool in_sequence;
    int result;
};

static int judge(struct tracer *tracer, void *arg)
{
    struct judgement *j = arg;
    struct borrow borrow;

    do
        j->result = borrow_stop(j->tid, &borrow);
    while (j->result == -EAGAIN);
    if (j->result == 0) {
        j->in_sequence = borrow_in_sequence(&borrow);
        j->safety = safe_point_check(j->points, &borrow.regs, j->room, &j->place);
        borrow_release(&borrow);
    }
    return j->result;
}

/* It says that it arrives before it does: then it sleeps, or has run for a while. */
static void wait_until_it_stands(pid_t tid)
{
    unsigned long long began = 0, ran = 0;
    char path[64], state = 0;

    for (int i = 0; i < 30000 && state != 'S' && ran <= began + 20000000; i++) {
        snprintf(path, sizeof path, "/proc/%d/stat", tid);
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        snprintf(path, sizeof path, "/proc/%d/schedstat", tid);
        file = fopen(path, "r");
        CHECK(file && fscanf(file, "%llu", &ran) == 1);
        fclose(file);
        began = i ? began : ran;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* *tid: the thread that stands there. */
static pid_t start(void (*where)(void), pid_t *tid)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        where();
        _exit(1);
    }
    CHECK(read(arrived[0], tid, sizeof *tid) == sizeof *tid);
    wait_until_it_stands(*tid);
    return child;
}

static struct judgement judgement_of(void (*where)(void), uint64_t room, struct text *words)
{
    struct judgement j = {.room = room};
    pid_t child = start(where, &j.tid);
    struct memory memory = {.pid = child};
    struct text why = TEXT_INIT;

    CHECK_INT(safe_points_new(&memory, &j.points), 0);
    CHECK_INT(safe_points_refresh(j.points, 0, &why), 0);
    for (int tries = 0; tracer_run(judge, &j) == -ETIMEDOUT && tries < TRIES; tries++)
        ; /* the machine is busy */
    CHECK_INT(j.result, 0);
    if (words)
        safety_describe(j.points, j.safety, &j.place, words);
    safe_points_free(j.points);
    text_deinit(&why);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return j;
}

static enum safety safety_of(void (*where)(void), uint64_t room, struct text *words)
{
    return judgement_of(where, room, words).safety;
}

#define CHECK_NOT_SAFE(where, why)                                           \
 do {                                                                        \
  enum safety got_ = safety_of(where, ROOM, NULL);                           \
  /* where a sanitizer stands between, it is the one that provides malloc */ \
  CHECK(got_ == (why) || got_ == UNSAFE_MALLOC);                             \
 } while (0)

static void test_places(void)
{
    struct text words = TEXT_INIT;

    CHECK_INT(safety_of(in_pause, ROOM, NULL), SAFE);
    CHECK_INT(safety_of(in_pause, 1ull << 40, &words), UNSAFE_STACK);
    CHECK(strstr(words.data, "stack"));
    text_clear(&words);
    CHECK_NOT_SAFE(in_the_loaders_lock, UNSAFE_LIBC);
    CHECK_NOT_SAFE(in_exit, UNSAFE_LIBC);
    CHECK_INT(safety_of(in_a_handler, ROOM, NULL), UNSAFE_SIGNAL);
    CHECK_INT(safety_of(in_generated_code, ROOM, &words), UNSAFE_UNKNOWN);
    CHECK(strstr(words.data, "can't be unwound"));
    enum safety thread = safety_of(in_thread, ROOM, NULL);
    CHECK(thread == SAFE || thread == UNSAFE_MALLOC);
    if (thread == SAFE) { /* and no sanitizer stands between */
        CHECK_INT(safety_of(in_carved_stack, ROOM, NULL), SAFE);
        CHECK_INT(safety_of(in_carved_stack, 2 * CARVED, NULL), UNSAFE_STACK);
    }
    CHECK(safety_of(in_coroutine, ROOM, NULL) != SAFE);
    CHECK(!judgement_of(in_pause, ROOM, NULL).in_sequence);
    bool in_sequence = !__rseq_size;
    for (int tries = 0; !in_sequence && tries < TRIES; tries++) /* it may just have been aborted */
        in_sequence = judgement_of(in_a_sequence, ROOM, NULL).in_sequence;
    CHECK(in_sequence);
    text_deinit(&words);
}

/* ---- what is found in libc ---- */

static void test_entries(void)
{
    struct libc_symbols s = {.nentries = 2,
                             .entries = {{100, ENTRY_ASLEEP}, {200, ENTRY_ANYWHERE}}};

    CHECK(!libc_entry_find(&s, 0, 100));
    CHECK(libc_entry_find(&s, 100, 101)->kind == ENTRY_ASLEEP);
    CHECK(libc_entry_find(&s, 90, 110)->addr == 100);
    CHECK(!libc_entry_find(&s, 101, 200));
    CHECK(libc_entry_find(&s, 150, 300)->kind == ENTRY_ANYWHERE);
    CHECK(!libc_entry_find(&s, 201, 300));
    s.nentries = 0;
    CHECK(!libc_entry_find(&s, 0, UINT64_MAX));
}

static void test_libc(void)
{
    pid_t tid, child = start(in_pause, &tid);
    struct memory memory = {.pid = child};
    struct safe_points *points;
    struct text why = TEXT_INIT;
    uint64_t place = 0, again = 0, all[256];
    bool there = true;

    CHECK_INT(safe_points_new(&memory, &points), 0);
    CHECK_INT(safe_points_refresh(points, 0, &why), 0);
    const struct libc_symbols *libc = safe_points_libc(points);
    void *own = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD); /* not what a sanitizer has instead */
    CHECK(own);
    CHECK(libc->dlopen && libc->pthread_create && libc->attr_destroy && libc->nentries > 100);
    /* a function that only jumps on stands on the stack as what it jumps to */
    uint64_t unlock = (uint64_t)(uintptr_t)dlsym(own, "pthread_mutex_unlock");
    CHECK(libc_entry_find(libc, unlock, unlock + 1));
    /* the child is a fork: its libc is where ours is */
    CHECK(libc->dlopen == (uint64_t)(uintptr_t)dlsym(own, "dlopen"));
    CHECK(!libc_entry_find(libc, libc->dlopen, libc->dlopen + 1));
    CHECK(!libc_entry_find(libc, libc->pthread_create, libc->pthread_create + 1));

    CHECK_INT(stub_place_find(safe_points_modules(points), &place, &there), 0);
    CHECK(place && !there && stub_place_check(&memory, place, &there) && !there);
    CHECK(safe_points_mapped(points, place));
    size_t size = (size_t)(bootstrap_end - bootstrap_begin);
    CHECK(size <= 1024 && memory_read(&memory, place, all, size) == 0);
    for (size_t i = 0; i < size; i++)
        CHECK(((const char *)all)[i] == 0);
    CHECK(stub_place_find(safe_points_modules(points), &again, &there) == 0 && again == place);
    CHECK(!stub_place_check(&memory, libc->dlopen, &there));

    safe_points_free(points);
    text_deinit(&why);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Bytes at a place where the stub may lie, or a beginning of it. */
static void test_stub_bytes(void)
{
    uint8_t code[1024] = {0};
    size_t size = (size_t)(bootstrap_end - bootstrap_begin);
    struct memory_image image = {.base = 0x1000, .data = code, .size = sizeof code};
    struct memory memory = {.image = &image};
    bool there = true;

    CHECK(stub_place_check(&memory, 0x1000, &there) && !there);
    memcpy(code, bootstrap_begin, size / 2);
    CHECK(stub_place_check(&memory, 0x1000, &there) && !there);
    memcpy(code, bootstrap_begin, size);
    CHECK(stub_place_check(&memory, 0x1000, &there) && there);
    code[size / 2] ^= 1;
    CHECK(!stub_place_check(&memory, 0x1000, &there));
    CHECK(!stub_place_check(&memory, 0x1000 + sizeof code - 8, &there));
}

static void test_vma(void)
{
    char *pages = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t addr = (uint64_t)(uintptr_t)pages;
    struct vmas *vmas;
    struct vma vma;

    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_READ) == 0);
    CHECK_INT(vmas_new(getpid(), &vmas), 0);
    CHECK_INT(vma_find(vmas, addr + 5000, &vma), 0);
    CHECK(vma.start == addr + 4096 && vma.end == addr + 8192 && !vma.inode);
    munmap(pages, 3 * 4096);
    vmas_forget(vmas);
    CHECK_INT(vma_find(vmas, addr + 5000, &vma), -ENOENT);
    vmas_free(vmas);
}

int main(void)
{
    CHECK(pipe(arrived) == 0);
    test_entries();
    test_vma();
    test_stub_bytes();
    test_libc();
    test_places();
    return 0;
}
