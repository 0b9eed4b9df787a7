#include "agent/watch/trap_guard.h"

#include "agent/arch/arch.h"
#include "agent/cpython/python.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALL "sigaction"

static struct {
    trap_action *action;
    uint64_t *entry; /* of the interpreter's table; NULL: it is as it was */
    bool read_only;  /* it lies where the loader has taken the right to write away */
    uint64_t before;
} guard;

static int guarded(int number, const struct sigaction *action, struct sigaction *old)
{
    return number == SIGTRAP ? guard.action(action, old) : sigaction(number, action, old);
}

/* ---- the interpreter's image ---- */

/* What its dynamic section says; the loader has made addresses of it where that can be written. */
struct image {
    uint64_t base;
    const char *strings;
    const Elf64_Sym *symbols;
    struct {
        const Elf64_Rela *items;
        size_t size; /* bytes */
    } tables[2];
};

static const void *address_in(const struct image *image, uint64_t value)
{
    return (const void *)(uintptr_t)(value < image->base ? image->base + value : value);
}

static void read_dynamic(const Elf64_Dyn *dynamic, struct image *image)
{
    for (const Elf64_Dyn *d = dynamic; d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_STRTAB: image->strings = address_in(image, d->d_un.d_ptr); break;
        case DT_SYMTAB: image->symbols = address_in(image, d->d_un.d_ptr); break;
        case DT_JMPREL: image->tables[0].items = address_in(image, d->d_un.d_ptr); break;
        case DT_PLTRELSZ: image->tables[0].size = d->d_un.d_val; break;
        case DT_RELA: image->tables[1].items = address_in(image, d->d_un.d_ptr); break;
        case DT_RELASZ: image->tables[1].size = d->d_un.d_val; break;
        }
    }
}

/* The entry by which an image calls sigaction(); NULL: it has none. */
static uint64_t *find_entry(const struct image *image)
{
    for (int t = 0; t < 2 && image->strings && image->symbols; t++) {
        const Elf64_Rela *items = image->tables[t].items;
        for (size_t i = 0; items && i < image->tables[t].size / sizeof *items; i++) {
            uint64_t type = ELF64_R_TYPE(items[i].r_info);
            const Elf64_Sym *symbol = &image->symbols[ELF64_R_SYM(items[i].r_info)];
            if ((type == ARCH_RELOCATION_SLOT || type == ARCH_RELOCATION_ADDRESS) &&
                !strcmp(image->strings + symbol->st_name, CALL))
                return (uint64_t *)(uintptr_t)(image->base + items[i].r_offset);
        }
    }
    return NULL;
}

static bool lies_in(const Elf64_Phdr *segment, uint64_t base, const void *address)
{
    return (uint64_t)(uintptr_t)address - base - segment->p_vaddr < segment->p_memsz;
}

/* Looks at one library; for dl_iterate_phdr(3). 1: it is the interpreter, and no more are wanted.
 */
static int visit(struct dl_phdr_info *info, size_t size, void *unused)
{
    const Elf64_Phdr *dynamic = NULL, *relro = NULL;
    struct image image = {.base = info->dlpi_addr};
    bool found = false;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_DYNAMIC)
            dynamic = segment;
        else if (segment->p_type == PT_GNU_RELRO)
            relro = segment;
        else if (segment->p_type == PT_LOAD)
            found = found || lies_in(segment, image.base, python.runtime);
    }
    if (!found || !dynamic)
        return found;
    read_dynamic((const Elf64_Dyn *)(uintptr_t)(image.base + dynamic->p_vaddr), &image);
    guard.entry = find_entry(&image);
    guard.read_only = relro && guard.entry && lies_in(relro, image.base, guard.entry);
    return 1;
}

/* ---- the entry ---- */

static bool protect(int protection)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)guard.entry & ~(page - 1));

    return !guard.read_only || mprotect(start, page, protection) == 0;
}

static bool write_entry(uint64_t value)
{
    if (!protect(PROT_READ | PROT_WRITE))
        return false;
    __atomic_store_n(guard.entry, value, __ATOMIC_RELEASE);
    protect(PROT_READ);
    return true;
}

bool trap_guard_begin(trap_action *action)
{
    if (guard.entry)
        return true;
    guard.action = action;
    dl_iterate_phdr(visit, NULL);
    if (!guard.entry)
        return false;
    guard.before = *guard.entry;
    if (write_entry((uint64_t)(uintptr_t)guarded))
        return true;
    guard.entry = NULL;
    return false;
}

void trap_guard_end(void)
{
    if (guard.entry && write_entry(guard.before))
        guard.entry = NULL;
}
