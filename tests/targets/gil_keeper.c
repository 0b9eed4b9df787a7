/* A program that holds an interpreter and keeps its GIL while it waits, outside Python, for lines:
 * for each it calls served(). Usage: gil_keeper -u SCRIPT CALL; CALL: what it waits in. It judges
 * itself: a call that ends too early, or with an error, is one that something outside has
 * disturbed. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

void Py_Initialize(void);
int Py_FinalizeEx(void);
int PyRun_SimpleString(const char *text);

#define TIMED_NS 20000000l

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int epoll;

static void judge(int right, const char *what)
{
    if (right)
        return;
    printf("wrong: %s, %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(3);
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Whether there is something to read. */
static int is_there(int milliseconds)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    int n = poll(&fd, 1, milliseconds);
    judge(n >= 0, "poll");
    return n;
}

static void wait_for_input(const char *call)
{
    const struct timespec timed = {.tv_nsec = TIMED_NS};
    struct epoll_event event;
    long long begun = now();
    fd_set set;

    if (!strcmp(call, "epoll")) {
        judge(epoll_wait(epoll, &event, 1, -1) == 1, call);
    } else if (!strcmp(call, "poll")) {
        judge(is_there(-1), call);
    } else if (!strcmp(call, "select")) {
        FD_ZERO(&set);
        FD_SET(STDIN_FILENO, &set);
        judge(select(1, &set, NULL, NULL, NULL) == 1, call);
    } else if (!strcmp(call, "timed")) {
        while (!is_there(TIMED_NS / 1000000)) {
            judge(now() - begun >= TIMED_NS, call);
            begun = now();
        }
    } else if (!strcmp(call, "sleep")) {
        while (!is_there(0)) {
            judge(nanosleep(&timed, NULL) == 0 && now() - begun >= TIMED_NS, call);
            begun = now();
        }
    } else if (!strcmp(call, "cond")) {
        pthread_mutex_lock(&lock);
        pthread_cond_wait(&never, &lock);
    }
}

int main(int argc, char **argv)
{
    char text[4096], byte;

    if (argc != 4)
        return 2;
    snprintf(text, sizeof text, "name = '%s'\nexec(compile(open(name).read(), name, 'exec'))",
             argv[2]);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    judge(epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) == 0, "epoll_ctl");
    Py_Initialize();
    judge(PyRun_SimpleString(text) == 0, "the script");
    puts("ready");
    fflush(stdout);
    for (;;) {
        wait_for_input(argv[3]);
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        judge(n >= 0, "read");
        if (!n)
            break;
        if (byte == '\n')
            judge(PyRun_SimpleString("served()") == 0, "served()");
    }
    judge(Py_FinalizeEx() == 0, "its end");
    puts("done");
    return 0;
}
