#include "fs/mount/command.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/tree/file.h"

#include <errno.h>
#include <sys/eventfd.h>

void commands_init(struct commands *commands)
{
    pthread_condattr_t attr;

    *commands = (struct commands){
        .shares = {.all = COMMANDS_MAX, .each = COMMANDS_EACH, .kept = COMMANDS_KEPT},
    };
    pthread_mutex_init(&commands->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&commands->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void commands_deinit(struct commands *commands)
{
    if (commands->timed) {
        pthread_mutex_lock(&commands->lock);
        commands->ending = true;
        pthread_cond_broadcast(&commands->changed);
        pthread_mutex_unlock(&commands->lock);
        pthread_join(commands->timer, NULL);
    }
    shares_deinit(&commands->shares);
    pthread_cond_destroy(&commands->changed);
    pthread_mutex_destroy(&commands->lock);
}

/* Asks it to end. Caller holds lock, so that it can't have ended. */
static void command_interrupt(struct command *command)
{
    atomic_store(&command->interrupt.raised, true);
    if (command->interrupt.fd >= 0)
        eventfd_write(command->interrupt.fd, 1);
}

/* Interrupts those whose time has come, and those not wanted any more. Returns when to look
 * again, 0: there is nothing to look for. Caller holds lock. */
static uint64_t interrupt_late(struct commands *commands)
{
    uint64_t now = monotonic_ns(), next = 0;

    for (struct command *command = commands->first; command; command = command->next) {
        uint64_t until = command->until_ns;
        if (interrupted(&command->interrupt) || (!until && !command->watched))
            continue;
        if ((until && until <= now) || (command->watched && command->unwanted(command))) {
            command_interrupt(command);
            continue;
        }
        if (command->watched && (!until || until > now + COMMANDS_WATCH_NS))
            until = now + COMMANDS_WATCH_NS;
        if (!next || until < next)
            next = until;
    }
    return next;
}

static void *timer_main(void *arg)
{
    struct commands *commands = arg;

    _guard_mutex_(&commands->lock);
    while (!commands->ending) {
        uint64_t next = interrupt_late(commands);
        struct timespec until = timespec_of(next);
        if (next)
            pthread_cond_timedwait(&commands->changed, &commands->lock, &until);
        else
            pthread_cond_wait(&commands->changed, &commands->lock);
    }
    return NULL;
}

/* Caller holds lock. */
static int keep_time(struct commands *commands)
{
    if (!commands->timed && pthread_create(&commands->timer, NULL, timer_main, commands))
        return -ENOMEM;
    commands->timed = true;
    pthread_cond_broadcast(&commands->changed);
    return 0;
}

void command_init(struct command *command, struct commands *commands, uid_t uid)
{
    atomic_init(&command->interrupt.raised, false);
    command->interrupt.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    command->uid = uid;
    command->commands = commands;
    command->previous = command->next = NULL;
    command->watched = false;
}

void command_deinit(struct command *command)
{
    if (command->interrupt.fd >= 0)
        close(command->interrupt.fd);
}

static int command_enter(struct command *command)
{
    struct commands *commands = command->commands;

    _guard_mutex_(&commands->lock);
    if (commands->ending)
        return -ESHUTDOWN;
    if ((command->until_ns || command->watched) && keep_time(commands) < 0)
        return -ENOMEM;
    int r = shares_take(&commands->shares, command->uid);
    if (r < 0)
        return r;
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
    shares_give(&commands->shares, command->uid);
    pthread_cond_broadcast(&commands->changed);
}

static void *command_main(void *arg)
{
    struct command *command = arg;

    command->run(command);
    command_leave(command); /* nobody can interrupt it any more */
    command->done(command);
    return NULL;
}

int command_start(struct command *command)
{
    pthread_attr_t attr;
    pthread_t thread;

    int r = command_enter(command);
    if (r < 0)
        return r;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, COMMAND_STACK);
    r = pthread_create(&thread, &attr, command_main, command);
    pthread_attr_destroy(&attr);
    if (r) {
        command_leave(command);
        return -ENOMEM;
    }
    return 0;
}

void command_watch(struct command *command)
{
    struct commands *commands = command->commands;

    _guard_mutex_(&commands->lock);
    if (command->unwanted(command) || keep_time(commands) < 0)
        command_interrupt(command);
    else
        command->watched = true;
}

bool commands_end(struct commands *commands, uint64_t deadline_ns)
{
    uint64_t until = monotonic_ns() + deadline_ns;
    struct timespec end = timespec_of(until);

    _guard_mutex_(&commands->lock);
    commands->ending = true;
    for (struct command *command = commands->first; command; command = command->next)
        command_interrupt(command);
    while (commands->shares.n)
        if (pthread_cond_timedwait(&commands->changed, &commands->lock, &end) == ETIMEDOUT)
            return commands->shares.n == 0;
    return true;
}
