#include "fs/remote/memory/elf_file.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECTIONS_MAX 1024
#define NAMES_MAX (64u << 10)
#define PROGRAM_MAX 64
#define NOTES_MAX 4096
#define SYMTAB_MAX (64u << 20) /* bytes of .symtab, and of its names */
#define AMBIGUOUS UINT64_MAX

static int read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    ssize_t n = pread(fd, buf, size, (off_t)offset);
    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -ENOEXEC;
}

/* The section headers, the caller's. */
static int read_sections(int fd, Elf64_Ehdr *header, Elf64_Shdr **out)
{
    int r = read_at(fd, header, sizeof *header, 0);
    if (r < 0)
        return r;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64)
        return -ENOEXEC;
    if (!header->e_shnum || header->e_shnum > SECTIONS_MAX ||
        header->e_shstrndx >= header->e_shnum || header->e_shentsize != sizeof(Elf64_Shdr))
        return -ENOENT;

    _cleanup_free_ Elf64_Shdr *sections = calloc(header->e_shnum, sizeof *sections);
    if (!sections)
        return -ENOMEM;
    r = read_at(fd, sections, header->e_shnum * sizeof *sections, header->e_shoff);
    if (r < 0)
        return r;
    *out = sections;
    sections = NULL;
    return 0;
}

/* A section of strings, with a zero behind it; the caller's. */
static int read_strings(int fd, const Elf64_Shdr *section, uint64_t max, char **out)
{
    if (!section->sh_size || section->sh_size > max)
        return -ENOENT;
    _cleanup_free_ char *strings = calloc(1, section->sh_size + 1);
    if (!strings)
        return -ENOMEM;
    int r = read_at(fd, strings, section->sh_size, section->sh_offset);
    if (r < 0)
        return r;
    *out = strings;
    strings = NULL;
    return 0;
}

int elf_file_section(int fd, const char *name, uint64_t *addr, uint64_t *size)
{
    _cleanup_free_ Elf64_Shdr *sections = NULL;
    _cleanup_free_ char *names = NULL;
    Elf64_Ehdr header;

    int r = read_sections(fd, &header, &sections);
    if (r == 0)
        r = read_strings(fd, &sections[header.e_shstrndx], NAMES_MAX, &names);
    if (r < 0)
        return r;
    for (size_t i = 0; i < header.e_shnum; i++)
        if (sections[i].sh_name < sections[header.e_shstrndx].sh_size &&
            !strcmp(names + sections[i].sh_name, name)) {
            *addr = sections[i].sh_addr;
            *size = sections[i].sh_size;
            return 0;
        }
    return -ENOENT;
}

static int by_name(const void *a, const void *b)
{
    const struct elf_file_symbol *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void take_symbol(struct elf_file_symbol *to, const Elf64_Sym *from)
{
    bool local = ELF64_ST_BIND(from->st_info) == STB_LOCAL;

    if (to->addr && (local || !to->local)) {
        if (local && to->local && to->addr != from->st_value)
            to->addr = AMBIGUOUS;
        return;
    }
    to->addr = from->st_value;
    to->size = from->st_size;
    to->local = local;
}

int elf_file_symbols(int fd, struct elf_file_symbol *symbols, size_t n)
{
    _cleanup_free_ Elf64_Shdr *sections = NULL;
    _cleanup_free_ char *names = NULL;
    Elf64_Ehdr header;
    size_t at = 0;

    int r = read_sections(fd, &header, &sections);
    if (r < 0)
        return r;
    while (at < header.e_shnum && sections[at].sh_type != SHT_SYMTAB)
        at++;
    if (at == header.e_shnum || sections[at].sh_link >= header.e_shnum ||
        sections[at].sh_size > SYMTAB_MAX)
        return -ENOENT;
    r = read_strings(fd, &sections[sections[at].sh_link], SYMTAB_MAX, &names);
    if (r < 0)
        return r;
    uint64_t names_size = sections[sections[at].sh_link].sh_size;
    size_t count = sections[at].sh_size / sizeof(Elf64_Sym);
    _cleanup_free_ Elf64_Sym *table = calloc(count ? count : 1, sizeof *table);
    if (!table)
        return -ENOMEM;
    r = read_at(fd, table, count * sizeof *table, sections[at].sh_offset);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        symbols[i] = (struct elf_file_symbol){.name = symbols[i].name};
    for (size_t i = 0; i < count && n; i++) {
        int type = ELF64_ST_TYPE(table[i].st_info);
        if (table[i].st_shndx == SHN_UNDEF || table[i].st_name >= names_size ||
            (type != STT_FUNC && type != STT_OBJECT))
            continue;
        struct elf_file_symbol key = {.name = names + table[i].st_name};
        struct elf_file_symbol *found = bsearch(&key, symbols, n, sizeof key, by_name);
        if (found)
            take_symbol(found, &table[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (symbols[i].addr == AMBIGUOUS)
            symbols[i].addr = 0;
    return 0;
}

size_t elf_file_build_id(int fd, uint8_t *id, size_t cap)
{
    Elf64_Ehdr header;
    Elf64_Phdr program[PROGRAM_MAX];
    uint8_t notes[NOTES_MAX];
    size_t found = 0;

    if (read_at(fd, &header, sizeof header, 0) < 0 || header.e_phentsize != sizeof *program ||
        header.e_phnum > PROGRAM_MAX ||
        read_at(fd, program, header.e_phnum * sizeof *program, header.e_phoff) < 0)
        return 0;
    for (size_t i = 0; i < header.e_phnum && !found; i++) {
        uint64_t size = program[i].p_filesz < sizeof notes ? program[i].p_filesz : sizeof notes;
        if (program[i].p_type == PT_NOTE && read_at(fd, notes, size, program[i].p_offset) == 0)
            found = elf_notes_build_id(notes, size, id, cap);
    }
    return found;
}
