#include "fs/proc/signals.h"

#include "fs/proc/procfs.h"

#include <signal.h>
#include <stdint.h>

#define STATUS_MAX 8192
#define BIT(number) (UINT64_C(1) << ((number)-1))

bool signals_parse_urgent(const char *status)
{
    const uint64_t harmless = BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) |
                              BIT(SIGPROF) | BIT(SIGVTALRM);
    uint64_t pending = proc_status_signals(status, "SigPnd") |
                       proc_status_signals(status, "ShdPnd");

    return pending & ~proc_status_signals(status, "SigBlk") &
           ~proc_status_signals(status, "SigIgn") & ~harmless;
}

bool signals_urgent(pid_t tid)
{
    char status[STATUS_MAX];

    if (!tid || proc_read(tid, "status", status, sizeof status) < 0)
        return true;
    return signals_parse_urgent(status);
}
