/* empty_event PID HZ: a task-clock event on each thread of a process, so often a second of its
 * processor time, which nobody reads. Prints "ready", and ends with its standard input. */
#include <dirent.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[64];
    struct perf_event_attr attr = {
        .size = sizeof attr,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .sample_type = PERF_SAMPLE_IP,
    };

    if (argc != 3 || atoi(argv[2]) <= 0)
        return 2;
    attr.sample_period = 1000000000ull / (unsigned)atoi(argv[2]);
    snprintf(path, sizeof path, "/proc/%s/task", argv[1]);
    DIR *tasks = opendir(path);
    if (!tasks)
        return 1;
    for (struct dirent *task; (task = readdir(tasks));)
        if (task->d_name[0] != '.' && syscall(SYS_perf_event_open, &attr, atoi(task->d_name), -1,
                                              -1, PERF_FLAG_FD_CLOEXEC) < 0) {
            perror("perf_event_open");
            return 1;
        }
    closedir(tasks);
    puts("ready");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
