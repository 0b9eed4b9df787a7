/* unwind_twice PID COUNT [--stop]
 *
 * Copies the stacks of a process's threads until COUNT were unwound, each with both engines, and
 * compares them frame by frame. Threads that sleep are looked at as they are; with --stop each is
 * stopped for its copy, so that all registers are known. Prints a line of JSON:
 *
 *   stacks, frames, equal   how many were unwound, with how many frames, and the same by both
 *   longer                  our engine went on where libunwind needed a register that isn't known
 *   differ                  any other difference; the first few are told on standard error
 *   own_ns, libunwind_ns    time for all of them
 *
 * Exits 1 where any differ, 2 on wrong usage or where the process can't be looked at. */
#include "agent/base/clock.h"
#include "fs/remote/native/unwind.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define THREADS_MAX 64
#define TOLD_MAX 5
#define RUN_US 100 /* that a thread goes on for, from one stop to the next */

static struct {
    uint64_t stacks, frames, equal, longer, differ, own_ns, libunwind_ns;
} count;

static void tell(const char *who, struct unwinder *u, const struct native_frame *frames, size_t n,
                 enum native_end end)
{
    fprintf(stderr, "%s:\n", who);
    for (size_t i = 0; i < n; i++) {
        const struct pc *pc = unwinder_name(u, frames[i].pc, frames[i].exact);
        fprintf(stderr, "  #%zu %#" PRIx64 " sp %#" PRIx64 " cfa %#" PRIx64 "%s %s (%s)\n", i,
                frames[i].pc, frames[i].sp, frames[i].cfa, frames[i].exact ? " exact" : "",
                pc->name ? pc->name : "??", pc->module ? pc->module->name : "");
    }
    fprintf(stderr, "  %s\n", end == NATIVE_BASE ? "complete" : native_end_describe(end));
}

static bool same_frame(const struct native_frame *a, const struct native_frame *b)
{
    return a->pc == b->pc && a->sp == b->sp && a->exact == b->exact && a->eval == b->eval;
}

static enum native_end unwind_twice(struct unwinder *u, const struct stack_copy *copy,
                                    const struct native_regs *regs, struct native_frame *frames,
                                    size_t max, size_t *n)
{
    static struct native_frame others[NATIVE_FRAMES_MAX];
    size_t m, same = 0;

    uint64_t began = monotonic_ns();
    enum native_end end = unwind_own.unwind(u, copy, regs, frames, max, n);
    uint64_t half = monotonic_ns();
    enum native_end other = unwind_libunwind.unwind(u, copy, regs, others, max, &m);
    count.libunwind_ns += monotonic_ns() - half;
    count.own_ns += half - began;
    if (end == NATIVE_SHORT && other == NATIVE_SHORT)
        return end; /* it is copied again */
    while (same < *n && same < m && same_frame(&frames[same], &others[same]) &&
           (same + 1 == m || same + 1 == *n || frames[same].cfa == others[same].cfa))
        same++;
    count.stacks++;
    count.frames += *n;
    if (same == *n && same == m && end == other)
        count.equal++;
    else if (same == m && other == NATIVE_NO_REGISTER)
        count.longer++;
    else if (count.differ++ < TOLD_MAX) {
        tell("own", u, frames, *n, end);
        tell("libunwind", u, others, m, other);
    }
    return end;
}

static void forget(struct unwinder *u) { unwind_libunwind.forget(u); }
static const struct unwind_engine both = {.unwind = unwind_twice, .forget = forget};

/* Stops a thread and takes its registers. *number: of a signal that it is to get yet, or 0. */
static bool stop(pid_t tid, struct native_stack *stack, int *number)
{
    struct registers regs;
    int status;

    usleep(RUN_US);
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0 || waitpid(tid, &status, __WALL) != tid ||
        !WIFSTOPPED(status) || registers_read(tid, &regs) < 0)
        return false;
    *number = status >> 16 ? 0 : WSTOPSIG(status);
    native_regs_set(&stack->regs, &regs);
    return stack->stopped = true;
}

static size_t threads_of(pid_t pid, pid_t tids[THREADS_MAX])
{
    char path[64];
    size_t n = 0;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir)) && n < THREADS_MAX;)
        if (entry->d_name[0] != '.')
            tids[n++] = atoi(entry->d_name);
    closedir(dir);
    return n;
}

static int look(struct native *native, pid_t pid, pid_t tid, bool stopping)
{
    struct native_stack stack = {.tid = tid};
    struct maps maps;
    int number = 0;

    if (stopping && !stop(tid, &stack, &number))
        return -ESRCH;
    int r = maps_read(pid, &maps);
    if (r == 0) {
        native_begin(native);
        r = native_capture(native, &maps, &stack, 1);
        if (stopping)
            ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)number);
        if (r == 0)
            r = native_unwind(native, &maps, 0, &stack, 1);
        maps_deinit(&maps);
    }
    native_stacks_deinit(&stack, 1);
    return r;
}

int main(int argc, char **argv)
{
    struct native *native;
    pid_t tids[THREADS_MAX];
    bool stopping = argc == 4 && !strcmp(argv[3], "--stop");

    if (argc < 3 || (argc > 3 && !stopping))
        return fprintf(stderr, "usage: unwind_twice PID COUNT [--stop]\n"), 2;
    pid_t pid = atoi(argv[1]);
    uint64_t wanted = strtoull(argv[2], NULL, 10);
    size_t n = threads_of(pid, tids);
    for (size_t i = 0; stopping && i < n; i++)
        if (ptrace(PTRACE_SEIZE, tids[i], NULL, NULL) < 0)
            return perror("PTRACE_SEIZE"), 2;
    struct memory memory = {.pid = pid};
    if (native_new(&memory, &native) < 0)
        return 2;
    native_use(native, &both);
    for (size_t i = 0; count.stacks < wanted; i++) {
        int r = n ? look(native, pid, tids[i % n], stopping) : -ESRCH;
        if (r < 0)
            return fprintf(stderr, "unwind_twice: %s\n", strerror(-r)), 2;
    }
    native_free(native);
    printf("{\"stacks\": %" PRIu64 ", \"frames\": %" PRIu64 ", \"equal\": %" PRIu64
           ", \"longer\": %" PRIu64 ", \"differ\": %" PRIu64 ", \"own_ns\": %" PRIu64
           ", \"libunwind_ns\": %" PRIu64 "}\n",
           count.stacks, count.frames, count.equal, count.longer, count.differ, count.own_ns,
           count.libunwind_ns);
    return count.differ > 0;
}
