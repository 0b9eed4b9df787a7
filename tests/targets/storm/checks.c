/* What the victims of this directory check in C: a library of functions for ctypes. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

int count_of_thread(void);
int errno_kept(long turns);
int pending_call(void *unused);
long pending_calls(void);
long python_from_threads(long threads, long turns);
const char *registers_kept(long turns, int harm);

static __thread int count = 7;

/* 8 at the first call of a thread, 9 at the second. */
int count_of_thread(void) { return ++count; }

/* How often errno changed within a loop that calls nothing. */
int errno_kept(long turns)
{
    int changes = 0;
    volatile int *seen = &errno;

    *seen = 4711;
    for (long i = 0; i < turns; i++)
        if (*seen != 4711) {
            changes++;
            *seen = 4711;
        }
    *seen = 0;
    return changes;
}

static volatile long calls;

int pending_call(void *unused)
{
    (void)unused;
    calls++; /* the queue is worked off by the main thread alone */
    return 0;
}

long pending_calls(void) { return calls; }

#define THREADS_MAX 16

/* Of CPython's pystate.h. */
static struct {
    int (*ensure)(void);  /* PyGILState_Ensure */
    void (*release)(int); /* PyGILState_Release */
} python;

struct entering {
    pthread_t thread;
    long turns, entered;
};

/* Each turn makes a thread state without the GIL, and deletes it. */
static void *enter(void *arg)
{
    struct entering *self = arg;

    for (long i = 0; i < self->turns; i++) {
        int state = python.ensure();
        self->entered++;
        python.release(state);
    }
    return NULL;
}

/* Has that many threads of C's enter Python that often each; how often they did.
 * Without the GIL. */
long python_from_threads(long threads, long turns)
{
    struct entering all[THREADS_MAX] = {0};
    long entered = 0, started = 0;

    python.ensure = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    python.release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    for (long i = 0; i < threads && i < THREADS_MAX && python.ensure && python.release; i++) {
        all[i].turns = turns;
        if (pthread_create(&all[i].thread, NULL, enter, &all[i]))
            break;
        started++;
    }
    for (long i = 0; i < started; i++) {
        pthread_join(all[i].thread, NULL);
        entered += all[i].entered;
    }
    return entered;
}

/* One loop that has a known value in each register, and compares all at each turn. LOAD and COMPARE
 * are done for each of REGISTERS: COMPARE leaves the carry flag clear where it differs. */
#define KEPT(name, isa, registers, load, compare, harm_it, begin, masks)                          \
 __attribute__((target(isa), noinline)) static long name(long turns, int harm)                    \
 {                                                                                                \
  long wrong;                                                                                     \
                                                                                                  \
  __asm__ volatile(                                                                               \
      ".irp i," registers "\n" load "\n.endr\n"                                                   \
      "ldmxcsr %[mxcsr]\n fldcw %[control]\n fldpi\n"                                             \
      "movq %%rsp, -64(%%rsp)\n movq %%rsp, -128(%%rsp)\n" begin                                  \
      ".irp r,8,9,10,11,12,13,14,15\n movabsq $0x0123456789abcd00 + \\r, %%r\\r\n.endr\n"         \
      "testl %%edx, %%edx\n jz 1f\n" harm_it "\n"                                                 \
      "1:\n"                                                                                      \
      "movl $1, %%ebx\n"                                                                          \
      ".irp i," registers "\n" compare "\n jnc 9f\n.endr\n"                                       \
      "movl $2, %%ebx\n" masks "movl $4, %%ebx\n"                                                 \
      "cmpq %%rsp, -64(%%rsp)\n jne 9f\n cmpq %%rsp, -128(%%rsp)\n jne 9f\n"                      \
      "movl $8, %%ebx\n"                                                                          \
      ".irp r,8,9,10,11,12,13,14,15\n movabsq $0x0123456789abcd00 + \\r, %%rax\n"                 \
      "cmpq %%rax, %%r\\r\n jne 9f\n.endr\n"                                                      \
      "movl $16, %%ebx\n"                                                                         \
      "stmxcsr -16(%%rsp)\n movl -16(%%rsp), %%eax\n xorl %[mxcsr], %%eax\n"                      \
      "testl $0xffc0, %%eax\n jnz 9f\n" /* all but the sticky flags */                            \
      "movl $32, %%ebx\n"                                                                         \
      "fnstcw -16(%%rsp)\n movw -16(%%rsp), %%ax\n cmpw %[control], %%ax\n jne 9f\n"              \
      "fldpi\n fcomip %%st(1), %%st\n jne 9f\n"                                                   \
      "xorl %%ebx, %%ebx\n decq %%rcx\n jnz 1b\n"                                                 \
      "9: fninit\n ldmxcsr %[usual]\n"                                                            \
      : "=&b"(wrong), "+c"(turns)                                                                 \
      : "d"(harm), [pattern] "S"(patterns), [mxcsr] "m"(strict), [control] "m"(single),           \
        [usual] "m"(usual)                                                                        \
      : "memory", "cc", "rax", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",      \
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
        "xmm12", "xmm13", "xmm14", "xmm15");                                                      \
  return wrong;                                                                                   \
 }

static uint8_t patterns[32 * 64] __attribute__((aligned(64)));
static const uint32_t strict = 0x1f80 | 0x6000; /* rounds towards zero */
static const uint32_t usual = 0x1f80;
static const uint16_t single = 0x007f; /* single precision */

#define FIFTEEN "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"
#define ALL "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

KEPT(kept_sse, "sse2", FIFTEEN, "movdqa \\i * 64(%[pattern]), %%xmm\\i",
     "movdqa \\i * 64(%[pattern]), %%xmm15\n pcmpeqb %%xmm\\i, %%xmm15\n pmovmskb %%xmm15, %%eax\n"
     "addl $1, %%eax\n cmpl $0x10000, %%eax\n cmc",
     "pxor %%xmm3, %%xmm3", "", "")

KEPT(kept_avx, "avx2", FIFTEEN, "vmovdqa \\i * 64(%[pattern]), %%ymm\\i",
     "vpcmpeqb \\i * 64(%[pattern]), %%ymm\\i, %%ymm15\n vpmovmskb %%ymm15, %%eax\n addl $1, %%eax",
     "vpxor %%ymm3, %%ymm3, %%ymm3", "", "")

KEPT(kept_avx512, "avx512f,avx512bw", ALL, "vmovdqa64 \\i * 64(%[pattern]), %%zmm\\i",
     "vpcmpeqb \\i * 64(%[pattern]), %%zmm\\i, %%k1\n kortestq %%k1, %%k1",
     "vpxorq %%zmm19, %%zmm19, %%zmm19",
     "movabsq $0x5a5a12345a5aff01, %%rax\n .irp k,2,3,4,5,6,7\n kmovq %%rax, %%k\\k\n.endr\n",
     "movabsq $0x5a5a12345a5aff01, %%r15\n .irp k,2,3,4,5,6,7\n kmovq %%k\\k, %%rax\n"
     "cmpq %%r15, %%rax\n jne 9f\n.endr\n movabsq $0x0123456789abcd00 + 15, %%r15\n")

/* Which registers changed while a loop of so many turns ran: "" if none did. With harm one of them
 * does. */
const char *registers_kept(long turns, int harm)
{
    long wrong;

    for (unsigned i = 0; i < sizeof patterns; i++)
        patterns[i] = (uint8_t)(i * 7 + i / 64 + 1);
    if (__builtin_cpu_supports("avx512bw"))
        wrong = kept_avx512(turns, harm);
    else if (__builtin_cpu_supports("avx2"))
        wrong = kept_avx(turns, harm);
    else
        wrong = kept_sse(turns, harm);
    switch (wrong) {
    case 0: return "";
    case 1: return "vector registers";
    case 2: return "mask registers";
    case 4: return "below the stack pointer";
    case 8: return "general registers";
    case 16: return "mxcsr";
    default: return "x87 state";
    }
}
