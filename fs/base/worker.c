#include "fs/base/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK_SIZE (1u << 20)
#define DEEP_STACK_SIZE (16u << 20)

struct worker {
    void *(*run)(void *);
    void *arg;
    char name[16];
};

/* The thread names itself: to name another thread takes a /proc that can be written to. */
static void *worker_main(void *arg)
{
    const struct worker worker = *(struct worker *)arg;

    free(arg);
    prctl(PR_SET_NAME, worker.name);
    return worker.run(worker.arg);
}

static int start(size_t stack, void *(*run)(void *), void *arg, const char *name, pthread_t *out)
{
    pthread_attr_t attr;
    sigset_t all, old;

    struct worker *worker = malloc(sizeof *worker);
    if (!worker)
        return -ENOMEM;
    *worker = (struct worker){.run = run, .arg = arg};
    snprintf(worker->name, sizeof worker->name, "%s", name);
    int r = pthread_attr_init(&attr);
    if (r == 0) {
        pthread_attr_setstacksize(&attr, stack);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        r = pthread_create(out, &attr, worker_main, worker);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attr);
    }
    if (r)
        free(worker);
    return -r;
}

int worker_start(void *(*run)(void *), void *arg, const char *name, pthread_t *out)
{
    return start(STACK_SIZE, run, arg, name, out);
}

int worker_start_deep(void *(*run)(void *), void *arg, const char *name, pthread_t *out)
{
    return start(DEEP_STACK_SIZE, run, arg, name, out);
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
