#include "fs/remote/objects/runtime.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/memory/elf.h"
#include "fs/remote/memory/elf_file.h"
#include "fs/remote/objects/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define OLDEST 0x03080000u

/* Whether a file begins here in memory: its first mapping, of its first page. */
static bool is_image(const struct maps *maps, size_t i)
{
    const struct mapping *m = &maps->items[i];
    return m->inode && m->offset == 0 && m->readable;
}

static void refuse(struct runtime *rt, const char *why)
{
    rt->supported = false;
    snprintf(rt->why, sizeof rt->why, "%s", why);
}

/* 3.11 and later export their version as a number. Before, the symbols that a minor added to the
 * stable ABI tell (Doc/data/stable_abi.dat): Py_NewRef came with 3.10, PyFrame_GetCode with 3.9.
 * 0: that number isn't readable. */
static uint32_t version_by_symbols(const struct memory *m, const struct elf_image *image)
{
    uint64_t addr, value;

    if (!elf_image_symbol(m, image, "Py_Version", &addr, NULL))
        return memory_read(m, addr, &value, 8) < 0 ? 0 : (uint32_t)value;
    if (!elf_image_symbol(m, image, "Py_NewRef", &addr, NULL))
        return 0x030a0000;
    if (!elf_image_symbol(m, image, "PyFrame_GetCode", &addr, NULL))
        return 0x03090000;
    if (!elf_image_symbol(m, image, "PyCode_NewWithPosOnlyArgs", &addr, NULL))
        return 0x03080000;
    return 0x03070000; /* the first with a _PyRuntime */
}

/* What .symtab tells of a program that exports nothing. 0: not the version (it came with 3.11). */
static uint32_t version_by_symtab(const struct memory *m, const struct elf_image *image, int fd,
                                  struct runtime *rt)
{
    struct elf_file_symbol symbols[] = {{.name = "PyCode_Type"}, {.name = "Py_Version"}};
    uint64_t value;

    if (elf_file_symbols(fd, symbols, ARRAY_SIZE(symbols)) < 0)
        return 0;
    if (symbols[0].addr)
        rt->code_type = image->bias + symbols[0].addr;
    if (!symbols[1].addr || memory_read(m, image->bias + symbols[1].addr, &value, 8) < 0)
        return 0;
    return value >> 24 == 3 ? (uint32_t)value : 0;
}

/* From 3.13 on the runtime says its version itself, and before 3.10 it had no section. */
static uint32_t version_by_trial(const struct memory *m, uint64_t runtime)
{
    for (uint32_t minor = 0x030a0000; minor <= 0x030c0000; minor += 0x10000) {
        struct runtime tried = {.addr = runtime, .version = minor, .supported = true};
        uint32_t version = offsets_for_version(minor, &tried.offsets) ? version_read(m, &tried) : 0;
        if (version)
            return version;
    }
    return 0;
}

/* fd: the file of a runtime that isn't exported, else -1. */
static void identify(const struct memory *m, const struct elf_image *image, int fd,
                     struct runtime *rt)
{
    uint8_t blob[DEBUG_OFFSETS_SIZE];
    char why[160];

    rt->supported = true;
    if (elf_image_symbol(m, image, "PyCode_Type", &rt->code_type, NULL) < 0)
        rt->code_type = 0;
    int r = memory_read(m, rt->addr, blob, sizeof blob);
    if (r < 0) {
        refuse(rt, "the runtime's state is not readable");
        return;
    }
    uint32_t by_symtab = fd >= 0 ? version_by_symtab(m, image, fd, rt) : 0;
    if (!memcmp(blob, "xdebugpy", 8)) {
        r = offsets_parse_debug(blob, sizeof blob, &rt->offsets, &rt->version, &rt->free_threaded);
    } else {
        if (fd < 0)
            rt->version = version_by_symbols(m, image);
        else
            rt->version = by_symtab ? by_symtab : version_by_trial(m, rt->addr);
        r = rt->version >= OLDEST && offsets_for_version(rt->version, &rt->offsets) ? 0
                                                                                    : -EOPNOTSUPP;
    }
    if (!rt->version) {
        refuse(rt, fd < 0 ? "which version it is can't be read, for want of its file"
                          : "which version it is can't be told: it is stripped, exports nothing "
                            "of Python, and has no interpreter of 3.10 to 3.12 (yet)");
    } else if (r == -EOPNOTSUPP) {
        snprintf(why, sizeof why, "CPython %u.%u is not supported: 3.8 to 3.15 are",
                 rt->version >> 24, rt->version >> 16 & 255);
        refuse(rt, why);
    } else if (r < 0) {
        snprintf(why, sizeof why, "the debug offsets of CPython %u.%u make no sense",
                 rt->version >> 24, rt->version >> 16 & 255);
        refuse(rt, why);
    } else if (m->core &&
               memory_read(m, rt->addr + rt->offsets.rt_interpreters_head, blob, 8) < 0) {
        refuse(rt, "the core file lacks the interpreter's state: it was cut, or not dumped");
    }
}

static int open_executable(const struct memory *m)
{
    char path[64];

    if (m->core)
        return core_open_executable(m->core);
    snprintf(path, sizeof path, "/proc/%d/exe", (int)m->pid);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static bool is_executable(const struct memory *m, const struct mapping *map, const struct stat *st)
{
    if (m->core)
        return core_is_executable(m->core, map->start);
    return map->inode == st->st_ino && makedev(map->dev_major, map->dev_minor) == st->st_dev;
}

/* A stripped executable that exports nothing still has its .PyRuntime section (3.10 on). */
static int find_by_section(const struct memory *m, const struct maps *maps, struct runtime *rt)
{
    struct elf_image image;
    struct stat st;
    uint64_t addr, size;

    _cleanup_close_ int fd = open_executable(m);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -ENOENT;
    int r = elf_file_section(fd, ".PyRuntime", &addr, &size);
    if (r < 0)
        return -ENOENT;
    for (size_t i = 0; i < maps->n; i++) {
        const struct mapping *map = &maps->items[i];
        if (!is_image(maps, i) || !is_executable(m, map, &st))
            continue;
        r = elf_image_read(m, map->start, &image);
        if (r < 0)
            return r == -ENOEXEC || r == -EFAULT ? -ENOENT : r;
        rt->addr = image.bias + addr;
        rt->image_base = image.base;
        identify(m, &image, fd, rt);
        return 0;
    }
    return -ENOENT;
}

/* Whether an interpreter exists in the runtime found: a program may map two, and use one. Where the
 * other one's file is mapped as it stands, anything may be there. */
static bool is_started(const struct memory *m, const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    uint64_t head, tstate, interp;

    if (!rt->supported || memory_read(m, rt->addr + (uint64_t)o->rt_interpreters_head, &head, 8) ||
        !head || memory_read(m, head + (uint64_t)o->interp_threads_head, &tstate, 8))
        return false;
    return !tstate ||
           (!memory_read(m, tstate + (uint64_t)o->tstate_interp, &interp, 8) && interp == head);
}

static bool is_python_path(const char *path) { return strstr(path, "python") != NULL; }

int runtime_find(const struct memory *m, const struct maps *maps, struct runtime *out)
{
    struct runtime found = {0};
    struct elf_image image;

    /* names only decide which image is looked at first */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < maps->n; i++) {
            if (!is_image(maps, i) || is_python_path(maps->items[i].path) != (pass == 0))
                continue;
            struct runtime rt = {0};
            int r = elf_image_read(m, maps->items[i].start, &image);
            if (r == 0)
                r = elf_image_symbol(m, &image, "_PyRuntime", &rt.addr, NULL);
            if (r == -ESRCH || r == -EPERM)
                return r;
            if (r < 0)
                continue;
            rt.image_base = image.base;
            rt.exported = true;
            identify(m, &image, -1, &rt);
            if (is_started(m, &rt)) {
                *out = rt;
                return 0;
            }
            if (!found.addr)
                found = rt;
        }
    }
    if (!found.addr) {
        int r = find_by_section(m, maps, &found);
        if (r < 0)
            return r;
    }
    *out = found;
    return 0;
}
