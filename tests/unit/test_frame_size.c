/* Frames measured by following the code, against what the compiler says of the same functions:
 * those of the C library that this test runs with. */
#include "fs/remote/native/frame_size.h"
#include "fs/arch/insn.h"
#include "fs/remote/native/modules.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <unistd.h>

#define FUNCTIONS 600

static struct modules modules;
static struct {
    size_t same, unknown;
} count;

/* Each return address of one function. */
static void check_function(const struct module *module, uint64_t start, uint64_t end)
{
    size_t size = end - start;
    uint8_t *code = malloc(size);
    struct insn insn;

    CHECK(code);
    CHECK_INT(pages_read(&modules.pages, start, code, size), 0);
    for (uint64_t pc = start; pc < end && insn_decode(code + (pc - start), end - pc, pc, &insn);) {
        struct cfi_row row;
        int64_t depth;
        pc += insn.size;
        if ((insn.kind != INSN_CALL && insn.kind != INSN_CALL_SLOT) || pc == end ||
            cfi_find(&modules.pages, &module->cfi, pc - 1, &row) < 0 ||
            row.cfa.how != CFI_REGISTER || row.cfa.reg != DW_SP)
            continue;
        if (frame_size(code, size, start, pc, &depth) < 0)
            count.unknown++;
        else {
            CHECK_INT(depth, row.cfa.offset);
            count.same++;
        }
    }
    free(code);
}

static void test_library(void)
{
    struct maps maps;
    struct cfi_row row;
    bool changed;
    int32_t entry[2];

    CHECK_INT(maps_read(getpid(), &maps), 0);
    CHECK_INT(modules_refresh(&modules, &maps, &changed), 0);
    struct module *module = modules_find(&modules, (uint64_t)(uintptr_t)&qsort);
    CHECK(module && module->cfi.n > FUNCTIONS);
    uint32_t every = module->cfi.n / FUNCTIONS;
    for (uint32_t i = 0; i < module->cfi.n; i += every) {
        CHECK_INT(pages_read(&modules.pages, module->cfi.entries + 8ull * i, entry, 8), 0);
        uint64_t start = module->cfi.header + (uint64_t)(int64_t)entry[0];
        if (cfi_find(&modules.pages, &module->cfi, start, &row) == 0 && row.start == start &&
            row.cfa.how == CFI_REGISTER && row.cfa.reg == DW_SP && row.cfa.offset == 8 &&
            row.end - start <= FRAME_SIZE_CODE_MAX)
            check_function(module, start, row.end);
    }
    CHECK(count.same > 200);
    CHECK(count.same > 4 * count.unknown);
    maps_deinit(&maps);
}

static int measure(const char *code, size_t size, uint64_t at, int64_t *out)
{
    return frame_size((const uint8_t *)code, size, 0x1000, 0x1000 + at, out);
}

static void test_edges(void)
{
    /* push %rbp; mov %rsp,%rbp; push %rbx; sub $0x18,%rsp; call; pop; leave; ret */
    static const char code[] = "\x55\x48\x89\xe5\x53\x48\x83\xec\x18\xe8\0\0\0\0\x5b\xc9\xc3";
    int64_t depth = 0;

    CHECK_INT(measure(code, sizeof code - 1, 0, &depth), 0);
    CHECK_INT(depth, 8);
    CHECK_INT(measure(code, sizeof code - 1, 14, &depth), 0);
    CHECK_INT(depth, 8 + 8 + 8 + 0x18);
    CHECK_INT(measure(code, sizeof code - 1, 16, &depth), 0); /* after leave */
    CHECK_INT(depth, 8);
    CHECK_INT(measure(code, sizeof code - 1, 2, &depth), -ENOENT); /* within an instruction */
    CHECK_INT(measure(code, sizeof code - 1, 100, &depth), -ENOENT);
    CHECK_INT(measure(code, 0, 0, &depth), -ENOENT);
    /* je over a push: two depths at one place */
    CHECK_INT(measure("\x74\x01\x50\x90\xc3", 5, 3, &depth), -EDOM);
    /* and $-64,%rsp: lost */
    CHECK_INT(measure("\x48\x83\xe4\xc0\x90", 5, 4, &depth), -ENOENT);
    /* push; and $-16,%rsp: as far as the ABI aligns it already */
    CHECK_INT(measure("\x50\x50\x48\x83\xe4\xf0\x90", 7, 6, &depth), 0);
    CHECK_INT(depth, 32);
    /* pushes in a loop: ends, and knows that it can't tell */
    CHECK_INT(measure("\x50\xeb\xfd", 3, 0, &depth), -EDOM);
}

int main(void)
{
    struct memory memory = {.pid = getpid()};

    modules_init(&modules, &memory);
    test_library();
    test_edges();
    modules_deinit(&modules);
    return 0;
}
