#include "fs/mount/command.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/tree/file.h"

#include <errno.h>
#include <sys/eventfd.h>

struct commands_thread {
    struct commands *commands;
    struct command *command; /* to run next; NULL: there is none any more */
    pthread_cond_t wake;
    struct commands_thread *next; /* of those that are idle */
};

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

/* Waits until no thread is left but the timer. */
static void end_threads(struct commands *commands)
{
    _guard_mutex_(&commands->lock);
    commands->ending = true;
    pthread_cond_broadcast(&commands->changed);
    for (struct commands_thread *thread = commands->idle; thread; thread = thread->next)
        pthread_cond_signal(&thread->wake);
    while (commands->nthreads)
        pthread_cond_wait(&commands->changed, &commands->lock);
}

void commands_deinit(struct commands *commands)
{
    end_threads(commands);
    if (commands->timed)
        pthread_join(commands->timer, NULL);
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

/* ---- the threads ---- */

/* With lock. NULL: this thread isn't wanted any more. */
static struct command *next_command(struct commands_thread *thread)
{
    struct commands *commands = thread->commands;

    if (commands->ending || commands->nidle == COMMANDS_IDLE)
        return NULL;
    thread->command = NULL;
    thread->next = commands->idle;
    commands->idle = thread;
    commands->nidle++;
    while (!thread->command && !commands->ending)
        pthread_cond_wait(&thread->wake, &commands->lock);
    return thread->command;
}

static void *thread_main(void *arg)
{
    struct commands_thread *thread = arg;
    struct commands *commands = thread->commands;
    struct command *command = thread->command;

    while (command) {
        command->run(command);
        command_leave(command); /* nobody can interrupt it any more */
        command->done(command);
        _guard_mutex_(&commands->lock);
        command = next_command(thread);
    }
    pthread_cond_destroy(&thread->wake);
    free(thread);
    _guard_mutex_(&commands->lock);
    commands->nthreads--;
    pthread_cond_broadcast(&commands->changed);
    return NULL;
}

/* With lock. False: none is idle. */
static bool give_to_idle(struct command *command)
{
    struct commands *commands = command->commands;
    struct commands_thread *thread = commands->idle;

    if (!thread || commands->ending)
        return false;
    commands->idle = thread->next;
    commands->nidle--;
    thread->command = command;
    pthread_cond_signal(&thread->wake);
    return true;
}

/* With lock. */
static int give_to_new(struct command *command)
{
    struct commands_thread *thread = calloc(1, sizeof *thread);
    pthread_attr_t attr;
    pthread_t id;

    if (!thread)
        return -ENOMEM;
    thread->commands = command->commands;
    thread->command = command;
    pthread_cond_init(&thread->wake, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, COMMAND_STACK);
    int r = pthread_create(&id, &attr, thread_main, thread);
    pthread_attr_destroy(&attr);
    if (r) {
        pthread_cond_destroy(&thread->wake);
        free(thread);
        return -ENOMEM;
    }
    command->commands->nthreads++;
    return 0;
}

static int give_to_thread(struct command *command)
{
    _guard_mutex_(&command->commands->lock);

    return give_to_idle(command) ? 0 : give_to_new(command);
}

int command_start(struct command *command)
{
    int r = command_enter(command);
    if (r < 0)
        return r;
    r = give_to_thread(command);
    if (r < 0)
        command_leave(command);
    return r;
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
