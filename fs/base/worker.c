#include "fs/base/worker.h"

#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#define STACK_SIZE (1u << 20)

int worker_start(void *(*run)(void *), void *arg, const char *name, pthread_t *out)
{
    pthread_attr_t attr;
    sigset_t all, old;

    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(out, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r == 0)
        pthread_setname_np(*out, name);
    return -r;
}

static void *close_main(void *arg)
{
    close((int)(intptr_t)arg);
    return NULL;
}

void worker_close(int fd)
{
    pthread_t thread;

    if (worker_start(close_main, (void *)(intptr_t)fd, "probefs-close", &thread) < 0)
        close(fd);
    else
        pthread_detach(thread);
}
