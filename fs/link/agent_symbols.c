/* What the linker would have done: each undefined symbol of Python's becomes one with an absolute
 * address. It is hidden, too, so that it binds in its own library and no other library's symbol of
 * that name is taken for it (dl_symbol_visibility_binds_local_p(), glibc's elf/dl-machine.h and
 * sysdeps/generic/ldsodefs.h; absolute since 2.28). */
#include "fs/link/agent_symbols.h"

#include "agent/base/cleanup.h"
#include "agent/cpython/look_up.h"
#include "fs/remote/memory/elf.h"
#include "fs/remote/memory/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 3 /* of those that are missing: more are counted */

/* Those of the library, which is our own and can be relied on. */
struct dynamic {
    Elf64_Sym *symbols;
    size_t n;
    const char *names;
};

static int find_dynamic(char *image, struct dynamic *out)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);

    for (size_t i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_DYNSYM) {
            out->symbols = (Elf64_Sym *)(image + sections[i].sh_offset);
            out->n = sections[i].sh_size / sizeof *out->symbols;
            out->names = image + sections[sections[i].sh_link].sh_offset;
            return 0;
        }
    return -ENOEXEC;
}

/* ---- what is wanted ---- */

/* Whether this version has it: what isn't looked up is in all. */
static bool has(uint32_t version, const char *name)
{
#define ENTRY(name, since, until) {#name, since, until},
    static const struct {
        const char *name;
        unsigned since, until;
    } table[] = {LOOKED_UP(ENTRY)};

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (!strcmp(table[i].name, name))
            return version >> 16 >= table[i].since &&
                   (!table[i].until || version >> 16 <= table[i].until);
    return true;
}

static bool is_wanted(const struct dynamic *dynamic, const Elf64_Sym *symbol, uint32_t version)
{
    const char *name = dynamic->names + symbol->st_name;

    return symbol->st_shndx == SHN_UNDEF && (!strncmp(name, "Py", 2) || !strncmp(name, "_Py", 3)) &&
           has(version, name);
}

static int by_name(const void *a, const void *b)
{
    const struct elf_file_symbol *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The names, ascending; the caller's. */
static struct elf_file_symbol *collect(const struct dynamic *dynamic, uint32_t version, size_t *n)
{
    struct elf_file_symbol *wanted = calloc(dynamic->n + 1, sizeof *wanted);

    *n = 0;
    for (size_t i = 0; wanted && i < dynamic->n; i++)
        if (is_wanted(dynamic, &dynamic->symbols[i], version))
            wanted[(*n)++].name = dynamic->names + dynamic->symbols[i].st_name;
    if (wanted)
        qsort(wanted, *n, sizeof *wanted, by_name);
    return wanted;
}

static const struct elf_file_symbol *find(const struct elf_file_symbol *wanted, size_t n,
                                          const char *name)
{
    struct elf_file_symbol key = {.name = name};
    return bsearch(&key, wanted, n, sizeof key, by_name);
}

/* ---- where it is ---- */

static int read_symtab(const struct target *target, struct elf_file_symbol *wanted, size_t n,
                       struct text *why)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/exe", (int)target->pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int r = fd < 0 ? -errno : elf_file_symbols(fd, wanted, n);
    if (r == -ENOENT && fd >= 0) {
        text_puts(why, "the program exports none of Python's functions (it was linked with a "
                       "static libpython) and is stripped, so that an agent can't be linked with "
                       "them; link it with -Wl,--export-dynamic, or leave its .symtab in it");
        return -EOPNOTSUPP;
    }
    return r == -ENOENT ? -ESRCH : r;
}

/* Whether each was found, in what is loaded. */
static int check(const struct elf_image *image, const struct elf_file_symbol *wanted, size_t n,
                 struct text *why)
{
    size_t missing = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t addr = image->bias + wanted[i].addr;
        if (wanted[i].addr && addr >= image->base && addr < image->end)
            continue;
        if (!missing)
            text_puts(why, "the program exports none of Python's functions (it was linked with a "
                           "static libpython), and the .symtab of its file has no address, or "
                           "several, for ");
        if (missing++ < NAMED_MAX)
            text_printf(why, "%s%s", missing > 1 ? ", " : "", wanted[i].name);
    }
    if (!missing)
        return 0;
    if (missing > NAMED_MAX)
        text_printf(why, " and %zu more", missing - NAMED_MAX);
    text_puts(why, ", which an agent needs; link it with -Wl,--export-dynamic");
    return -EOPNOTSUPP;
}

/* Finds all of them, as addresses of the file. */
static int find_all(const struct target *target, const struct elf_image *image,
                    struct elf_file_symbol *wanted, size_t n, struct text *why)
{
    int r = read_symtab(target, wanted, n, why);
    if (r == 0)
        r = check(image, wanted, n, why);
    if (r < 0)
        return r;
    const struct elf_file_symbol *runtime = find(wanted, n, "_PyRuntime");
    if (runtime && image->bias + runtime->addr == target->runtime.addr)
        return 0;
    text_puts(why, "the .symtab of the program's file doesn't fit to what runs");
    return -EOPNOTSUPP;
}

/* ---- into the image ---- */

static void put(const struct dynamic *dynamic, const struct elf_file_symbol *wanted, size_t n,
                uint64_t bias)
{
    for (size_t i = 0; i < dynamic->n; i++) {
        Elf64_Sym *symbol = &dynamic->symbols[i];
        const struct elf_file_symbol *found =
            symbol->st_shndx == SHN_UNDEF ? find(wanted, n, dynamic->names + symbol->st_name)
                                          : NULL;
        if (!found)
            continue;
        symbol->st_shndx = SHN_ABS;
        symbol->st_value = bias + found->addr;
        symbol->st_size = found->size;
        symbol->st_other = STV_HIDDEN;
    }
}

int agent_symbols_link(const struct target *target, const struct inject_image *image, char **out,
                       struct text *why)
{
    const struct runtime *rt = &target->runtime;
    struct elf_image loaded;
    struct dynamic dynamic;
    size_t n;

    _cleanup_free_ char *copy = malloc(image->size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, image->data, image->size);
    int r = find_dynamic(copy, &dynamic);
    if (r == 0)
        r = elf_image_read(&target->memory, rt->image_base, &loaded);
    if (r < 0)
        return r;
    _cleanup_free_ struct elf_file_symbol *wanted = collect(&dynamic, rt->version, &n);
    if (!wanted)
        return -ENOMEM;
    r = find_all(target, &loaded, wanted, n, why);
    if (r < 0)
        return r;
    put(&dynamic, wanted, n, loaded.bias);
    *out = steal_pointer(copy);
    return 0;
}
