#include "fs/threads.h"

#include "fs/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int by_value(const void *a, const void *b)
{
    const struct number *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int tids_list(struct file_context *context, struct numbers *out)
{
    struct dirent *entry;
    unsigned tid;
    char path[64];
    int r = 0;

    snprintf(path, sizeof path, "/proc/%d/task", context->target->pid);
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    while (r == 0 && (entry = readdir(dir)))
        if (number_parse(entry->d_name, &tid))
            r = numbers_add(out, tid, NULL);
    closedir(dir);
    qsort(out->items, out->n, sizeof *out->items, by_value);
    return r;
}

static int tids_find(struct file_context *context, unsigned value)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%u", context->target->pid, value);
    return access(path, F_OK) < 0 ? -ENOENT : 0;
}

const struct naming tids = {NUMBER_TID, tids_list, tids_find};
