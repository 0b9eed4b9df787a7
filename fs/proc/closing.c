#include "fs/proc/closing.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_FLAGS 9        /* of /proc/PID/stat, proc(5) */
#define FIELD_EXIT_CODE 52   /* 0 where the daemon may not see it */
#define DESCRIPTORS_MAX 4096 /* looked at, of one process */
#define ANCESTORS_MAX 16

/* A field behind the command's name, which may hold anything, brackets and spaces too. */
static const char *field(const char *stat, int number)
{
    const char *p = strrchr(stat, ')');

    for (int i = 2; p && i < number; i++)
        p = strchr(p + 1, ' ');
    return p;
}

enum closing closing_parse(const char *stat)
{
    const char *flags = field(stat, FIELD_FLAGS), *code = field(stat, FIELD_EXIT_CODE);

    if (!flags || !(strtoul(flags, NULL, 10) & PROC_EXITING))
        return CLOSING_ASKED;
    return code && strtoul(code, NULL, 10) & 0x7f ? CLOSING_KILLED : CLOSING_EXITED;
}

bool closing_parse_inode(const char *fdinfo, uint64_t *out)
{
    const char *p = proc_status_field(fdinfo, "ino");
    if (p)
        *out = strtoull(p, NULL, 10);
    return p != NULL;
}

enum closing closing_kind(pid_t tid)
{
    char stat[1024];

    if (!tid || proc_read(tid, "stat", stat, sizeof stat) < 0)
        return CLOSING_ASKED;
    return closing_parse(stat);
}

static bool process_holds(pid_t pid, uint64_t number)
{
    char path[64], file[300], text[1024];
    struct dirent *entry;
    bool held = false;
    uint64_t inode;
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fdinfo", pid);
    DIR *dir = opendir(path);
    while (dir && !held && n++ < DESCRIPTORS_MAX && (entry = readdir(dir))) {
        snprintf(file, sizeof file, "fdinfo/%s", entry->d_name);
        held = *entry->d_name != '.' && proc_read(pid, file, text, sizeof text) > 0 &&
               closing_parse_inode(text, &inode) && inode == number;
    }
    if (dir)
        closedir(dir);
    return held;
}

bool closing_held(pid_t tid, uint64_t number)
{
    struct proc_stat stat;
    pid_t pid = tid;

    for (int i = 0; pid > 1 && i < ANCESTORS_MAX; i++) {
        if (process_holds(pid, number))
            return true;
        if (proc_stat_read(pid, &stat) < 0)
            break;
        pid = stat.ppid;
    }
    return false;
}
