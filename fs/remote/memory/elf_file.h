/* Sections of an ELF file on disk: for what a stripped image does not export in memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds a section by its name. addr: its address as the file has it (add the image's bias), size:
 * bytes. -ENOENT: no such section, or the file has no section headers; -ENOEXEC: no 64-bit ELF
 * file; or -errno of reading. Reads a few KiB at most. */
int elf_file_section(int fd, const char *name, uint64_t *addr, uint64_t *size);

/* A symbol of .symtab: where its file says it is (add the image's bias); 0: it has none. */
struct elf_file_symbol {
    const char *name; /* in */
    uint64_t addr, size;
    bool local; /* not seen outside its object file: another one may have the same name */
};

/* Looks names up in .symtab, all at once; `symbols` ascend by name. One that the linker made local
 * counts where no other has that name. -ENOENT: there is no .symtab (the file is stripped), or no
 * section headers; -ENOEXEC, -ENOMEM, or -errno of reading. */
int elf_file_symbols(int fd, struct elf_file_symbol *symbols, size_t n);

/* The build id of an ELF file, at most cap bytes; returns its size, 0: it has none. */
size_t elf_file_build_id(int fd, uint8_t *id, size_t cap);
