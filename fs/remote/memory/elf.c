#include "fs/remote/memory/elf.h"

#include "agent/arch/arch.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define PHDR_MAX 64
#define DYNAMIC_MAX 256
#define CHAIN_MAX 4096 /* symbols in one hash bucket */
#define SYMBOLS_MAX 4000000u
#define NOTES_MAX 4096

size_t elf_notes_build_id(const uint8_t *notes, size_t size, uint8_t *id, size_t cap)
{
    for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        uint64_t name_size = load32(notes + at), desc_size = load32(notes + at + 4);
        uint64_t name = at + sizeof(Elf64_Nhdr), desc = name + ((name_size + 3) & ~3ull);
        if (desc > size || desc_size > size - desc)
            return 0;
        if (load32(notes + at + 8) == NT_GNU_BUILD_ID && name_size == 4 &&
            !memcmp(notes + name, "GNU", 4) && desc_size <= cap) {
            memcpy(id, notes + desc, desc_size);
            return desc_size;
        }
        at = desc + ((desc_size + 3) & ~3ull);
    }
    return 0;
}

static void read_build_id(const struct memory *m, uint64_t addr, uint64_t size,
                          struct elf_image *image)
{
    uint8_t notes[NOTES_MAX];

    if (size > sizeof notes)
        size = sizeof notes;
    if (memory_read(m, addr, notes, size) == 0)
        image->build_id_size =
            (uint8_t)elf_notes_build_id(notes, size, image->build_id, sizeof image->build_id);
}

/* Addresses in PT_DYNAMIC are relocated in place by glibc, but not by musl or for the vDSO. */
static uint64_t relocated(const struct elf_image *image, uint64_t value)
{
    return value < image->base ? value + image->bias : value;
}

static void read_dynamic(const struct memory *m, uint64_t addr, uint64_t size,
                         struct elf_image *image)
{
    Elf64_Dyn dynamic[DYNAMIC_MAX];

    if (size > sizeof dynamic)
        size = sizeof dynamic;
    if (memory_read(m, addr, dynamic, size) < 0)
        return;
    for (size_t i = 0; i < size / sizeof *dynamic && dynamic[i].d_tag != DT_NULL; i++) {
        uint64_t value = dynamic[i].d_un.d_val;
        switch (dynamic[i].d_tag) {
        case DT_SYMTAB: image->symtab = relocated(image, value); break;
        case DT_STRTAB: image->strtab = relocated(image, value); break;
        case DT_STRSZ: image->strtab_size = value; break;
        case DT_GNU_HASH: image->gnu_hash = relocated(image, value); break;
        }
    }
}

static int read_program(const struct memory *m, uint64_t base, Elf64_Ehdr *header,
                        Elf64_Phdr program[PHDR_MAX])
{
    int r = memory_read(m, base, header, sizeof *header);
    if (r < 0)
        return r;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_machine != ARCH_ELF || header->e_phentsize != sizeof *program ||
        !header->e_phnum || header->e_phnum > PHDR_MAX || header->e_phoff > 1 << 20)
        return -ENOEXEC;
    return memory_read(m, base + header->e_phoff, program, header->e_phnum * sizeof *program);
}

int elf_image_read(const struct memory *m, uint64_t base, struct elf_image *out)
{
    struct elf_image image = {.base = base};
    Elf64_Ehdr header;
    Elf64_Phdr program[PHDR_MAX];

    int r = read_program(m, base, &header, program);
    if (r < 0)
        return r;

    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < header.e_phnum; i++) {
        if (program[i].p_type != PT_LOAD)
            continue;
        if (program[i].p_vaddr < low)
            low = program[i].p_vaddr;
        if (program[i].p_vaddr + program[i].p_memsz > high)
            high = program[i].p_vaddr + program[i].p_memsz;
    }
    if (low == UINT64_MAX || high <= low)
        return -ENOEXEC;
    image.bias = base - (low & ~4095ull);
    image.end = image.bias + high;

    for (size_t i = 0; i < header.e_phnum; i++) {
        uint64_t addr = image.bias + program[i].p_vaddr, size = program[i].p_memsz;
        if (program[i].p_type == PT_DYNAMIC)
            read_dynamic(m, addr, size, &image);
        else if (program[i].p_type == PT_NOTE && !image.build_id_size)
            read_build_id(m, addr, size, &image);
        else if (program[i].p_type == PT_GNU_EH_FRAME) {
            image.eh_frame_hdr = addr;
            image.eh_frame_hdr_size = size;
        }
    }
    *out = image;
    return 0;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t h = 5381;
    while (*name)
        h = h * 33 + (unsigned char)*name++;
    return h;
}

static bool name_equals(const struct memory *m, uint64_t addr, const char *name)
{
    char buf[128];
    size_t len = strlen(name) + 1;

    return len <= sizeof buf && !memory_read(m, addr, buf, len) && !memcmp(buf, name, len);
}

struct hash_table {
    uint32_t nbuckets, first_symbol;
    uint64_t buckets, chains; /* addresses */
};

static int read_hash_table(const struct memory *m, const struct elf_image *image,
                           struct hash_table *out)
{
    uint32_t head[4]; /* nbuckets, symoffset, bloom_size, bloom_shift */

    if (!image->gnu_hash || !image->symtab || !image->strtab)
        return -ENOENT;
    int r = memory_read(m, image->gnu_hash, head, sizeof head);
    if (r < 0)
        return r;
    if (!head[0] || head[0] > SYMBOLS_MAX || head[2] > SYMBOLS_MAX)
        return -ENOEXEC;
    out->nbuckets = head[0];
    out->first_symbol = head[1];
    out->buckets = image->gnu_hash + sizeof head + 8ull * head[2];
    out->chains = out->buckets + 4ull * head[0];
    return 0;
}

/* The symbols of one name, one after the other: a name may have several versions. */
struct hash_walk {
    struct hash_table table;
    uint32_t hash, index, left; /* left: how many more of the chain are looked at */
};

static int begin_walk(const struct memory *m, const struct elf_image *image, const char *name,
                      struct hash_walk *walk)
{
    int r = read_hash_table(m, image, &walk->table);
    if (r < 0)
        return r;
    walk->hash = gnu_hash(name);
    r = memory_read(m, walk->table.buckets + 4ull * (walk->hash % walk->table.nbuckets),
                    &walk->index, sizeof walk->index);
    if (r < 0)
        return r;
    walk->left = walk->index < walk->table.first_symbol ? 0 : CHAIN_MAX;
    return 0;
}

/* The next defined one. -ENOENT: there is none. */
static int next_symbol(const struct memory *m, const struct elf_image *image, const char *name,
                       struct hash_walk *walk, Elf64_Sym *out)
{
    while (walk->left) {
        uint32_t entry, index = walk->index++;
        int r = memory_read(m, walk->table.chains + 4ull * (index - walk->table.first_symbol),
                            &entry, sizeof entry);
        if (r < 0)
            return r;
        walk->left = entry & 1 ? 0 : walk->left - 1;
        if ((entry | 1) != (walk->hash | 1))
            continue;
        r = memory_read(m, image->symtab + sizeof *out * index, out, sizeof *out);
        if (r < 0)
            return r;
        if (out->st_shndx != SHN_UNDEF && name_equals(m, image->strtab + out->st_name, name))
            return 0;
    }
    return -ENOENT;
}

int elf_image_symbol(const struct memory *m, const struct elf_image *image, const char *name,
                     uint64_t *addr, uint64_t *size)
{
    struct hash_walk walk;
    Elf64_Sym symbol;

    int r = begin_walk(m, image, name, &walk);
    if (r == 0)
        r = next_symbol(m, image, name, &walk, &symbol);
    if (r < 0)
        return r;
    *addr = image->bias + symbol.st_value;
    if (size)
        *size = symbol.st_size;
    return 0;
}

size_t elf_image_functions(const struct memory *m, const struct elf_image *image, const char *name,
                           uint64_t *addrs, size_t max)
{
    struct hash_walk walk;
    Elf64_Sym symbol;
    size_t n = 0;

    if (begin_walk(m, image, name, &walk) < 0)
        return 0;
    while (n < max && next_symbol(m, image, name, &walk, &symbol) == 0)
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
            addrs[n++] = image->bias + symbol.st_value;
    return n;
}

int elf_image_code_end(const struct memory *m, const struct elf_image *image, uint64_t *end)
{
    Elf64_Ehdr header;
    Elf64_Phdr program[PHDR_MAX];

    int r = read_program(m, image->base, &header, program);
    if (r < 0)
        return r;
    for (size_t i = 0; i < header.e_phnum; i++)
        if (program[i].p_type == PT_LOAD && program[i].p_flags & PF_X &&
            program[i].p_filesz == program[i].p_memsz) {
            *end = image->bias + program[i].p_vaddr + program[i].p_memsz;
            return 0;
        }
    return -ENOENT;
}

uint32_t elf_image_symbol_count(const struct memory *m, const struct elf_image *image)
{
    struct hash_table table;
    uint32_t last = 0, buckets[1024];

    if (read_hash_table(m, image, &table) < 0)
        return 0;
    for (uint32_t i = 0; i < table.nbuckets; i += 1024) {
        uint32_t n = table.nbuckets - i < 1024 ? table.nbuckets - i : 1024;
        if (memory_read(m, table.buckets + 4ull * i, buckets, 4ull * n) < 0)
            return 0;
        for (uint32_t k = 0; k < n; k++)
            if (buckets[k] > last)
                last = buckets[k];
    }
    if (last < table.first_symbol)
        return table.first_symbol <= SYMBOLS_MAX ? table.first_symbol : 0;
    for (uint32_t i = 0; i < CHAIN_MAX && last < SYMBOLS_MAX; i++, last++) {
        uint32_t entry;
        if (memory_read(m, table.chains + 4ull * (last - table.first_symbol), &entry, 4) < 0)
            return 0;
        if (entry & 1)
            return last + 1;
    }
    return 0;
}
