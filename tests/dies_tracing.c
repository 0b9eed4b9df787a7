/* LD_PRELOADed into a daemon: kills it at the DIES_AT-th moment before or after a ptrace(2) that
 * changes what its tracee does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

static atomic_int moments;

static void moment(enum __ptrace_request request)
{
    const char *at = getenv("DIES_AT");
    bool changes = request == PTRACE_CONT || request == PTRACE_DETACH ||
                   request == PTRACE_SETREGSET || request == PTRACE_SETSIGMASK;

    if (at && changes && atomic_fetch_add(&moments, 1) + 1 == atoi(at))
        kill(getpid(), SIGKILL);
}

long ptrace(enum __ptrace_request request, ...)
{
    long (*real)(enum __ptrace_request, ...) = dlsym(RTLD_NEXT, "ptrace");
    va_list list;

    va_start(list, request);
    pid_t pid = va_arg(list, pid_t);
    void *address = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    moment(request);
    long result = real(request, pid, address, data);
    moment(request);
    return result;
}
