/* A module's file, which its owner may have written by hand. */
#include "fs/remote/native/symbols.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void look_up(const struct symbols *symbols, int fd, uint64_t addr)
{
    struct symbol symbol;
    char name[64];

    if (!symbols_find(symbols, addr, addr & ~15ull, &symbol))
        return;
    if (symbol.addr > addr)
        abort(); /* begins before what it holds */
    symbols_name(symbols, NULL, fd, &symbol, name, sizeof name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct symbols *symbols;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd >= 0 && write(fd, data, size) == (ssize_t)size && symbols_read(fd, &symbols) == 0) {
        for (uint64_t addr = 0; addr < 0x4000; addr += 61)
            look_up(symbols, fd, addr);
        look_up(symbols, fd, UINT64_MAX);
        symbols_free(symbols);
    }
    if (fd >= 0)
        close(fd);
    return 0;
}
