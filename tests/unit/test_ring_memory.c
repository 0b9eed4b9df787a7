/* A program isn't ended for a ring that its control group has no room for; needs
 * root and a memory controller. */
#include "agent/base/memory_left.h"
#include "tests/unit/ring_world.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LIMIT (48u << 20)

static char group[128];

static bool put(const char *name, unsigned long value)
{
    char path[256], text[32];

    snprintf(path, sizeof path, "%s/%s", group, name);
    int n = snprintf(text, sizeof text, "%lu", value);
    _cleanup_close_ int fd = open(path, O_WRONLY);
    return fd >= 0 && write(fd, text, (size_t)n) == n;
}

static bool make_group(void)
{
    static const struct {
        const char *under, *limit;
    } versions[] = {{"/sys/fs/cgroup", "memory.max"},
                    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}};

    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        snprintf(group, sizeof group, "%s/probefs-test-%d", versions[i].under, getpid());
        if (mkdir(group, 0755) < 0)
            continue;
        if (put(versions[i].limit, LIMIT))
            return true;
        rmdir(group);
    }
    return false;
}

static void in_group(void)
{
    struct ring *ring = NULL;
    uint64_t all = memory_left();

    if (!put("cgroup.procs", (unsigned long)getpid()))
        _exit(77);
    uint64_t left = memory_left();
    CHECK(left > 0 && left <= LIMIT && left < all);
    CHECK_INT(ring_new(gc, 64 << 20, 0, &ring), -ENOMEM); /* the kernel would end the process */
    CHECK_INT(ring_new(gc, LIMIT / 2 + 4096, 0, &ring), -ENOMEM);
    CHECK(!ring);
    ring = make_ring(gc, 16 << 20);
    CHECK(memory_left() <= left - (15 << 20));
    ring_free(ring);
    _exit(0);
}

int main(void)
{
    int status;

    if (!make_group()) {
        fprintf(stderr, "no memory control group can be made here\n");
        return 77;
    }
    pid_t pid = fork();
    if (pid == 0)
        in_group();
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    for (int i = 0; i < 100 && rmdir(group) < 0 && errno == EBUSY; i++)
        usleep(10000);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
