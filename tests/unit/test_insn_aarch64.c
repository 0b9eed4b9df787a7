/* The decoder of another machine than this one, perhaps: it only reads bytes. */
#include "fs/arch/insn.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

#define PC 0x1000

/* As binutils' disassembler reads them. */
static const struct sample {
    uint32_t word;
    enum insn_kind kind;
    int64_t value;
    uint64_t target;
} samples[] = {
    {0xa9bd7bfd, INSN_ADD_RSP, -48},         /* stp x29, x30, [sp, #-48]! */
    {0xa8c37bfd, INSN_ADD_RSP, 48},          /* ldp x29, x30, [sp], #48 */
    {0x6dbc27e8, INSN_ADD_RSP, -64},         /* stp d8, d9, [sp, #-64]! */
    {0xa90153f3, INSN_OTHER},                /* stp x19, x20, [sp, #16] */
    {0xd10483ff, INSN_ADD_RSP, -0x120},      /* sub sp, sp, #0x120 */
    {0x91400bff, INSN_ADD_RSP, 0x2000},      /* add sp, sp, #2, lsl #12 */
    {0x910003fd, INSN_SET_RBP},              /* mov x29, sp */
    {0x910043fd, INSN_SET_RBP_OFFSET, 16},   /* add x29, sp, #16 */
    {0x910003bf, INSN_RSP_FROM_RBP},         /* mov sp, x29 */
    {0xd10083bf, INSN_RSP_FROM_RBP, -32},    /* sub sp, x29, #32 */
    {0xcb2163ff, INSN_RSP_OTHER},            /* sub sp, sp, x1 */
    {0x927ae53f, INSN_RSP_OTHER},            /* and sp, x9, #-64 */
    {0xf81f0ff3, INSN_ADD_RSP, -16},         /* str x19, [sp, #-16]! */
    {0xf84107f3, INSN_ADD_RSP, 16},          /* ldr x19, [sp], #16 */
    {0xf90007e0, INSN_OTHER},                /* str x0, [sp, #8] */
    {0x910003e1, INSN_OTHER},                /* mov x1, sp */
    {0xf100403f, INSN_OTHER},                /* cmp x1, #16 */
    {0xd503233f, INSN_OTHER},                /* paciasp */
    {0x94000400, INSN_CALL, 0, PC + 0x1000}, /* bl .+0x1000 */
    {0xd63f0060, INSN_CALL},                 /* blr x3 */
    {0x17ffffc0, INSN_JUMP, 0, PC - 0x100},  /* b .-0x100 */
    {0xd61f0200, INSN_JUMP},                 /* br x16 */
    {0x54000041, INSN_BRANCH, 0, PC + 8},    /* b.ne .+8 */
    {0x34ffffe0, INSN_BRANCH, 0, PC - 4},    /* cbz w0, .-4 */
    {0xb7f80080, INSN_BRANCH, 0, PC + 16},   /* tbnz x0, #63, .+16 */
    {0xd65f03c0, INSN_STOP},                 /* ret */
    {0xd65f0bff, INSN_STOP},                 /* retaa */
    {0xd4200020, INSN_STOP},                 /* brk #1 */
};

static void test_samples(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        struct insn insn;
        uint8_t code[4];
        memcpy(code, &s->word, sizeof code);
        if (!insn_decode(code, sizeof code, PC, &insn) || insn.size != 4 || insn.kind != s->kind ||
            insn.target != s->target || (s->value && insn.value != s->value)) {
            fprintf(stderr, "sample %zu: kind %d value %lld target %llx\n", i, insn.kind,
                    (long long)insn.value, (unsigned long long)insn.target);
            exit(1);
        }
        CHECK(!insn_decode(code, 3, PC, &insn));
    }
}

static void test_calls_and_stubs(void)
{
    /* nop; blr x3 */
    static const uint32_t call[] = {0xd503201f, 0xd63f0060};
    /* bti c; adrp x16, .+0x2000; ldr x17, [x16, #0x18]; add x16, x16, #0x18; br x17 */
    static const uint32_t stub[] = {0xd503245f, 0xd0000010, 0xf9400e11, 0x91006210, 0xd61f0220};
    struct insn insn;

    CHECK(insn_call_before((const uint8_t *)call, 8, PC, &insn) && !insn.target);
    CHECK(!insn_call_before((const uint8_t *)call, 4, PC, &insn));
    CHECK(insn_stub((const uint8_t *)stub, sizeof stub, PC, &insn));
    CHECK(insn.kind == INSN_JUMP_SLOT && insn.target == PC + 0x2000 + 0x18);
    CHECK(!insn_stub((const uint8_t *)stub, 16, PC, &insn));
    CHECK(!insn_stub((const uint8_t *)call, sizeof call, PC, &insn));
}

int main(void)
{
    test_samples();
    test_calls_and_stubs();
    return 0;
}
