/* An ELF image as it lies in a target's memory: enough of it to look up exported symbols and to
 * find the unwind table, without opening a file. Works for deleted, renamed and chrooted
 * libraries. Source: elf(5), the System V gABI, and "DT_GNU_HASH" as glibc's
 * elf/dl-lookup.c reads it. */
#pragma once

#include "fs/remote/memory/memory.h"

struct elf_image {
    uint64_t base;                     /* address of the ELF header */
    uint64_t bias;                     /* what to add to the file's virtual addresses */
    uint64_t end;                      /* one past the last loaded byte */
    uint64_t symtab, strtab, gnu_hash; /* addresses, 0 if there is none */
    uint64_t strtab_size;              /* bytes */
    uint64_t eh_frame_hdr, eh_frame_hdr_size;
    uint8_t build_id[20];
    uint8_t build_id_size; /* 0 if there is none */
};

/* Reads the headers of the image at base. -ENOEXEC: no usable ELF image of this machine there;
 * -EFAULT, -ESRCH, -EPERM as memory_read(). */
int elf_image_read(const struct memory *m, uint64_t base, struct elf_image *out);

/* The build id among the notes of a segment (PT_NOTE), at most cap bytes; returns its size, 0: it
 * is not among them. */
size_t elf_notes_build_id(const uint8_t *notes, size_t size, uint8_t *id, size_t cap);

/* Looks up an exported, defined symbol. -ENOENT: not exported. size may be NULL. */
int elf_image_symbol(const struct memory *m, const struct elf_image *image, const char *name,
                     uint64_t *addr, uint64_t *size);

/* The functions exported under a name, one for each version that has another address; those that
 * are chosen at load time (STT_GNU_IFUNC) are left out. How many, at most max. */
size_t elf_image_functions(const struct memory *m, const struct elf_image *image, const char *name,
                           uint64_t *addrs, size_t max);

/* The address behind the last byte of its code segment. -ENOENT: it has none. */
int elf_image_code_end(const struct memory *m, const struct elf_image *image, uint64_t *end);

/* The whole dynamic symbol table has this many entries, or 0 if that can't be told (counted from
 * the hash table, bounded). */
uint32_t elf_image_symbol_count(const struct memory *m, const struct elf_image *image);
