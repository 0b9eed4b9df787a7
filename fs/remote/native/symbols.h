/* The functions of one module by address: its symbol table, from its file or, where no file can be
 * had, the exported part of it from the target's memory.
 *
 * Only addresses are kept; names are read when asked for. A file is read, never mapped: its owner
 * may truncate it at any time. */
#pragma once

#include "fs/proc/maps.h"
#include "fs/remote/memory/elf.h"

#define SYMBOLS_MAX (4u << 20) /* functions of one module */

struct symbols;

struct symbol {
    uint64_t addr; /* file virtual address */
    uint64_t size; /* bytes, 0: unknown */
    uint32_t name; /* for symbols_name() */
};

/* Opens the file behind a mapping: /proc/PID/map_files, else through /proc/PID/root if it is the
 * same file (device and inode, or the build id of image); of a core file's mapping as core.h says.
 * Read-only, not blocking, regular files only. A descriptor, or -ENOENT, -EACCES, -EPERM and the
 * like. */
int symbols_open(const struct memory *m, const struct mapping *mapping,
                 const struct elf_image *image);

/* Reads .symtab, else .dynsym, of an ELF file. -ENOENT: it has none; -ENOEXEC; -EIO; -ENOMEM. The
 * caller owns *out. fd stays the caller's. */
int symbols_read(int fd, struct symbols **out);
/* The dynamic symbols of a loaded image. */
int symbols_read_image(const struct memory *m, const struct elf_image *image, struct symbols **out);
void symbols_free(struct symbols *symbols);

/* Bytes that it occupies. */
size_t symbols_size(const struct symbols *symbols);

/* The function that holds addr, or one of unknown size that begins before it and in
 * [start, addr]. */
bool symbols_find(const struct symbols *symbols, uint64_t addr, uint64_t start, struct symbol *out);

/* A symbol's name as it stands in the table, cut to cap. fd is the same file again (or -1) for
 * tables that were read from one. 0, -ENOENT, -EIO. */
int symbols_name(const struct symbols *symbols, const struct memory *m, int fd,
                 const struct symbol *symbol, char *buf, size_t cap);
