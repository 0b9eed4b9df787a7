#include "fs/proc/ending.h"

#include "fs/proc/procfs.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* Linux 6.15, include/uapi/linux/pidfd.h: also of a process that its parent has waited for. */
struct exit_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define EXIT_INFO_GET _IOWR(0xff, 11, struct exit_info)
#define EXIT_INFO_EXIT (1u << 3)

_Static_assert(sizeof(struct exit_info) == 64, "PIDFD_INFO_SIZE_VER0");

void ending_of_status(int status, struct ending *out)
{
    if (WIFSIGNALED(status)) {
        out->how = ENDING_KILLED;
        out->number = WTERMSIG(status);
    } else if (WIFEXITED(status)) {
        out->how = ENDING_EXITED;
        out->number = WEXITSTATUS(status);
    }
}

/* Nobody has waited for it yet: the last field of its stat, 0 where the daemon may not see it. */
static bool see_zombie(pid_t pid, uint64_t start_time, struct ending *out)
{
    struct proc_stat stat;
    char text[1024];

    if (proc_read(pid, "stat", text, sizeof text) < 0 || !proc_stat_parse(text, &stat) ||
        stat.start_time != start_time || stat.state != 'Z')
        return false;
    ending_of_status(atoi(strrchr(text, ' ') + 1), out);
    return true;
}

void ending_see(pid_t pid, uint64_t start_time, int pidfd, struct ending *out)
{
    struct exit_info info = {.mask = EXIT_INFO_EXIT};

    *out = (struct ending){.how = ENDING_UNKNOWN};
    clock_gettime(CLOCK_REALTIME, &out->when);
    if (!see_zombie(pid, start_time, out) && pidfd >= 0 &&
        ioctl(pidfd, EXIT_INFO_GET, &info) == 0 && info.mask & EXIT_INFO_EXIT)
        ending_of_status(info.exit_code, out);
}

void ending_text(const struct ending *ending, struct text *out)
{
    text_puts(out, "Ended: ");
    text_add_time(out, ending->when.tv_sec);
    text_puts(out, "\nExit: ");
    switch (ending->how) {
    case ENDING_UNKNOWN: text_puts(out, "not known\n"); break;
    case ENDING_EXITED: text_printf(out, "status %d\n", ending->number); break;
    case ENDING_KILLED: {
        const char *name = sigabbrev_np(ending->number);
        text_printf(out, "signal %d%s%s\n", ending->number, name ? " SIG" : "", name ? name : "");
        break;
    }
    case ENDING_EXECUTED: text_puts(out, "executed another program\n"); break;
    }
}
