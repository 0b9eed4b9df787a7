#include "fs/proc/maps.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MAPS_TEXT_MAX (64u << 20)

/* Reads a whole /proc file, which has no size to ask for; a NUL is put behind it. */
static int read_all(const char *path, char **out, size_t *out_size)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;

    size_t size = 0, alloc = 64 << 10;
    _cleanup_free_ char *text = malloc(alloc);
    if (!text)
        return -ENOMEM;
    for (;;) {
        ssize_t n = read(fd, text + size, alloc - size - 1);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        size += (size_t)n;
        if (size >= MAPS_TEXT_MAX)
            break;
        if (alloc - size < 8192) {
            char *more = realloc(text, alloc *= 2);
            if (!more)
                return -ENOMEM;
            text = more;
        }
    }
    text[size] = 0;
    *out = steal_pointer(text);
    *out_size = size;
    return 0;
}

static const char *parse_hex(const char *p, uint64_t *value)
{
    *value = 0;
    for (;; p++) {
        unsigned digit;
        if (*p >= '0' && *p <= '9')
            digit = *p - '0';
        else if (*p >= 'a' && *p <= 'f')
            digit = *p - 'a' + 10;
        else
            return p;
        *value = *value << 4 | digit;
    }
}

/* Parses a line: start-end perms offset major:minor inode path. False if it isn't one. */
static bool parse_line(char *line, struct mapping *m)
{
    uint64_t major, minor;

    const char *p = parse_hex(line, &m->start);
    if (*p++ != '-')
        return false;
    p = parse_hex(p, &m->end);
    if (*p++ != ' ' || strnlen(p, 5) < 5 || m->end <= m->start)
        return false;
    m->readable = p[0] == 'r';
    m->writable = p[1] == 'w';
    m->executable = p[2] == 'x';
    m->shared = p[3] == 's';
    p = parse_hex(p + 5, &m->offset);
    if (*p++ != ' ')
        return false;
    p = parse_hex(p, &major);
    if (*p++ != ':')
        return false;
    p = parse_hex(p, &minor);
    m->dev_major = (uint32_t)major;
    m->dev_minor = (uint32_t)minor;
    char *rest;
    m->inode = strtoull(p, &rest, 10);
    while (*rest == ' ')
        rest++;
    m->path = rest;
    return true;
}

int maps_parse(char *text, size_t size, struct maps *out)
{
    struct maps maps = {.text = text, .text_size = size};
    size_t alloc = 0;

    for (char *line = text, *next; *line && maps.n < MAPS_MAX; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        else
            next = line + strlen(line);
        if (ARRAY_GROW(maps.items, alloc, maps.n + 1) < 0) {
            maps_deinit(&maps);
            return -ENOMEM;
        }
        struct mapping *m = &maps.items[maps.n];
        if (parse_line(line, m) && (!maps.n || m->start >= m[-1].end))
            maps.n++;
    }
    *out = maps;
    return 0;
}

int maps_read(pid_t pid, struct maps *out)
{
    char path[64], *text = NULL;
    size_t size = 0;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    int r = read_all(path, &text, &size);
    if (r < 0)
        return r;
    if (!size) {
        free(text);
        return -ESRCH;
    }
    return maps_parse(text, size, out);
}

void maps_deinit(struct maps *maps)
{
    if (!maps)
        return;
    free(maps->items);
    free(maps->text);
    *maps = (struct maps){0};
}

const struct mapping *maps_find(const struct maps *maps, uint64_t addr)
{
    size_t found = LOWER_BOUND(maps->n, i, maps->items[i].end <= addr);

    return found < maps->n && maps->items[found].start <= addr ? &maps->items[found] : NULL;
}
