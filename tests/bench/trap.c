/* trap ROUNDS: what the processor and the kernel take for a debug register's trap, whose handler
 * does nothing: the least that a watchpoint by perf can cost on this machine. Prints
 * nanoseconds, a line for each round. */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STORES 20000

static volatile long stored;
static volatile long traps;

static void on_trap(int number, siginfo_t *info, void *context) { traps++; }

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct perf_event_attr attr = {
        .size = sizeof attr,
        .type = PERF_TYPE_BREAKPOINT,
        .bp_type = HW_BREAKPOINT_W,
        .bp_addr = (uint64_t)(uintptr_t)&stored,
        .bp_len = HW_BREAKPOINT_LEN_8,
        .sample_period = 1,
        .sigtrap = 1,
        .remove_on_exec = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };

    sigaction(SIGTRAP, &action, NULL);
    if (syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0) {
        perror("perf_event_open");
        return 1;
    }
    for (int round = argc > 1 ? atoi(argv[1]) : 1; round > 0; round--) {
        double begin = now_ns();
        for (long i = 0; i < STORES; i++)
            stored = i + round;
        printf("%.0f\n", (now_ns() - begin) / STORES);
    }
    return traps ? 0 : 1;
}
