/* Sections of an ELF file on disk: for what a stripped image does not export in memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Finds a section by its name. addr: its address as the file has it (add the image's bias), size:
 * bytes. -ENOENT: no such section, or the file has no section headers; -ENOEXEC: no 64-bit ELF
 * file; or -errno of reading. Reads a few KiB at most. */
int elf_file_section(int fd, const char *name, uint64_t *addr, uint64_t *size);

/* The build id of an ELF file, at most cap bytes; returns its size, 0: it has none. */
size_t elf_file_build_id(int fd, uint8_t *id, size_t cap);
