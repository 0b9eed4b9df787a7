#include "fs/history/look.h"

#include "agent/base/cleanup.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/process/examiner.h"
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

/* Who reads the process counts its threads. */
static void ask_for_threads(struct process *process, struct history_sample *out)
{
    const struct examiner *examiner = process->examiner;
    const struct asked_for asked = {.what = ASKED_RUNNING};
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    uint64_t told[2];

    out->known = examiner->tell(examiner->arg, process, &asked, told, &why) == 0;
    if (!out->known)
        return;
    out->gil_held = told[0];
    out->running = (uint32_t)told[1];
    out->gil_waiting = (uint32_t)(told[1] >> 32);
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

/* Its command line, as it is shown: who reads it says that, too. */
static void ask_for_command(struct process *process, struct text *out)
{
    const struct examiner *examiner = process->examiner;
    _cleanup_(text_deinit) struct text program = TEXT_INIT;
    const char *key = "\nCmdline: ";

    if (examiner->identify(examiner->arg, process->pid, process->start_time, &program) < 0)
        return;
    const char *line = program.size ? strstr(program.data, key) : NULL;
    size_t n = line ? strcspn(line + strlen(key), "\n") : 0;
    if (line)
        text_add(out, line + strlen(key), n < COMMAND_MAX ? n : COMMAND_MAX);
}

static void read_command(pid_t pid, struct text *out)
{
    char command[COMMAND_MAX];

    ssize_t n = proc_command(pid, command, sizeof command);
    if (n > 0)
        text_add(out, command, (size_t)n);
}

static void work_run(struct may_hang *hang)
{
    struct work *work = (struct work *)hang;
    struct history_look *look = &work->look;
    struct process *process = work->process;

    work->error = read_times(hang->pid, &look->sample);
    if (work->error < 0)
        return;
    if (look->with_command && process->examiner)
        ask_for_command(process, &look->command);
    else if (look->with_command)
        read_command(hang->pid, &look->command);
    look->looked = look->again || has_run(&work->before, &look->sample);
    if (look->looked && process->examiner)
        ask_for_threads(process, &look->sample);
    else if (look->looked)
        read_threads(process, &look->sample);
    if (look->looked)
        return;
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
