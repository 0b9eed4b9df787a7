/* The evaluation of seccomp filters, against the kernel's: random programs are installed in a
 * child, whose system call then fails with the number that they compute. */
#include "fs/inject/seccomp.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <linux/audit.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAMS 400
#define LENGTH 24
#define TAIL 6 /* instructions that make an error number of what was computed */

static unsigned random_state = 12345;

static uint32_t any(uint32_t below)
{
    random_state = random_state * 1103515245u + 12345u;
    return (random_state >> 8) % below;
}

static struct sock_filter random_instruction(size_t left)
{
    static const uint16_t alu[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR};
    static const uint16_t jumps[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
    uint32_t k = any(2) ? any(16) : any(1u << 24) * 257u;
    uint8_t jt = (uint8_t)any((uint32_t)(left < 4 ? left : 4) + 1);
    uint8_t jf = (uint8_t)any((uint32_t)(left < 4 ? left : 4) + 1);
    uint16_t source = any(2) ? BPF_X : BPF_K;

    switch (any(13)) {
    case 0: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16 + 4 * any(12));
    case 1: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, k);
    case 2: return (struct sock_filter)BPF_STMT(BPF_LDX | BPF_IMM, k);
    case 3: return (struct sock_filter)BPF_STMT(BPF_ST, any(4));
    case 4: return (struct sock_filter)BPF_STMT(BPF_STX, any(4));
    case 5: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_MEM, any(4));
    case 6: return (struct sock_filter)BPF_STMT(BPF_LDX | BPF_MEM, any(4));
    case 7: return (struct sock_filter)BPF_STMT(BPF_MISC | (any(2) ? BPF_TAX : BPF_TXA), 0);
    case 8: return (struct sock_filter)BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, any(32));
    case 9: return (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | source, any(32));
    case 10: return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
    case 11: return (struct sock_filter)BPF_JUMP(BPF_JMP | jumps[any(4)] | source, k, jt, jf);
    }
    return (struct sock_filter)BPF_STMT(BPF_ALU | alu[any(6)] | source, k);
}

/* Answers getpgid() with an error number, and allows all else. */
static size_t random_program(struct sock_filter *program)
{
    size_t n = 0, head;

    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 1, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    /* the kernel wants each word of memory to be stored before it is loaded */
    for (uint32_t k = 0; k < 4; k++)
        program[n++] = (struct sock_filter)BPF_STMT(BPF_ST, k);
    head = n;
    while (n < head + LENGTH)
        program[n] = random_instruction(head + LENGTH - n - 1), n++;
    /* some division, but never by zero: that kills */
    program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 1 + any(9));
    program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7ff);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
    return n;
}

/* In the child: its exit says whether the kernel computes the same. */
static int compare_with_kernel(const struct sock_filter *program, size_t n)
{
    struct sock_fprog fprog = {(unsigned short)n, (struct sock_filter *)program};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &fprog) < 0)
        return errno == EINVAL ? 2 : 3;
    for (uint64_t i = 0; i < 8; i++) {
        struct seccomp_data data = {.nr = SYS_getpgid, .arch = AUDIT_ARCH_X86_64};
        for (size_t k = 0; k < 6; k++)
            data.args[k] = i * 0x9e3779b97f4a7c15ull * (k + 1);
        errno = 0;
        long r = syscall(SYS_getpgid, data.args[0], data.args[1], data.args[2], data.args[3],
                         data.args[4], data.args[5]);
        uint32_t want = SECCOMP_RET_ERRNO | (uint32_t)errno;
        if (r != -1 || seccomp_evaluate(program, n, &data) != want)
            return 1;
    }
    return 0;
}

static void test_random_programs(void)
{
    unsigned compared = 0;

    for (unsigned i = 0; i < PROGRAMS; i++) {
        struct sock_filter program[8 + LENGTH + TAIL];
        int status;
        size_t n = random_program(program);
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            _exit(compare_with_kernel(program, n));
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        if (WEXITSTATUS(status) == 3) {
            printf("no seccomp filters here\n");
            return;
        }
        CHECK(WEXITSTATUS(status) != 1);
        compared += WEXITSTATUS(status) == 0;
    }
    CHECK(compared > PROGRAMS / 2);
}

static uint32_t run(const struct sock_filter *filter, size_t n)
{
    struct seccomp_data data = {.nr = SYS_getpid, .arch = AUDIT_ARCH_X86_64};
    return seccomp_evaluate(filter, n, &data);
}

#define RUN(...)                          \
 run((struct sock_filter[]){__VA_ARGS__}, \
     sizeof((struct sock_filter[]){__VA_ARGS__}) / sizeof(struct sock_filter))

static void test_broken_programs(void)
{
    CHECK_INT(run(NULL, 0), SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_LD | BPF_IMM, 1)), SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), BPF_STMT(BPF_RET | BPF_K, 7)),
              SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), BPF_STMT(BPF_RET | BPF_K, 7)),
              SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0), BPF_STMT(BPF_RET | BPF_K, 7)),
              SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_ST, 16), BPF_STMT(BPF_RET | BPF_K, 7)), SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_JMP | BPF_JA, 0xffffffffu), BPF_STMT(BPF_RET | BPF_K, 7)),
              SECCOMP_RET_KILL_PROCESS);
    CHECK_INT(RUN(BPF_STMT(BPF_LD | BPF_IMM, 8), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
                  BPF_STMT(BPF_RET | BPF_K, 7)),
              SECCOMP_RET_KILL_THREAD);
    CHECK_INT(RUN(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)), SECCOMP_RET_ALLOW);
}

int main(void)
{
    test_broken_programs();
    test_random_programs();
    return 0;
}
