#include "fs/history/look.h"

#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define COMMAND_MAX 4096 /* bytes that are kept of a command line */

struct work {
    struct may_hang hang;
    struct process *process; /* a reference */
    struct history_look look;
    struct history_sample before;
    int error;
};

static int read_times(pid_t pid, struct history_sample *out)
{
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    struct proc_stat stat;

    int r = proc_stat_read(pid, &stat);
    if (r < 0)
        return r;
    out->state = stat.state;
    out->cpu_user = (double)stat.utime * tick;
    out->cpu_system = (double)stat.stime * tick;
    out->rss = stat.rss * (uint64_t)sysconf(_SC_PAGESIZE);
    out->threads = stat.threads;
    return 0;
}

static bool has_run(const struct history_sample *before, const struct history_sample *now)
{
    return before->state != now->state || before->threads != now->threads ||
           before->cpu_user != now->cpu_user || before->cpu_system != now->cpu_system;
}

static void read_threads(struct process *process, struct history_sample *out)
{
    const struct snapshot_options options = {.depth = 1};
    struct target *target = process_target(process);
    struct snapshot *snapshot = NULL;

    if (target && snapshot_take(target, &options, &snapshot) == 0 && snapshot->supported) {
        out->known = true;
        out->gil_held = snapshot->gil_held;
        for (size_t i = 0; i < snapshot->nthreads; i++) {
            out->running += snapshot->threads[i].state == THREAD_RUNNING;
            out->gil_waiting += snapshot->threads[i].waits_gil;
        }
    }
    snapshot_free(snapshot);
    target_unref(target);
}

static void work_run(struct may_hang *hang)
{
    struct work *work = (struct work *)hang;
    struct history_look *look = &work->look;
    char command[COMMAND_MAX];

    work->error = read_times(hang->pid, &look->sample);
    if (work->error < 0)
        return;
    if (look->with_command) {
        ssize_t n = proc_command(hang->pid, command, sizeof command);
        if (n > 0)
            text_add(&look->command, command, (size_t)n);
    }
    look->looked = look->again || has_run(&work->before, &look->sample);
    if (look->looked) {
        read_threads(work->process, &look->sample);
        return;
    }
    look->sample.known = work->before.known;
    look->sample.gil_held = work->before.gil_held;
    look->sample.running = work->before.running;
    look->sample.gil_waiting = work->before.gil_waiting;
}

static void work_free(struct may_hang *hang)
{
    struct work *work = (struct work *)hang;

    text_deinit(&work->look.command);
    process_unref(work->process);
    free(work);
}

int history_look(struct process *process, struct history_look *look)
{
    struct work *work = calloc(1, sizeof *work);

    if (!work)
        return -ENOMEM;
    work->hang = (struct may_hang){.pid = process->pid, .run = work_run, .free = work_free};
    work->process = process_ref(process);
    work->before = *look->before;
    work->look = *look;
    may_hang_init(&work->hang);
    int r = may_hang_run(&work->hang, NULL);
    if (r == 0) {
        r = work->error;
        *look = work->look;
        work->look.command = TEXT_INIT;
    }
    may_hang_unref(&work->hang);
    return r;
}
