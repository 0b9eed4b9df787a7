#include "fs/tree/layout.h"

#include "agent/base/cleanup.h"
#include "fs/sql/table.h"
#include "fs/tree/cores.h"
#include "fs/tree/crash.h"
#include "fs/tree/globals.h"
#include "fs/tree/heap.h"
#include "fs/tree/jobs.h"
#include "fs/tree/pids.h"
#include "fs/tree/profile_view.h"
#include "fs/tree/sources.h"
#include "fs/tree/threads.h"
#include "schema/schema.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
#define DIRECTORY(path, mode, naming, about) {path, S_IFDIR | (mode), NULL, naming, about}
#define OPTIONAL(path, mode, there, about) \
    {path, S_IFDIR | (mode), NULL, NULL, about, .is_there = there}
#define CONTENT(path, mode, render, about) {path, S_IFREG | (mode), render, NULL, about}
#define COMMAND(path, mode, render, run, about) {path, S_IFREG | (mode), render, NULL, about, run}
#define QUESTION(path, mode, run, about) \
    {path, S_IFREG | (mode), reply_render, NULL, about, run, .looks = true}
#define SET(path, mode, render, run, about) \
    {path, S_IFREG | (mode), render, NULL, about, run, .clears = true}
#define TABLE(path, mode, about, is_sized) \
    {path, S_IFREG | (mode), table_render, NULL, about, .sized = is_sized}
#define SIZED(path, mode, render, about) \
    {path, S_IFREG | (mode), render, NULL, about, .sized = true}
#define NAMED(path, mode, render, naming, about) {path, S_IFREG | (mode), render, naming, about}
#define STREAM(path, mode, about) {path, S_IFREG | (mode), NULL, NULL, about, .streams = true}
#define LIVE(path, mode) \
    {path, S_IFREG | (mode), NULL, NULL, NULL, .streams = true, .live = true}
#define SYMLINK(path, naming, render, about) {path, S_IFLNK | 0777, render, naming, about}

/* What a profile shows, of one process or of all, and of parts of it. */
#define PROFILE_FILES(path, mode) \
    CONTENT(path "/folded", mode, profile_folded_render, NULL), \
    CONTENT(path "/top", mode, profile_top_render, NULL), \
    CONTENT(path "/lines", mode, profile_lines_render, NULL), \
    SIZED(path "/flamegraph.html", mode, profile_flamegraph_render, NULL), \
    SIZED(path "/speedscope.json", mode, profile_speedscope_render, NULL), \
    SIZED(path "/gecko.json", mode, profile_gecko_render, NULL), \
    SIZED(path "/pprof", mode, profile_pprof_render, NULL)
#define PROFILE_PART(path, directory, file, part, name, naming) \
    DIRECTORY(path "/" part, directory, NULL, NULL), \
    DIRECTORY(path "/" part "/" name, directory, naming, NULL), \
    PROFILE_FILES(path "/" part "/" name, file)
#define PROFILE_PARTS(path, directory, file) \
    PROFILE_PART(path, directory, file, "last", "<duration>", &profile_lasts), \
    PROFILE_PART(path, directory, file, "marks", "<mark>", &profile_marks), \
    PROFILE_PART(path, directory, file, "modes", "<mode>", &profile_modes), \
    DIRECTORY(path "/diff", directory, NULL, NULL), \
    DIRECTORY(path "/diff/<a..b>", directory, &profile_diffs, NULL), \
    CONTENT(path "/diff/<a..b>/folded", file, profile_folded_render, NULL), \
    CONTENT(path "/diff/<a..b>/top", file, profile_top_render, NULL), \
    SIZED(path "/diff/<a..b>/flamegraph.html", file, profile_flamegraph_render, NULL)
#define PROFILE_OF_PROCESS(path) \
    PROFILE_FILES(path, 0400), \
    PROFILE_PARTS(path, 0500, 0400), \
    PROFILE_PART(path, 0500, 0400, "threads", "<tid>", &profile_threads), \
    DIRECTORY(path "/source", 0500, NULL, NULL), \
    NAMED(path "/source/<file>", 0400, profile_source_render, &profile_sources, NULL)

const struct entry layout[] = {
    DIRECTORY("", 0555, NULL, ""),
    CONTENT("help", 0444, help_render, "this page"),
    SYMLINK("self", NULL, self_render, "the process that asks"),
    {"history", S_IFREG | 0444, history_render, NULL, NULL, .listed = history_listed},
    DIRECTORY("by-rank", 0555, NULL, "<rank> -> ../<pid>, in the job that has begun last"),
    SYMLINK("by-rank/<rank>", &rank_names, job_link_render, NULL),
    DIRECTORY("all", 0555, NULL, "every process at once: rows begin with host,pid,rank"),
    QUESTION("all/query", 0666, query_run, "write SQL; read what it selects"),
    COMMAND("all/eval", 0666, reply_render, all_eval_run,
            "in each at once, equal answers once"),
    COMMAND("all/ctl", 0666, reply_render, all_ctl_run, NULL),
    SET("all/breakpoints", 0666, all_breakpoints_render, all_breakpoints_run,
        "of all that you may control"),
    STREAM("all/events", 0444, NULL),
    CONTENT("all/backtrace", 0444, all_backtrace_render,
            "equal stacks once, the rarest first, with their ranks"),
    CONTENT("all/stacks.folded", 0444, all_stacks_folded_render, NULL),
    CONTENT("all/collectives", 0444, collectives_render,
            "torch.distributed: which rank is in which collective"),
    CONTENT("all/metrics", 0444, metrics_render, "OpenMetrics, for Prometheus and its like"),
    CONTENT("all/backtrace.python", 0444, all_backtrace_python_render, NULL),
    CONTENT("all/stacks.python.folded", 0444, all_stacks_python_folded_render, NULL),
    CONTENT("all/top", 0444, all_top_render, NULL),
    DIRECTORY("all/profile", 0555, NULL, NULL),
    CONTENT("all/profile/status", 0444, profile_status_render, NULL),
    LIVE("all/profile/live", 0444),
    PROFILE_FILES("all/profile", 0444),
    PROFILE_PARTS("all/profile", 0555, 0444),
    DIRECTORY("all/tables", 0555, NULL, NULL),
#define ALL_TABLE(name, about, sized) TABLE("all/tables/" #name ".csv", 0444, "", sized),
    PYTHON_TABLES(ALL_TABLE)
    DIRECTORY("jobs", 0555, NULL, "<job>/: status ranks/ workers/<rank>.<n>, and as in all/"),
    DIRECTORY("jobs/<job>", 0555, &job_names, NULL),
    CONTENT("jobs/<job>/status", 0444, job_render, NULL),
    DIRECTORY("jobs/<job>/ranks", 0555, NULL, NULL),
    SYMLINK("jobs/<job>/ranks/<rank>", &job_rank_names, job_link_render, NULL),
    DIRECTORY("jobs/<job>/workers", 0555, NULL, NULL),
    SYMLINK("jobs/<job>/workers/<rank>.<n>", &worker_names, job_link_render, NULL),
    QUESTION("jobs/<job>/query", 0666, query_run, NULL),
    CONTENT("jobs/<job>/backtrace", 0444, all_backtrace_render, NULL),
    CONTENT("jobs/<job>/stacks.folded", 0444, all_stacks_folded_render, NULL),
    CONTENT("jobs/<job>/collectives", 0444, collectives_render, NULL),
    CONTENT("jobs/<job>/metrics", 0444, metrics_render, NULL),
    CONTENT("jobs/<job>/backtrace.python", 0444, all_backtrace_python_render, NULL),
    CONTENT("jobs/<job>/stacks.python.folded", 0444, all_stacks_python_folded_render, NULL),
    COMMAND("jobs/<job>/eval", 0666, reply_render, all_eval_run, NULL),
    COMMAND("jobs/<job>/ctl", 0666, reply_render, all_ctl_run, NULL),
    SET("jobs/<job>/breakpoints", 0666, all_breakpoints_render, all_breakpoints_run, NULL),
    STREAM("jobs/<job>/events", 0444, NULL),
    CONTENT("jobs/<job>/top", 0444, all_top_render, NULL),
    DIRECTORY("jobs/<job>/profile", 0555, NULL, NULL),
    CONTENT("jobs/<job>/profile/status", 0444, profile_status_render, NULL),
    LIVE("jobs/<job>/profile/live", 0444),
    PROFILE_FILES("jobs/<job>/profile", 0444),
    PROFILE_PARTS("jobs/<job>/profile", 0555, 0444),
    DIRECTORY("jobs/<job>/tables", 0555, NULL, NULL),
#define JOB_TABLE(name, about, sized) TABLE("jobs/<job>/tables/" #name ".csv", 0444, NULL, sized),
    PYTHON_TABLES(JOB_TABLE)
    DIRECTORY("exited", 0555, NULL, "<pid>/: what is left of ended ones; rmdir drops it"),
    DIRECTORY("exited/by-rank", 0555, NULL, NULL),
    SYMLINK("exited/by-rank/<rank>", &exited_rank_names, exited_link_render, NULL),
    DIRECTORY("exited/<pid>", 0500, &exited_pids, NULL),
    CONTENT("exited/<pid>/status", 0400, exited_status_render, NULL),
    QUESTION("exited/<pid>/query", 0600, query_run, NULL),
    CONTENT("exited/<pid>/exceptions.top", 0400, exceptions_top_render, NULL),
    DIRECTORY("exited/<pid>/tables", 0500, NULL, NULL),
#define EXITED_TABLE(name, sized) TABLE("exited/<pid>/tables/" #name ".csv", 0400, "", sized),
    PYTHON_LASTING_TABLES(EXITED_TABLE)
    DIRECTORY("exited/<pid>/profile", 0500, NULL, NULL),
    CONTENT("exited/<pid>/profile/status", 0400, profile_status_render, NULL),
    PROFILE_OF_PROCESS("exited/<pid>/profile"),
    OPTIONAL("exited/<pid>/crash", 0500, crash_is_there, NULL),
    CONTENT("exited/<pid>/crash/traceback", 0400, crash_traceback_render, NULL),
    CONTENT("exited/<pid>/crash/locals", 0400, crash_locals_render, NULL),
    CONTENT("exited/<pid>/crash/backtrace", 0400, crash_backtrace_render, NULL),
    DIRECTORY("exited/<pid>/crash/frames", 0500, NULL, NULL),
    DIRECTORY("exited/<pid>/crash/frames/<depth>", 0500, &crash_depths, NULL),
    CONTENT("exited/<pid>/crash/frames/<depth>/locals", 0400, crash_frame_locals_render, NULL),
    OPTIONAL("exited/<pid>/torch", 0500, torch_profile_is_there, NULL),
    CONTENT("exited/<pid>/torch/trace.json", 0400, torch_trace_render, NULL),
    CONTENT("exited/<pid>/torch/top", 0400, torch_top_render, NULL),
    OPTIONAL("cores", 0555, cores_are_there, "-o core=FILE: each with much of what <pid>/ has"),
    DIRECTORY("cores/<name>", 0500, &cores, NULL),
    CONTENT("cores/<name>/status", 0400, core_status_render, NULL),
    CONTENT("cores/<name>/backtrace", 0400, backtrace_render, NULL),
    CONTENT("cores/<name>/backtrace.python", 0400, backtrace_python_render, NULL),
    CONTENT("cores/<name>/stacks.folded", 0400, stacks_folded_render, NULL),
    CONTENT("cores/<name>/stacks.python.folded", 0400, stacks_python_folded_render, NULL),
    {"cores/<name>/tasks", S_IFREG | 0400, tasks_render, NULL, NULL, .listed = tasks_listed},
    CONTENT("cores/<name>/locks", 0400, locks_render, NULL),
    QUESTION("cores/<name>/query", 0600, query_run, NULL),
    DIRECTORY("cores/<name>/tables", 0500, NULL, NULL),
#define CORE_TABLE(name, sized) TABLE("cores/<name>/tables/" #name ".csv", 0400, "", sized),
    PYTHON_PASSIVE_TABLES(CORE_TABLE)
    CONTENT("cores/<name>/errors", 0400, errors_render, NULL),
    DIRECTORY("cores/<name>/globals", 0500, NULL, NULL),
    {"cores/<name>/globals/<module>", S_IFREG | 0400, globals_render, &modules, NULL},
    DIRECTORY("cores/<name>/sources", 0500, NULL, NULL),
    NAMED("cores/<name>/sources/<file>", 0400, sources_render, &source_names, NULL),
    DIRECTORY("cores/<name>/heap", 0500, NULL, NULL),
    CONTENT("cores/<name>/heap/census", 0400, heap_census_render, NULL),
    DIRECTORY("cores/<name>/heap/referrers", 0500, NULL, NULL),
    {"cores/<name>/heap/referrers/<object>", S_IFREG | 0400, heap_referrers_render, &heap_objects,
     NULL},
    DIRECTORY("cores/<name>/threads", 0500, NULL, NULL),
    DIRECTORY("cores/<name>/threads/<tid>", 0500, &tids, NULL),
    CONTENT("cores/<name>/threads/<tid>/status", 0400, thread_status_render, NULL),
    CONTENT("cores/<name>/threads/<tid>/backtrace", 0400, thread_backtrace_render, NULL),
    CONTENT("cores/<name>/threads/<tid>/locals", 0400, locals_render, NULL),
    DIRECTORY("cores/<name>/threads/<tid>/frames", 0500, NULL, NULL),
    DIRECTORY("cores/<name>/threads/<tid>/frames/<depth>", 0500, &depths, NULL),
    CONTENT("cores/<name>/threads/<tid>/frames/<depth>/locals", 0400, frame_locals_render, NULL),
    QUESTION("cores/<name>/threads/<tid>/frames/<depth>/value", 0600, frame_value_run, NULL),
    CONTENT("cores/<name>/threads/<tid>/frames/<depth>/source", 0400, source_render, NULL),
    DIRECTORY("<pid>", 0500, &pids, "each process that runs CPython"),
    CONTENT("<pid>/status", 0400, status_render, "version, threads, GIL: one `Key: value` a line"),
    CONTENT("<pid>/backtrace", 0400, backtrace_render, "all threads, Python and native frames"),
    CONTENT("<pid>/backtrace.python", 0400, backtrace_python_render,
            "Python frames only; who holds others up first"),
    CONTENT("<pid>/stacks.folded", 0400, stacks_folded_render, "one line a thread"),
    CONTENT("<pid>/stacks.python.folded", 0400, stacks_python_folded_render,
            "the same of Python frames"),
    {"<pid>/tasks", S_IFREG | 0400, tasks_render, NULL,
     "asyncio tasks as a tree, with what each awaits", .listed = tasks_listed},
    CONTENT("<pid>/locks", 0400, locks_render, "who waits for what, and who holds it"),
    COMMAND("<pid>/eval", 0600, reply_render, eval_run,
            "write Python, which runs there; read the reply"),
    COMMAND("<pid>/ctl", 0600, ctl_render, ctl_run, "attach, pause, record, profile, on-crash ..."),
    SET("<pid>/breakpoints", 0600, breakpoints_render, breakpoints_run,
        "the set: > replaces, >> adds, -ID removes; read it back"),
    STREAM("<pid>/events", 0400, "what happens from now on, as JSON lines; waits for it"),
    QUESTION("<pid>/query", 0600, query_run, "write SQL; read what it selects"),
    DIRECTORY("<pid>/tables", 0500, NULL, "what SQL selects from, as <name>.csv"),
#define PID_TABLE(name, about, sized) TABLE("<pid>/tables/" #name ".csv", 0400, about, sized),
    PYTHON_TABLES(PID_TABLE)
    CONTENT("<pid>/top", 0400, top_render, "functions by processor time of the last second"),
    DIRECTORY("<pid>/profile", 0500, NULL, "where the time goes: flamegraph.html, top, folded ..."),
    CONTENT("<pid>/profile/status", 0400, profile_status_render, NULL),
    LIVE("<pid>/profile/live", 0400),
    PROFILE_OF_PROCESS("<pid>/profile"),
    CONTENT("<pid>/exceptions.top", 0400, exceptions_top_render,
            "recorded ones by type and place, the last first"),
    CONTENT("<pid>/errors", 0400, errors_render,
            "why the last 8 opens and writes failed, in words"),
    OPTIONAL("<pid>/crash", 0500, crash_is_there, "if it crashed: traceback, locals"),
    CONTENT("<pid>/crash/traceback", 0400, crash_traceback_render, NULL),
    CONTENT("<pid>/crash/locals", 0400, crash_locals_render, NULL),
    CONTENT("<pid>/crash/backtrace", 0400, crash_backtrace_render, NULL),
    DIRECTORY("<pid>/crash/frames", 0500, NULL, NULL),
    DIRECTORY("<pid>/crash/frames/<depth>", 0500, &crash_depths, NULL),
    CONTENT("<pid>/crash/frames/<depth>/locals", 0400, crash_frame_locals_render, NULL),
    CONTENT("<pid>/crash/frames/<depth>/source", 0400, crash_source_render, NULL),
    COMMAND("<pid>/crash/frames/<depth>/eval", 0600, reply_render, eval_run, NULL),
    OPTIONAL("<pid>/torch", 0500, torch_is_there, "modules; trace.json, top of `profile torch`"),
    CONTENT("<pid>/torch/modules", 0400, torch_modules_render, NULL),
    {"<pid>/torch/trace.json", S_IFREG | 0400, torch_trace_render, NULL, NULL,
     .is_there = torch_profile_is_there},
    {"<pid>/torch/top", S_IFREG | 0400, torch_top_render, NULL, NULL,
     .is_there = torch_profile_is_there},
    DIRECTORY("<pid>/globals", 0500, NULL, "<module>: what it binds, name = value"),
    {"<pid>/globals/<module>", S_IFREG | 0400, globals_render, &modules, NULL},
    DIRECTORY("<pid>/sources", 0500, NULL, "<file>: the text of what code comes from, ! for /"),
    NAMED("<pid>/sources/<file>", 0400, sources_render, &source_names, NULL),
    DIRECTORY("<pid>/heap", 0500, NULL, "census, sites, diff/<marks>, referrers/<object>"),
    CONTENT("<pid>/heap/census", 0400, heap_census_render, NULL),
    DIRECTORY("<pid>/heap/diff", 0500, NULL, NULL),
    {"<pid>/heap/diff/<marks>", S_IFREG | 0400, heap_diff_render, &heap_diffs, NULL},
    CONTENT("<pid>/heap/sites", 0400, heap_sites_render, NULL),
    DIRECTORY("<pid>/heap/referrers", 0500, NULL, NULL),
    {"<pid>/heap/referrers/<object>", S_IFREG | 0400, heap_referrers_render, &heap_objects, NULL},
    DIRECTORY("<pid>/threads", 0500, NULL, "its threads"),
    DIRECTORY("<pid>/threads/<tid>", 0500, &tids, ""),
    CONTENT("<pid>/threads/<tid>/status", 0400, thread_status_render, "state, GIL, times"),
    CONTENT("<pid>/threads/<tid>/backtrace", 0400, thread_backtrace_render, "its stack"),
    CONTENT("<pid>/threads/<tid>/locals", 0400, locals_render, "what its Python frames bind"),
    COMMAND("<pid>/threads/<tid>/eval", 0600, reply_render, eval_run,
            "names as its stack sees them"),
    COMMAND("<pid>/threads/<tid>/ctl", 0600, thread_ctl_render, thread_ctl_run,
            "pause, continue, step [own], next, until, finish, jump"),
    DIRECTORY("<pid>/threads/<tid>/frames", 0500, NULL, "its Python frames"),
    DIRECTORY("<pid>/threads/<tid>/frames/<depth>", 0500, &depths, ""),
    CONTENT("<pid>/threads/<tid>/frames/<depth>/locals", 0400, frame_locals_render,
            "name = value, one a line"),
    QUESTION("<pid>/threads/<tid>/frames/<depth>/value", 0600, frame_value_run,
             "write a path, a.b[0]['k']{3}; read what that holds"),
    CONTENT("<pid>/threads/<tid>/frames/<depth>/source", 0400, source_render,
            "the lines around the current one"),
    COMMAND("<pid>/threads/<tid>/frames/<depth>/eval", 0600, reply_render, eval_run,
            "names as this frame sees them"),
};
/* clang-format on */
const size_t layout_size = ARRAY_SIZE(layout);

bool entry_exited(const struct entry *entry) { return !strncmp(entry->path, "exited/", 7); }

/* Whether the file of a table shows nothing but the process. */
static bool is_passive_table(const char *file)
{
    char name[32];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
    const struct table *table = tables_find(&python_tables, name);
    return table && !strcmp(table->source, "passive") && !table->rows->between;
}

bool entry_asks(const struct entry *entry)
{
    static file_run *const runs[] = {eval_run, breakpoints_run, ctl_run, thread_ctl_run,
                                     frame_value_run};
    static file_render *const renders[] = {heap_diff_render, source_render, sources_render,
                                           top_render, locks_render};
    const struct entry *child = entry->render ? NULL : layout_next(entry, NULL);

    for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
        if (entry->run == runs[i])
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(renders); i++)
        if (entry->render == renders[i])
            return true;
    return (child && child->naming == &heap_diffs) || !strncmp(entry->path, "<pid>/profile/", 14);
}

bool entry_rows(const struct entry *entry)
{
    return entry->run == query_run || entry->render == table_render ||
           entry->render == exceptions_top_render;
}

bool entry_core(const struct entry *entry) { return !strncmp(entry->path, "cores/<name>", 12); }

/* Whether it is below what is one process's, or one core file's. */
static bool is_of_process(const struct entry *entry)
{
    return !strncmp(entry->path, "<pid>/", 6) || entry_core(entry);
}

bool entry_passive(const struct entry *entry)
{
    static file_render *const renders[] = {
        status_render,         backtrace_render,  backtrace_python_render,
        stacks_folded_render,  tasks_render,      stacks_python_folded_render,
        thread_status_render,  locals_render,     thread_backtrace_render,
        frame_locals_render,   globals_render,    heap_census_render,
        heap_referrers_render, heap_sites_render, torch_modules_render,
        core_status_render,
    };
    static const struct naming *const namings[] = {&tids, &depths, &modules, &heap_objects};

    if (!is_of_process(entry))
        return false;
    if (entry->render == table_render)
        return is_passive_table(entry_name(entry));
    for (size_t i = 0; i < ARRAY_SIZE(renders); i++)
        if (entry->render == renders[i])
            return true;
    for (size_t i = 0; !entry->render && i < ARRAY_SIZE(namings); i++)
        if (entry->naming == namings[i])
            return true;
    return false;
}

bool entry_names_passive(const struct entry *entry)
{
    return entry_passive(entry) || (entry->naming == &source_names && is_of_process(entry));
}

const char *entry_name(const struct entry *entry)
{
    const char *slash = strrchr(entry->path, '/');
    return slash ? slash + 1 : entry->path;
}

static bool is_child(const struct entry *directory, const struct entry *entry)
{
    size_t length = strlen(directory->path);
    const char *rest = entry->path + length;

    if (entry == directory || strncmp(entry->path, directory->path, length))
        return false;
    if (length) {
        if (*rest != '/')
            return false;
        rest++;
    }
    return !strchr(rest, '/');
}

const struct entry *layout_next(const struct entry *directory, const struct entry *after)
{
    for (const struct entry *e = after ? after + 1 : layout; e < layout + layout_size; e++)
        if (is_child(directory, e))
            return e;
    return NULL;
}

const struct entry *layout_find(const struct entry *directory, const char *name, unsigned *value)
{
    const struct entry *dynamic = NULL;

    for (const struct entry *e = NULL; (e = layout_next(directory, e));) {
        if (e->naming)
            dynamic = e;
        else if (!strcmp(entry_name(e), name))
            return e;
    }
    if (dynamic && name_is_word(dynamic->naming->kind))
        return strlen(name) <= NAME_MAX ? dynamic : NULL;
    return dynamic && name_parse(dynamic->naming->kind, name, value) ? dynamic : NULL;
}
