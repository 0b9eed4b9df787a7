#include "fs/remote/heap/scan.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/remote/memory/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096u /* what is copied or left out at once: the kernel's pages may be larger */
#define PAGES (SCAN_PIECE / PAGE)

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)

struct scanner {
    struct scan *scan;
    int pagemap; /* -1: what is in memory isn't known, and all is read */
    uint64_t deadline_ns;
    uint8_t *data;
    uint64_t pages[PAGES];
    struct memory_range ranges[PAGES];
    uint8_t heads[PAGES][SCAN_HEAD];
    bool filled[PAGES]; /* what an earlier piece had there is still in data; else it is 0 */
};

static bool is_anonymous(const struct mapping *m)
{
    return !m->inode && (!*m->path || !strncmp(m->path, "[anon:", 6));
}

static bool is_wanted(const struct scan *scan, const struct mapping *m)
{
    if (!m->readable || !m->writable || m->shared)
        return false;
    return is_anonymous(m) || (scan->libraries && (m->inode || !strcmp(m->path, "[heap]")));
}

/* Which pages are in memory. */
static void learn_pages(struct scanner *scanner, uint64_t addr, size_t n)
{
    size_t each = (size_t)sysconf(_SC_PAGESIZE) / PAGE, told = n / each * sizeof *scanner->pages;
    off_t at = (off_t)(addr / PAGE / each * sizeof *scanner->pages);

    bool known = scanner->pagemap >= 0 &&
                 pread(scanner->pagemap, scanner->pages, told, at) == (ssize_t)told;
    for (size_t i = n; i-- > 0;)
        scanner->pages[i] = known ? scanner->pages[i / each] : PAGE_PRESENT;
}

/* Forgets the pages of what isn't to be copied. -ESRCH, -EPERM. */
static int choose(struct scanner *scanner, uint64_t addr, size_t size)
{
    const struct scan *scan = scanner->scan;
    uint64_t first = (addr + scan->step - 1) / scan->step * scan->step;
    size_t n = 0, each = scan->step / PAGE;

    for (uint64_t at = first; at + scan->step <= addr + size; at += scan->step)
        if (scanner->pages[(at - addr) / PAGE] & PAGE_PRESENT) {
            scanner->ranges[n] = (struct memory_range){at, scanner->heads[n], SCAN_HEAD};
            n++;
        }
    int r = n ? memory_read_ranges(&scan->target->memory, scanner->ranges, n) : 0;
    if (r < 0)
        return r;
    uint64_t wanted[PAGES] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct memory_range *range = &scanner->ranges[i];
        size_t page = (range->addr - addr) / PAGE;
        if (range->ok && scan->begins(range->data, scan->step, range->addr))
            memcpy(wanted + page, scanner->pages + page, each * sizeof *wanted);
    }
    for (size_t i = 0; i < size / PAGE; i++)
        scanner->pages[i] = wanted[i] | (scanner->pages[i] & PAGE_SWAPPED);
    return 0;
}

/* Makes a range of each run of pages that are there; the rest is 0. */
static size_t plan_ranges(struct scanner *scanner, uint64_t addr, size_t n)
{
    size_t ranges = 0;
    bool runs = false;

    for (size_t i = 0; i < n; i++) {
        bool there = scanner->pages[i] & PAGE_PRESENT;
        struct memory_range *last = &scanner->ranges[ranges];
        if (there && runs)
            last[-1].len += PAGE;
        else if (there)
            scanner->ranges[ranges++] =
                (struct memory_range){addr + i * PAGE, scanner->data + i * PAGE, PAGE};
        else if (scanner->filled[i])
            memset(scanner->data + i * PAGE, 0, PAGE);
        scanner->filled[i] = there;
        if (!there && scanner->pages[i] & PAGE_SWAPPED)
            scanner->scan->swapped += PAGE;
        runs = there;
    }
    return ranges;
}

/* Copies what is still there of a range, some of which has gone meanwhile. -ESRCH, -EPERM. */
static int copy_by_page(struct scanner *scanner, const struct memory_range *range)
{
    uint8_t *data = range->data;
    int r = 0;

    for (uint32_t at = 0; at < range->len && (r == 0 || r == -EFAULT); at += PAGE) {
        r = memory_read(&scanner->scan->target->memory, range->addr + at, data + at, PAGE);
        if (r == 0)
            scanner->scan->copied += PAGE;
        else
            memset(data + at, 0, PAGE);
    }
    return r == -EFAULT ? 0 : r;
}

/* 1: there is something; 0: nothing of it is in memory, or wanted. */
static int copy(struct scanner *scanner, uint64_t addr, size_t size)
{
    learn_pages(scanner, addr, size / PAGE);
    int r = scanner->scan->begins ? choose(scanner, addr, size) : 0;
    size_t n = r == 0 ? plan_ranges(scanner, addr, size / PAGE) : 0;
    r = n ? memory_read_ranges(&scanner->scan->target->memory, scanner->ranges, n) : r;

    for (size_t i = 0; r == 0 && i < n; i++) {
        if (scanner->ranges[i].ok)
            scanner->scan->copied += scanner->ranges[i].len;
        else
            r = copy_by_page(scanner, &scanner->ranges[i]);
    }
    return r < 0 ? r : n > 0;
}

static int go_through(struct scanner *scanner, const struct mapping *m, scan_visit *visit,
                      void *arg)
{
    struct scan *scan = scanner->scan;

    for (uint64_t at = m->start; at < m->end && !scan->cut;) {
        uint64_t end = (at + SCAN_PIECE) & ~(uint64_t)(SCAN_PIECE - 1);
        size_t size = (size_t)((end < m->end ? end : m->end) - at);
        int r = scan->unwanted ? scan->unwanted(scan->unwanted_arg) : 0;
        if (r == 0)
            r = copy(scanner, at, size);
        if (r == 1)
            r = visit(arg, scanner->data, size, at);
        if (r)
            return r;
        at += size;
        scan->passed += size;
        scan->cut = scan->copied > SCAN_BYTES_MAX || monotonic_ns() > scanner->deadline_ns;
    }
    return 0;
}

static int run(struct scanner *scanner, scan_visit *visit, void *arg)
{
    struct scan *scan = scanner->scan;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/pagemap", (int)scan->target->pid);
    _cleanup_close_ int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    scanner->pagemap = pagemap;
    int r = scan->target->core ? core_maps(scan->target->core, &scan->maps)
                               : maps_read(scan->target->pid, &scan->maps);
    for (size_t i = 0; r == 0 && i < scan->maps.n; i++)
        if (is_wanted(scan, &scan->maps.items[i]))
            scan->total += scan->maps.items[i].end - scan->maps.items[i].start;
    for (size_t i = 0; r == 0 && !scan->cut && i < scan->maps.n; i++)
        if (is_wanted(scan, &scan->maps.items[i]))
            r = go_through(scanner, &scan->maps.items[i], visit, arg);
    scan->cut &= scan->passed < scan->total;
    return r;
}

int scan_run(struct scan *scan, scan_visit *visit, void *arg)
{
    _cleanup_free_ struct scanner *scanner = calloc(1, sizeof *scanner);
    _cleanup_free_ uint8_t *data = calloc(1, SCAN_PIECE);
    uint64_t start = monotonic_ns();

    if (!scanner || !data)
        return -ENOMEM;
    scanner->scan = scan;
    scanner->data = data;
    scanner->deadline_ns = start + SCAN_NS;
    int r = run(scanner, visit, arg);
    scan->ns = monotonic_ns() - start;
    return r;
}

void scan_deinit(struct scan *scan)
{
    maps_deinit(&scan->maps);
    scan->maps = (struct maps){0};
}
