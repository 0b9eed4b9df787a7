#include "fs/attached.h"

#include "fs/procfs.h"
#include "fs/requests.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

/* Whether each thread of a process waits for an answer of this daemon. */
static bool all_wait(pid_t pid)
{
    struct dirent *entry;
    bool waits = requests_waiting(pid);
    char path[32];
    unsigned tid;

    if (!waits) /* its main thread: nearly always so */
        return false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    while (dir && waits && (entry = readdir(dir)))
        if (number_parse(entry->d_name, &tid))
            waits = requests_waiting((pid_t)tid);
    if (dir)
        closedir(dir);
    return dir && waits;
}

/* An errno as a shell is to print it; the words say the rest. */
static int errno_of(int error)
{
    switch (error) {
    case -ENOEXEC: /* its dynamic loader didn't take the agent */
        return -EOPNOTSUPP;
    case -EPROTO: /* what answers is no agent */
        return -EIO;
    }
    return error;
}

int attached_session(struct file_context *context, enum attach_way way, struct session **out)
{
    struct target *target = context->target;

    if (!all_wait(target->pid))
        return errno_of(agent_attach(target, way, context->interrupt, &context->why, out));
    int r = agent_connect(target, &context->why, out);
    if (r != -ENOTCONN)
        return errno_of(r);
    text_clear(&context->why);
    text_puts(&context->why, "every thread of the process waits for this very answer, so that none "
                             "can let an agent in: `import probing` in it, or write from elsewhere "
                             "first");
    return -EDEADLK;
}
