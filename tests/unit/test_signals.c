#include "fs/proc/signals.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool urgent(unsigned long long own, unsigned long long shared, unsigned long long blocked,
                   unsigned long long ignored)
{
    char text[256];
    snprintf(text, sizeof text,
             "Name:\tSigPnd:\nSigQ:\t0/1\nSigPnd:\t%016llx\nShdPnd:\t%016llx\nSigBlk:\t%016llx\n"
             "SigIgn:\t%016llx\nSigCgt:\tffffffffffffffff\n",
             own, shared, blocked, ignored);
    return signals_parse_urgent(text);
}

#define BIT(number) (1ull << ((number)-1))

int main(void)
{
    CHECK(!urgent(0, 0, 0, 0));
    for (int number = 1; number <= 64; number++) {
        bool harmless = number == SIGCHLD || number == SIGCONT || number == SIGURG ||
                        number == SIGWINCH || number == SIGPROF || number == SIGVTALRM;
        CHECK(urgent(BIT(number), 0, 0, 0) == !harmless);
        CHECK(urgent(0, BIT(number), 0, 0) == !harmless);
        CHECK(urgent(BIT(SIGCHLD), BIT(number), 0, 0) == !harmless);
        CHECK(!urgent(BIT(number), BIT(number), BIT(number), 0));
        CHECK(!urgent(BIT(number), 0, 0, BIT(number)));
    }
    CHECK(urgent(BIT(SIGCHLD) | BIT(SIGINT), 0, 0, 0));

    /* as the kernel says it: blocked signals are pending and wait */
    sigset_t all;
    sigfillset(&all);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
    kill(getpid(), SIGINT);
    CHECK(!signals_urgent((pid_t)syscall(SYS_gettid)));
    CHECK(signals_urgent(0)); /* of a foreign pid namespace: unknown */
    return 0;
}
