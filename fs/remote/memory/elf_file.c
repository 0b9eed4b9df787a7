#include "fs/remote/memory/elf_file.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define SECTIONS_MAX 1024
#define NAMES_MAX (64u << 10)
#define PROGRAM_MAX 64
#define NOTES_MAX 4096

static int read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    ssize_t n = pread(fd, buf, size, (off_t)offset);
    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -ENOEXEC;
}

int elf_file_section(int fd, const char *name, uint64_t *addr, uint64_t *size)
{
    Elf64_Ehdr header;

    int r = read_at(fd, &header, sizeof header, 0);
    if (r < 0)
        return r;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64)
        return -ENOEXEC;
    if (!header.e_shnum || header.e_shnum > SECTIONS_MAX || header.e_shstrndx >= header.e_shnum ||
        header.e_shentsize != sizeof(Elf64_Shdr))
        return -ENOENT;

    _cleanup_free_ Elf64_Shdr *sections = calloc(header.e_shnum, sizeof *sections);
    if (!sections)
        return -ENOMEM;
    r = read_at(fd, sections, header.e_shnum * sizeof *sections, header.e_shoff);
    if (r < 0)
        return r;
    const Elf64_Shdr *strings = &sections[header.e_shstrndx];
    if (!strings->sh_size || strings->sh_size > NAMES_MAX)
        return -ENOENT;
    _cleanup_free_ char *names = calloc(1, strings->sh_size + 1);
    if (!names)
        return -ENOMEM;
    r = read_at(fd, names, strings->sh_size, strings->sh_offset);
    if (r < 0)
        return r;

    for (size_t i = 0; i < header.e_shnum; i++)
        if (sections[i].sh_name < strings->sh_size && !strcmp(names + sections[i].sh_name, name)) {
            *addr = sections[i].sh_addr;
            *size = sections[i].sh_size;
            return 0;
        }
    return -ENOENT;
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
