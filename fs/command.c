#include "fs/command.h"

#include "fs/cleanup.h"
#include "fs/clock.h"

#include <errno.h>
#include <sys/eventfd.h>

void commands_init(struct commands *commands)
{
    pthread_condattr_t attr;

    *commands = (struct commands){0};
    pthread_mutex_init(&commands->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&commands->ended, &attr);
    pthread_condattr_destroy(&attr);
}

void commands_deinit(struct commands *commands)
{
    pthread_cond_destroy(&commands->ended);
    pthread_mutex_destroy(&commands->lock);
}

static int command_enter(struct commands *commands, struct command *command)
{
    _guard_mutex_(&commands->lock);
    if (commands->ending)
        return -ESHUTDOWN;
    if (commands->n == COMMANDS_MAX)
        return -EAGAIN;
    commands->n++;
    command->commands = commands;
    command->previous = NULL;
    command->next = commands->first;
    if (command->next)
        command->next->previous = command;
    commands->first = command;
    return 0;
}

static void command_leave(struct command *command)
{
    struct commands *commands = command->commands;

    _guard_mutex_(&commands->lock);
    if (command->next)
        command->next->previous = command->previous;
    if (command->previous)
        command->previous->next = command->next;
    else
        commands->first = command->next;
    /* nobody can interrupt it any more */
    if (command->interrupt.fd >= 0)
        close(command->interrupt.fd);
    commands->n--;
    pthread_cond_broadcast(&commands->ended);
}

static void *command_main(void *arg)
{
    struct command *command = arg;

    command->run(command);
    command_leave(command);
    free(command);
    return NULL;
}

int command_start(struct commands *commands, struct command *command)
{
    pthread_attr_t attr;
    pthread_t thread;

    atomic_init(&command->interrupt.raised, false);
    command->interrupt.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = command_enter(commands, command);
    if (r < 0) {
        if (command->interrupt.fd >= 0)
            close(command->interrupt.fd);
        return r;
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, COMMAND_STACK);
    r = pthread_create(&thread, &attr, command_main, command);
    pthread_attr_destroy(&attr);
    if (r) {
        command_leave(command);
        return -EAGAIN;
    }
    return 0;
}

void command_interrupt(struct command *command)
{
    atomic_store(&command->interrupt.raised, true);
    if (command->interrupt.fd >= 0)
        eventfd_write(command->interrupt.fd, 1);
}

bool commands_end(struct commands *commands, uint64_t deadline_ns)
{
    uint64_t until = monotonic_ns() + deadline_ns;
    struct timespec end = {.tv_sec = (time_t)(until / 1000000000u),
                           .tv_nsec = (long)(until % 1000000000u)};

    _guard_mutex_(&commands->lock);
    commands->ending = true;
    for (struct command *command = commands->first; command; command = command->next)
        command_interrupt(command);
    while (commands->n)
        if (pthread_cond_timedwait(&commands->ended, &commands->lock, &end) == ETIMEDOUT)
            return commands->n == 0;
    return true;
}
