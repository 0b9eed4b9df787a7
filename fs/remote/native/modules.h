/* The executable parts of a target's address space: which file each belongs to, its call frame
 * information and its symbols, each read when first needed.
 *
 * Not thread-safe. */
#pragma once

#include "fs/proc/maps.h"
#include "fs/remote/memory/elf.h"
#include "fs/remote/native/cfi.h"
#include "fs/remote/native/symbols.h"

#define MODULES_SYMBOLS_MAX (64u << 20) /* bytes of all symbol tables of one target */

enum module_state { MODULE_UNREAD, MODULE_READ, MODULE_NONE };

struct module {
    uint64_t start, end; /* of the executable mapping */
    uint64_t offset, inode;
    uint32_t dev_major, dev_minor;
    uint64_t base;           /* address of the ELF header; 0: there is no image */
    char *name;              /* base name */
    enum module_state state; /* of image and cfi */
    struct elf_image image;
    struct cfi_table cfi; /* n is 0 if there is none */
    enum module_state symbols_state;
    struct symbols *symbols;
    uint64_t used;          /* when its symbols were last asked for */
    struct mapping mapping; /* to open its file; path is owned */
};

struct modules {
    const struct memory *memory;
    struct module *items; /* ascending */
    size_t n;
    uint64_t clock;
    struct pages pages;
};

void modules_init(struct modules *modules, const struct memory *memory);
void modules_deinit(struct modules *modules);

/* Takes over what is mapped now; what is known of mappings that stayed is kept. *changed: not all
 * did. -ENOMEM. */
int modules_refresh(struct modules *modules, const struct maps *maps, bool *changed);

/* The module that holds an address, its image and tables read; NULL: none. */
struct module *modules_find(struct modules *modules, uint64_t addr);

/* Bytes of all symbol tables; they are dropped until they are asked for again. */
size_t modules_symbols_size(const struct modules *modules);
void modules_forget_symbols(struct modules *modules);

/* The raw name of the function that holds addr and begins at start (0: not known). False: there
 * is no symbol. cap >= 2. */
bool modules_symbol(struct modules *modules, struct module *module, uint64_t addr, uint64_t start,
                    char *buf, size_t cap);
