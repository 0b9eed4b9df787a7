#include "fs/remote/native/symbols.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/memory/core.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define SECTIONS_MAX 65536
#define CHUNK 1024           /* symbols read at once */
#define NESTED_MAX 16        /* labels inside of a function that are stepped over */
#define NAMES_MAX (1u << 30) /* bytes of a string table */

/* 16 bytes each: a large library has a quarter of a million. */
struct entry {
    uint64_t addr;
    uint32_t size;
    uint32_t name : 30; /* offset in the string table */
    uint32_t rank : 2;  /* 0 is the best name for an address: global, weak, local */
};

struct symbols {
    struct entry *entries; /* ascending by address, which are distinct */
    size_t n, alloc;
    bool from_file;
    uint64_t names, names_size; /* string table: offset in the file, or address */
};

static int add_symbol(struct symbols *symbols, const Elf64_Sym *symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);

    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF ||
        !symbol->st_value || symbol->st_name >= symbols->names_size)
        return 0;
    if (symbols->n == symbols->alloc) {
        size_t alloc = symbols->alloc ? symbols->alloc * 2 : 512;
        struct entry *entries = realloc(symbols->entries, alloc * sizeof *entries);
        if (!entries)
            return -ENOMEM;
        symbols->entries = entries;
        symbols->alloc = alloc;
    }
    symbols->entries[symbols->n++] = (struct entry){
        .addr = symbol->st_value,
        .size = symbol->st_size < UINT32_MAX ? (uint32_t)symbol->st_size : UINT32_MAX,
        .name = symbol->st_name,
        .rank = bind == STB_GLOBAL ? 0
                : bind == STB_WEAK ? 1
                                   : 2,
    };
    return 0;
}

static int compare_entries(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;

    if (a->addr != b->addr)
        return a->addr < b->addr ? -1 : 1;
    if (!a->size != !b->size)
        return a->size ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->name < b->name ? -1 : a->name > b->name;
}

/* Sorts, leaves one name for each address, gives back spare memory. */
static void finish(struct symbols *symbols)
{
    size_t kept = 0;

    if (symbols->n)
        array_sort(symbols->entries, symbols->n, sizeof *symbols->entries, compare_entries);
    for (size_t i = 0; i < symbols->n; i++)
        if (!kept || symbols->entries[kept - 1].addr != symbols->entries[i].addr)
            symbols->entries[kept++] = symbols->entries[i];
    symbols->n = kept;
    struct entry *fitting = realloc(symbols->entries, (kept ? kept : 1) * sizeof *fitting);
    if (fitting) {
        symbols->entries = fitting;
        symbols->alloc = kept ? kept : 1;
    }
}

static int read_exactly(int fd, uint64_t offset, void *buf, size_t size)
{
    if (offset > INT64_MAX - size)
        return -ENOEXEC;
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)buf + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENOEXEC; /* shorter than its headers say */
        done += (size_t)n;
    }
    return 0;
}

/* The section headers of an ELF file, malloc'ed. */
static int read_sections(int fd, Elf64_Shdr **out, size_t *n)
{
    Elf64_Ehdr header;

    int r = read_exactly(fd, 0, &header, sizeof header);
    if (r < 0)
        return r;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_machine != ARCH_ELF || header.e_shentsize != sizeof **out)
        return -ENOEXEC;
    if (!header.e_shoff || !header.e_shnum)
        return -ENOENT;
    _cleanup_free_ Elf64_Shdr *sections = calloc(header.e_shnum, sizeof *sections);
    if (!sections)
        return -ENOMEM;
    r = read_exactly(fd, header.e_shoff, sections, header.e_shnum * sizeof *sections);
    if (r < 0)
        return r;
    *out = steal_pointer(sections);
    *n = header.e_shnum;
    return 0;
}

static int read_table(int fd, const Elf64_Shdr *table, struct symbols *symbols)
{
    Elf64_Sym chunk[CHUNK];
    uint64_t left = table->sh_size / sizeof *chunk;

    for (uint64_t offset = table->sh_offset; left;) {
        size_t n = left < CHUNK ? left : CHUNK;
        int r = read_exactly(fd, offset, chunk, n * sizeof *chunk);
        for (size_t i = 0; r == 0 && i < n && symbols->n < SYMBOLS_MAX; i++)
            r = add_symbol(symbols, &chunk[i]);
        if (r < 0)
            return r;
        if (symbols->n >= SYMBOLS_MAX)
            return 0;
        offset += n * sizeof *chunk;
        left -= n;
    }
    return 0;
}

static const Elf64_Shdr *find_section(const Elf64_Shdr *sections, size_t n, uint32_t type)
{
    for (size_t i = 0; i < n; i++)
        if (sections[i].sh_type == type && sections[i].sh_link < n &&
            sections[i].sh_entsize == sizeof(Elf64_Sym))
            return &sections[i];
    return NULL;
}

int symbols_read(int fd, struct symbols **out)
{
    _cleanup_free_ Elf64_Shdr *sections = NULL;
    size_t n = 0;

    int r = read_sections(fd, &sections, &n);
    if (r < 0)
        return r;
    const Elf64_Shdr *table = find_section(sections, n, SHT_SYMTAB);
    if (!table)
        table = find_section(sections, n, SHT_DYNSYM);
    if (!table)
        return -ENOENT;
    const Elf64_Shdr *names = &sections[table->sh_link];
    struct symbols *symbols = calloc(1, sizeof *symbols);
    if (!symbols)
        return -ENOMEM;
    symbols->from_file = true;
    symbols->names = names->sh_offset;
    symbols->names_size = names->sh_size < NAMES_MAX ? names->sh_size : NAMES_MAX;
    r = read_table(fd, table, symbols);
    if (r < 0) {
        symbols_free(symbols);
        return r;
    }
    finish(symbols);
    *out = symbols;
    return 0;
}

int symbols_read_image(const struct memory *m, const struct elf_image *image, struct symbols **out)
{
    Elf64_Sym chunk[CHUNK];
    uint32_t n = elf_image_symbol_count(m, image);

    if (!n)
        return -ENOENT;
    struct symbols *symbols = calloc(1, sizeof *symbols);
    if (!symbols)
        return -ENOMEM;
    symbols->names = image->strtab;
    symbols->names_size = image->strtab_size < NAMES_MAX ? image->strtab_size : NAMES_MAX;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < n && symbols->n < SYMBOLS_MAX; i += CHUNK) {
        uint32_t step = n - i < CHUNK ? n - i : CHUNK;
        r = memory_read(m, image->symtab + sizeof *chunk * i, chunk, step * sizeof *chunk);
        for (uint32_t k = 0; r == 0 && k < step && symbols->n < SYMBOLS_MAX; k++)
            r = add_symbol(symbols, &chunk[k]);
    }
    if (r < 0) {
        symbols_free(symbols);
        return r;
    }
    finish(symbols);
    *out = symbols;
    return 0;
}

void symbols_free(struct symbols *symbols)
{
    if (!symbols)
        return;
    free(symbols->entries);
    free(symbols);
}

size_t symbols_size(const struct symbols *symbols)
{
    return sizeof *symbols + symbols->alloc * sizeof *symbols->entries;
}

bool symbols_find(const struct symbols *symbols, uint64_t addr, uint64_t start, struct symbol *out)
{
    size_t beyond = LOWER_BOUND(symbols->n, i, symbols->entries[i].addr <= addr);

    for (size_t i = beyond; i-- > 0 && beyond - i <= NESTED_MAX;) {
        const struct entry *entry = &symbols->entries[i];
        bool holds = addr - entry->addr < entry->size;
        /* The entry of a function's table and its symbol can differ in size (assembly); that they
         * begin at the same place is proof enough. */
        if (holds || entry->addr == start || (!entry->size && entry->addr > start)) {
            *out = (struct symbol){entry->addr, entry->size, entry->name};
            return true;
        }
    }
    return false;
}

int symbols_name(const struct symbols *symbols, const struct memory *m, int fd,
                 const struct symbol *symbol, char *buf, size_t cap)
{
    if (!symbols->from_file) {
        ssize_t n = memory_read_string(m, symbols->names + symbol->name, buf, cap);
        return n < 0 ? (int)n : n == 0 ? -ENOENT : 0;
    }
    size_t room = symbols->names_size - symbol->name;
    if (room > cap - 1)
        room = cap - 1;
    ssize_t n = pread(fd, buf, room, (off_t)(symbols->names + symbol->name));
    if (n < 0)
        return -errno;
    buf[n] = 0;
    return buf[0] ? 0 : -ENOENT;
}

/* An O_NONBLOCK descriptor of a regular file. */
static int open_regular(const char *path, struct stat *st)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, st) < 0)
        return -errno;
    if (!S_ISREG(st->st_mode))
        return -ENOENT;
    return steal_fd(fd);
}

/* Whether the file carries the build id that the loaded image has. */
static bool same_build_id(int fd, const struct elf_image *image)
{
    _cleanup_free_ Elf64_Shdr *sections = NULL;
    size_t n = 0;
    uint8_t note[16 + sizeof image->build_id];
    size_t size = 16 + image->build_id_size; /* name size, its own, type, "GNU" */

    if (!image->build_id_size || read_sections(fd, &sections, &n) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (sections[i].sh_type == SHT_NOTE && sections[i].sh_size >= size &&
            read_exactly(fd, sections[i].sh_offset, note, size) == 0 &&
            load32(note + 4) == image->build_id_size && load32(note + 8) == NT_GNU_BUILD_ID &&
            !memcmp(note + 12, "GNU", 4) && !memcmp(note + 16, image->build_id, size - 16))
            return true;
    return false;
}

int symbols_open(const struct memory *m, const struct mapping *mapping,
                 const struct elf_image *image)
{
    char path[4096 + 32];
    struct stat st;

    if (m->core)
        return core_open_file(m->core, mapping->start);
    if (!mapping->inode)
        return -ENOENT;
    snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)m->pid,
             (unsigned long long)mapping->start, (unsigned long long)mapping->end);
    int fd = open_regular(path, &st);
    if (fd >= 0)
        return fd;
    if (mapping->path[0] != '/')
        return fd;
    /* map_files needs capabilities; the path may mean another file by now */
    snprintf(path, sizeof path, "/proc/%d/root%.4095s", (int)m->pid, mapping->path);
    fd = open_regular(path, &st);
    if (fd < 0)
        return fd;
    if ((st.st_ino == mapping->inode && major(st.st_dev) == mapping->dev_major &&
         minor(st.st_dev) == mapping->dev_minor) ||
        same_build_id(fd, image))
        return fd;
    close(fd);
    return -ENOENT;
}
