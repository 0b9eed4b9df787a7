#include "fs/arch/insn.h"
#include "tests/unit/check.h"

#include <stdio.h>

#define PC 0x1000

struct sample {
    const char *code;
    size_t size;
    enum insn_kind kind;
    int64_t value;
    uint64_t target;
};

#define CODE(bytes) bytes, sizeof bytes - 1

/* As binutils' disassembler reads them. */
static const struct sample samples[] = {
    {CODE("\xf3\x0f\x1e\xfa"), INSN_OTHER},                       /* endbr64 */
    {CODE("\x55"), INSN_PUSH},                                    /* push %rbp */
    {CODE("\x41\x57"), INSN_PUSH},                                /* push %r15 */
    {CODE("\x6a\x01"), INSN_PUSH},                                /* push $1 */
    {CODE("\xff\x73\x08"), INSN_PUSH},                            /* push 8(%rbx) */
    {CODE("\x5b"), INSN_POP},                                     /* pop %rbx */
    {CODE("\x41\x5c"), INSN_POP},                                 /* pop %r12 */
    {CODE("\x5c"), INSN_RSP_OTHER},                               /* pop %rsp */
    {CODE("\x48\x89\xe5"), INSN_SET_RBP},                         /* mov %rsp,%rbp */
    {CODE("\x48\x8b\xec"), INSN_SET_RBP},                         /* the same, other encoding */
    {CODE("\x48\x8d\x6c\x24\x10"), INSN_SET_RBP_OFFSET, 0x10},    /* lea 16(%rsp),%rbp */
    {CODE("\x48\x83\xec\x28"), INSN_ADD_RSP, -0x28},              /* sub $40,%rsp */
    {CODE("\x48\x83\xc4\x80"), INSN_ADD_RSP, -0x80},              /* add $-128,%rsp */
    {CODE("\x48\x81\xec\x88\x01\x00\x00"), INSN_ADD_RSP, -0x188}, /* sub $392,%rsp */
    {CODE("\x48\x8d\x64\x24\xf8"), INSN_ADD_RSP, -8},             /* lea -8(%rsp),%rsp */
    {CODE("\x48\x8d\x65\xd8"), INSN_RSP_FROM_RBP, -0x28},         /* lea -40(%rbp),%rsp */
    {CODE("\x48\x89\xec"), INSN_RSP_FROM_RBP},                    /* mov %rbp,%rsp */
    {CODE("\x48\x83\xe4\xc0"), INSN_ALIGN_RSP, -64},              /* and $-64,%rsp */
    {CODE("\x48\x29\xc4"), INSN_RSP_OTHER},                       /* sub %rax,%rsp */
    {CODE("\x48\x89\xe7"), INSN_OTHER},                           /* mov %rsp,%rdi */
    {CODE("\x48\x39\xe0"), INSN_OTHER},                           /* cmp %rsp,%rax */
    {CODE("\x48\x83\xfc\x10"), INSN_OTHER},                       /* cmp $16,%rsp */
    {CODE("\xc9"), INSN_LEAVE},
    {CODE("\xc3"), INSN_STOP},
    {CODE("\xf3\xc3"), INSN_STOP}, /* repz ret */
    {CODE("\x0f\x0b"), INSN_STOP}, /* ud2 */
    {CODE("\xe8\x10\x00\x00\x00"), INSN_CALL, 0x10, PC + 5 + 0x10},
    {CODE("\x67\xe8\xf0\xff\xff\xff"), INSN_CALL, -0x10, PC + 6 - 0x10}, /* addr32 call */
    {CODE("\xff\xd0"), INSN_CALL},                                       /* call *%rax */
    {CODE("\x41\xff\x94\x24\x80\x00\x00\x00"), INSN_CALL},               /* call *128(%r12) */
    {CODE("\xff\x15\x20\x00\x00\x00"), INSN_CALL_SLOT, 0x20, PC + 6 + 0x20},
    {CODE("\xf2\xff\x25\x20\x00\x00\x00"), INSN_JUMP_SLOT, 0x20, PC + 7 + 0x20}, /* bnd jmp */
    {CODE("\x3e\xff\xe0"), INSN_JUMP}, /* notrack jmp *%rax */
    {CODE("\xe9\x00\x01\x00\x00"), INSN_JUMP, 0x100, PC + 5 + 0x100},
    {CODE("\xeb\xfe"), INSN_JUMP, -2, PC},
    {CODE("\x75\x05"), INSN_BRANCH, 5, PC + 2 + 5},
    {CODE("\x0f\x84\x00\x02\x00\x00"), INSN_BRANCH, 0x200, PC + 6 + 0x200},
    {CODE("\x0f\x1f\x84\x00\x00\x00\x00\x00"), INSN_OTHER}, /* 8-byte nop */
    {CODE("\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00"), INSN_OTHER},
    {CODE("\x64\x48\x8b\x04\x25\x28\x00\x00\x00"), INSN_OTHER},     /* mov %fs:0x28,%rax */
    {CODE("\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08"), INSN_OTHER}, /* movabs */
    {CODE("\x66\xb8\x01\x02"), INSN_OTHER},                         /* mov $0x201,%ax */
    {CODE("\x66\x81\x3b\x01\x02"), INSN_OTHER},                     /* cmpw $0x201,(%rbx) */
    {CODE("\xf6\x05\x01\x02\x03\x04\x05"), INSN_OTHER},             /* testb $5,x(%rip) */
    {CODE("\xf7\xd8"), INSN_OTHER},                                 /* neg %eax */
    {CODE("\x66\x0f\x3a\x0f\xc1\x08"), INSN_OTHER},                 /* palignr */
    {CODE("\xc5\xf8\x77"), INSN_OTHER},                             /* vzeroupper */
    {CODE("\xc5\xfd\x6f\x45\x10"), INSN_OTHER},                     /* vmovdqa */
    {CODE("\xc4\xe3\x7d\x39\xc1\x01"), INSN_OTHER},                 /* vextracti128 */
    {CODE("\x62\xf1\xfe\x48\x6f\x46\x01"), INSN_OTHER},             /* vmovdqu64 */
    {CODE("\x62\xf3\x75\x48\x25\xc2\xff"), INSN_OTHER},             /* vpternlogd */
    {CODE("\x0f\x05"), INSN_OTHER},                                 /* syscall */
};

static void test_samples(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        struct insn insn;
        uint8_t code[32] = {0};
        memcpy(code, s->code, s->size);
        if (!insn_decode(code, sizeof code, PC, &insn) || insn.size != s->size ||
            insn.kind != s->kind || insn.target != s->target ||
            (s->value && insn.value != s->value)) {
            fprintf(stderr, "sample %zu: size %u kind %d value %lld target %llx\n", i, insn.size,
                    insn.kind, (long long)insn.value, (unsigned long long)insn.target);
            exit(1);
        }
        for (size_t n = 0; n < s->size; n++) /* cut off: not decoded, not read beyond */
            CHECK(!insn_decode(code, n, PC, &insn) || insn.size <= n);
    }
}

static bool call_before(const char *bytes, size_t size, struct insn *out)
{
    return insn_call_before((const uint8_t *)bytes, size, PC, out);
}

static void test_call_before(void)
{
    struct insn insn;

    CHECK(call_before(CODE("\x90\x90\x90\xe8\xfb\x0f\x00\x00"), &insn));
    CHECK(insn.kind == INSN_CALL && insn.target == PC + 0xffb);
    CHECK(call_before(CODE("\x90\x90\xff\x15\x00\x20\x00\x00"), &insn));
    CHECK(insn.kind == INSN_CALL_SLOT && insn.target == PC + 0x2000);
    CHECK(call_before(CODE("\x90\x90\x90\x90\x90\x90\xff\xd0"), &insn));
    CHECK(insn.kind == INSN_CALL && !insn.target);
    CHECK(call_before(CODE("\x90\x90\x90\x90\x90\x41\xff\xd4"), &insn));
    CHECK(!call_before(CODE("\x90\x90\x90\x90\x90\x90\x90\x90"), &insn));
    CHECK(!call_before(CODE("\xe8\x00\x00\x00\x00\x48\x89\xc3"), &insn)); /* not directly before */
    CHECK(!call_before(CODE("\x90\xe9\x00\x00\x00\x00\xff\xe0"), &insn)); /* jumps */
    CHECK(!call_before(CODE(""), &insn));
}

int main(void)
{
    test_samples();
    test_call_before();
    return 0;
}
