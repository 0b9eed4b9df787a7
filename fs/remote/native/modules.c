#include "fs/remote/native/modules.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>

#define SEGMENTS_MAX 16 /* mappings of one file before its executable one */

void modules_init(struct modules *modules, const struct memory *memory)
{
    *modules = (struct modules){.memory = memory, .pages.memory = memory};
}

static void module_deinit(struct module *module)
{
    symbols_free(module->symbols);
    free(module->name);
    free((char *)module->mapping.path);
}

void modules_deinit(struct modules *modules)
{
    for (size_t i = 0; i < modules->n; i++)
        module_deinit(&modules->items[i]);
    free(modules->items);
    pages_clear(&modules->pages);
    *modules = (struct modules){0};
}

static bool is_vdso(const struct mapping *mapping) { return !strcmp(mapping->path, "[vdso]"); }

/* Finds where the file that is mapped here begins in memory, or 0. */
static uint64_t find_base(const struct maps *maps, size_t i)
{
    const struct mapping *mapping = &maps->items[i];

    if (is_vdso(mapping))
        return mapping->start;
    if (!mapping->inode)
        return 0;
    for (size_t back = 0; back <= i && back < SEGMENTS_MAX; back++) {
        const struct mapping *m = &maps->items[i - back];
        if (m->inode == mapping->inode && m->dev_major == mapping->dev_major &&
            m->dev_minor == mapping->dev_minor && m->offset == 0)
            return m->start;
    }
    return 0;
}

static bool same_mapping(const struct module *module, const struct mapping *mapping, uint64_t base)
{
    return module->start == mapping->start && module->end == mapping->end &&
           module->offset == mapping->offset && module->inode == mapping->inode &&
           module->dev_major == mapping->dev_major && module->dev_minor == mapping->dev_minor &&
           module->base == base;
}

static int module_init(struct module *module, const struct mapping *mapping, uint64_t base)
{
    const char *slash = strrchr(mapping->path, '/');
    const char *name = slash ? slash + 1 : mapping->path;
    const char *deleted = strstr(name, " (deleted)");
    struct module m = {
        .start = mapping->start,
        .end = mapping->end,
        .offset = mapping->offset,
        .inode = mapping->inode,
        .dev_major = mapping->dev_major,
        .dev_minor = mapping->dev_minor,
        .base = base,
        .mapping = *mapping,
        .name = strndup(name, deleted ? (size_t)(deleted - name) : strlen(name)),
    };

    m.mapping.path = strdup(mapping->path);
    if (!m.name || !m.mapping.path) {
        module_deinit(&m);
        return -ENOMEM;
    }
    *module = m;
    return 0;
}

static bool all_same(const struct modules *modules, const struct maps *maps)
{
    size_t k = 0;

    for (size_t i = 0; i < maps->n; i++) {
        if (!maps->items[i].executable)
            continue;
        if (k == modules->n ||
            !same_mapping(&modules->items[k], &maps->items[i], find_base(maps, i)))
            return false;
        k++;
    }
    return k == modules->n;
}

int modules_refresh(struct modules *modules, const struct maps *maps, bool *changed)
{
    size_t n = 0, old = 0, filled = 0;

    *changed = false;
    if (all_same(modules, maps))
        return 0;
    for (size_t i = 0; i < maps->n; i++)
        n += maps->items[i].executable;
    struct module *items = calloc(n ? n : 1, sizeof *items);
    if (!items)
        return -ENOMEM;
    int r = 0;
    for (size_t i = 0; i < maps->n && r == 0; i++) {
        const struct mapping *mapping = &maps->items[i];
        if (!mapping->executable)
            continue;
        uint64_t base = find_base(maps, i);
        while (old < modules->n && modules->items[old].start < mapping->start)
            module_deinit(&modules->items[old++]);
        if (old < modules->n && same_mapping(&modules->items[old], mapping, base))
            items[filled++] = modules->items[old++];
        else
            r = module_init(&items[filled], mapping, base), filled += r == 0;
    }
    while (old < modules->n)
        module_deinit(&modules->items[old++]);
    free(modules->items);
    modules->items = items;
    modules->n = filled;
    pages_clear(&modules->pages);
    *changed = true;
    return r;
}

static void read_image(struct modules *modules, struct module *module)
{
    module->state = MODULE_NONE;
    if (!module->base || elf_image_read(modules->memory, module->base, &module->image) < 0)
        return;
    module->state = MODULE_READ;
    if (!module->image.eh_frame_hdr ||
        cfi_table_read(&modules->pages, module->image.eh_frame_hdr, &module->cfi) < 0)
        module->cfi = (struct cfi_table){0};
}

struct module *modules_find(struct modules *modules, uint64_t addr)
{
    size_t found = LOWER_BOUND(modules->n, i, modules->items[i].end <= addr);

    if (found == modules->n || modules->items[found].start > addr)
        return NULL;
    struct module *module = &modules->items[found];
    if (module->state == MODULE_UNREAD)
        read_image(modules, module);
    return module;
}

size_t modules_symbols_size(const struct modules *modules)
{
    size_t total = 0;

    for (size_t i = 0; i < modules->n; i++)
        if (modules->items[i].symbols)
            total += symbols_size(modules->items[i].symbols);
    return total;
}

static void forget_symbols(struct module *module)
{
    if (!module->symbols)
        return;
    symbols_free(steal_pointer(module->symbols));
    module->symbols_state = MODULE_UNREAD;
}

void modules_forget_symbols(struct modules *modules)
{
    for (size_t i = 0; i < modules->n; i++)
        forget_symbols(&modules->items[i]);
}

/* Frees the tables that were not used for longest until those of all modules fit. */
static void limit_symbols(struct modules *modules, const struct module *keep)
{
    for (;;) {
        struct module *oldest = NULL;
        for (size_t i = 0; i < modules->n; i++) {
            struct module *module = &modules->items[i];
            if (module->symbols && module != keep && (!oldest || module->used < oldest->used))
                oldest = module;
        }
        if (modules_symbols_size(modules) <= MODULES_SYMBOLS_MAX || !oldest)
            return;
        forget_symbols(oldest);
    }
}

static void read_symbols(struct modules *modules, struct module *module, int fd)
{
    module->symbols_state = MODULE_NONE;
    if ((fd >= 0 && symbols_read(fd, &module->symbols) == 0) ||
        symbols_read_image(modules->memory, &module->image, &module->symbols) == 0) {
        module->symbols_state = MODULE_READ;
        limit_symbols(modules, module);
    }
}

bool modules_symbol(struct modules *modules, struct module *module, uint64_t addr, uint64_t start,
                    char *buf, size_t cap)
{
    struct symbol symbol;

    if (module->state != MODULE_READ || module->symbols_state == MODULE_NONE)
        return false;
    _cleanup_close_ int fd = modules->memory->image
                                 ? -1
                                 : symbols_open(modules->memory, &module->mapping, &module->image);
    if (module->symbols_state == MODULE_UNREAD)
        read_symbols(modules, module, fd);
    module->used = ++modules->clock;
    uint64_t bias = module->image.bias;
    return module->symbols &&
           symbols_find(module->symbols, addr - bias, (start ? start : addr) - bias, &symbol) &&
           symbols_name(module->symbols, modules->memory, fd, &symbol, buf, cap) == 0;
}
