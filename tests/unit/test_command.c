#include "agent/base/clock.h"
#include "fs/mount/command.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <unistd.h>

static atomic_int ran, begun;
static sem_t go;

struct counted {
    struct command command;
    int number;
};

static void count(struct command *command)
{
    atomic_fetch_add(&ran, ((struct counted *)command)->number);
}

/* Ends when it is interrupted, and only then. */
static void wait_for_interrupt(struct command *command)
{
    struct pollfd p = {.fd = command->interrupt.fd, .events = POLLIN};

    atomic_fetch_add(&begun, 1);
    CHECK_INT(poll(&p, 1, -1), 1);
    CHECK(interrupted(&command->interrupt));
    atomic_fetch_add(&ran, 1);
}

static void wait_for_go(struct command *command)
{
    atomic_fetch_add(&begun, 1);
    sem_wait(&go);
    atomic_fetch_add(&ran, 1);
}

static void free_counted(struct command *command)
{
    command_deinit(command);
    free(command);
}

static struct command *new_command(struct commands *commands, void (*run)(struct command *),
                                   int number)
{
    struct counted *counted = calloc(1, sizeof *counted);
    counted->command.run = run;
    counted->command.done = free_counted;
    command_init(&counted->command, commands, geteuid());
    counted->number = number;
    return &counted->command;
}

static void wait_until(atomic_int *value, int wanted)
{
    while (atomic_load(value) < wanted)
        sched_yield();
}

static void test_runs(void)
{
    struct commands commands;

    commands_init(&commands);
    for (int i = 1; i <= 100; i++)
        CHECK_INT(command_start(new_command(&commands, count, i)), 0);
    CHECK(commands_end(&commands, 10000000000u));
    CHECK_INT(ran, 5050);

    struct command *late = new_command(&commands, count, 1);
    CHECK_INT(command_start(late), -ESHUTDOWN);
    command_deinit(late);
    free(late);
    CHECK_INT(ran, 5050);
    commands_deinit(&commands);
}

static void test_bound(void)
{
    struct commands commands;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    commands_init(&commands);
    for (int i = 0; i < COMMANDS_MAX; i++)
        CHECK_INT(command_start(new_command(&commands, wait_for_interrupt, 0)), 0);
    struct command *more = new_command(&commands, count, 1000);
    CHECK_INT(command_start(more), -EAGAIN);
    command_deinit(more);
    free(more);
    wait_until(&begun, COMMANDS_MAX);
    CHECK_INT(ran, 0);

    CHECK(commands_end(&commands, 10000000000u)); /* by interrupting them */
    CHECK_INT(ran, COMMANDS_MAX);
    commands_deinit(&commands);
}

static void refused(struct commands *commands, uid_t uid, int error)
{
    struct command *command = new_command(commands, count, 1000);

    command->uid = uid;
    CHECK_INT(command_start(command), error);
    command_deinit(command);
    free(command);
}

/* One user has a share, all of them leave some to root, and what one gave back another may have. */
static void test_shares(void)
{
    enum { LEFT = COMMANDS_MAX - COMMANDS_KEPT, FIRST = 100000 };
    struct commands commands;
    int n = 0;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    commands_init(&commands);
    for (; n < LEFT; n++) {
        struct command *command = new_command(&commands, wait_for_interrupt, 0);
        command->uid = FIRST + (uid_t)n / COMMANDS_EACH;
        CHECK_INT(command_start(command), 0);
    }
    refused(&commands, FIRST, -EDQUOT);
    refused(&commands, FIRST + 1000, -EAGAIN);
    for (; n < COMMANDS_MAX; n++)
        CHECK_INT(command_start(new_command(&commands, wait_for_interrupt, 0)), 0);
    refused(&commands, 0, -EAGAIN);
    wait_until(&begun, n);
    CHECK(commands_end(&commands, 10000000000u));
    CHECK_INT(commands.shares.nusers, 0);
    commands_deinit(&commands);
}

static bool unwanted_now(struct command *command) { return true; }

static void test_interrupt_one(void)
{
    struct commands commands;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    commands_init(&commands);
    struct command *first = new_command(&commands, wait_for_interrupt, 0);
    first->unwanted = unwanted_now;
    CHECK_INT(command_start(first), 0);
    CHECK_INT(command_start(new_command(&commands, wait_for_interrupt, 0)), 0);
    wait_until(&begun, 2);
    command_watch(first);
    wait_until(&ran, 1);
    CHECK(commands_end(&commands, 10000000000u));
    CHECK_INT(ran, 2);
    commands_deinit(&commands);
}

/* One that has a time to end by, when nobody interrupts it. */
static void test_until(void)
{
    struct commands commands;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    commands_init(&commands);
    struct command *command = new_command(&commands, wait_for_interrupt, 0);
    command->until_ns = monotonic_ns() + 20000000;
    CHECK_INT(command_start(command), 0);
    command = new_command(&commands, wait_for_interrupt, 0);
    command->until_ns = monotonic_ns() + 10000000;
    CHECK_INT(command_start(command), 0);
    wait_until(&ran, 2);
    command = new_command(&commands, wait_for_interrupt, 0);
    command->until_ns = monotonic_ns() + 3600000000000u;
    CHECK_INT(command_start(command), 0);
    wait_until(&begun, 3);
    CHECK_INT(ran, 2);
    CHECK(commands_end(&commands, 10000000000u));
    CHECK_INT(ran, 3);
    commands_deinit(&commands);
}

static atomic_int asked;

static bool unwanted_later(struct command *command) { return atomic_fetch_add(&asked, 1) == 3; }

static void test_watch(void)
{
    struct commands commands;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    commands_init(&commands);
    struct command *command = new_command(&commands, wait_for_interrupt, 0);
    command->unwanted = unwanted_later;
    CHECK_INT(command_start(command), 0);
    wait_until(&begun, 1);
    CHECK_INT(asked, 0);
    command_watch(command);
    wait_until(&ran, 1);
    CHECK_INT(asked, 4);
    CHECK(commands_end(&commands, 10000000000u));
    commands_deinit(&commands);
}

/* One that doesn't listen: the caller is told. */
static void test_deaf(void)
{
    struct commands commands;

    atomic_store(&ran, 0);
    atomic_store(&begun, 0);
    sem_init(&go, 0, 0);
    commands_init(&commands);
    CHECK_INT(command_start(new_command(&commands, wait_for_go, 0)), 0);
    wait_until(&begun, 1);
    CHECK(!commands_end(&commands, 1000000));
    sem_post(&go);
    CHECK(commands_end(&commands, 10000000000u));
    CHECK_INT(ran, 1);
    commands_deinit(&commands);
    sem_destroy(&go);
}

int main(void)
{
    test_runs();
    test_bound();
    test_shares();
    test_interrupt_one();
    test_until();
    test_watch();
    test_deaf();
    return 0;
}
