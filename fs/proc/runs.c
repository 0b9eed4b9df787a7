#include "fs/proc/runs.h"

#include "fs/proc/procfs.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX_SIZE 4096u

static uint64_t number_of(const char *status, const char *name)
{
    const char *text = proc_status_field(status, name);

    return text ? strtoull(text, NULL, 10) : 0;
}

bool runs_parse(const char *text, struct runs *out)
{
    unsigned long long ns, waited, count;

    if (sscanf(text, "%llu %llu %llu", &ns, &waited, &count) != 3 || !count)
        return false;
    *out = (struct runs){ns, count, waited};
    return true;
}

int runs_read(pid_t pid, pid_t tid, struct runs *out)
{
    char text[FILE_MAX_SIZE];

    ssize_t n = proc_read_task(pid, tid, "schedstat", text, sizeof text);
    if (n > 0 && runs_parse(text, out))
        return 0;
    n = proc_read_task(pid, tid, "status", text, sizeof text);
    if (n < 0)
        return (int)n;
    *out = (struct runs){.n = number_of(text, "voluntary_ctxt_switches") +
                              number_of(text, "nonvoluntary_ctxt_switches")};
    return 0;
}

uint64_t runs_voluntary(pid_t pid, pid_t tid)
{
    char text[FILE_MAX_SIZE];

    return proc_read_task(pid, tid, "status", text, sizeof text) > 0
               ? number_of(text, "voluntary_ctxt_switches")
               : 0;
}
