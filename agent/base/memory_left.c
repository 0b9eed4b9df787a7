/* Memory beyond a control group's limit isn't refused: the kernel ends a process of that group. So
 * whoever wants much of it in somebody else's process has to look first. Facts from the kernel's
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. */
#include "agent/base/memory_left.h"

#include "agent/base/cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX 4096 /* bytes of a file that are looked at */
#define PATH_SIZE 512 /* of a control group; below a longer one nothing is looked at */
#define NOTHING 1     /* bytes; 0 says that it isn't known */

/* The files of one version of control groups, and where it is mounted. */
struct version {
    const char *mount, *limit, *usage;
    const char *cache[2]; /* fields of memory.stat */
};

static const struct version v1 = {"/sys/fs/cgroup/memory",
                                  "memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  {"total_inactive_file ", "total_active_file "}};
static const struct version v2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};

static bool read_file(const char *path, char text[FILE_MAX])
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, FILE_MAX - 1) : -1;

    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The number behind a word that begins a line; 0: there is none. */
static uint64_t field(const char *text, const char *name)
{
    size_t size = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, size) == 0)
            return strtoull(line + size, NULL, 10);
    }
    return 0;
}

static bool read_group_file(const struct version *version, const char *group, const char *name,
                            char text[FILE_MAX])
{
    char path[PATH_SIZE + 64];

    snprintf(path, sizeof path, "%s%s/%s", version->mount, group, name);
    return read_file(path, text);
}

/* What one group has left; UINT64_MAX: it has no limit, or isn't seen from here. */
static uint64_t group_left(const struct version *version, const char *group)
{
    char text[FILE_MAX];

    if (!read_group_file(version, group, version->limit, text) || strncmp(text, "max", 3) == 0)
        return UINT64_MAX;
    uint64_t limit = strtoull(text, NULL, 10);
    if (!read_group_file(version, group, version->usage, text))
        return UINT64_MAX;
    uint64_t usage = strtoull(text, NULL, 10);
    if (read_group_file(version, group, "memory.stat", text)) {
        uint64_t cache = field(text, version->cache[0]) + field(text, version->cache[1]);
        usage -= cache < usage ? cache : usage;
    }
    return limit > usage ? limit - usage : NOTHING;
}

/* A group and those around it. In a container the file system may begin at its own
 * group, though the name doesn't. */
static uint64_t groups_left(const struct version *version, char *group)
{
    uint64_t left = UINT64_MAX;
    char *slash;

    do {
        slash = strrchr(group, '/');
        if (slash && !slash[1])
            *slash = '\0';
        uint64_t here = group_left(version, group);
        left = here < left ? here : left;
        if (slash)
            *slash = '\0';
    } while (slash);
    return left;
}

/* A line of /proc/self/cgroup: number, controllers, group. */
static uint64_t line_left(char *line)
{
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group || strlen(group) > PATH_SIZE)
        return UINT64_MAX;
    *group++ = '\0';
    if (!controllers[1])
        return groups_left(&v2, group);
    char *memory = strstr(controllers, "memory");
    return memory && (memory[6] == ',' || !memory[6]) ? groups_left(&v1, group) : UINT64_MAX;
}

uint64_t memory_left(void)
{
    char text[FILE_MAX], *rest = text;

    if (!read_file("/proc/meminfo", text))
        return 0;
    uint64_t left = field(text, "MemAvailable:") << 10;
    if (!read_file("/proc/self/cgroup", text))
        return left;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        uint64_t here = line_left(line);
        left = here < left ? here : left;
    }
    return left;
}
