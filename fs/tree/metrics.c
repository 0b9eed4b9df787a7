/* all/metrics, and that of a job: what a monitoring system wants to know of each process, as
 * OpenMetrics text (https://prometheus.io/docs/specs/om/open_metrics_spec/). A family is one
 * statement; what is recorded is there where it is recorded. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/tree/query.h"

#include <string.h>

#define NOW "(julianday('now') - 2440587.5) * 86400"
#define LABELS_MAX "1000" /* of a family whose labels the program chooses */

static const struct family {
    const char *name, *help, *sql;
} families[] = {
    {"probefs_process_info", "What a process is.",
     "SELECT pid, rank, worker, job, role, world, python, command, 1 AS probefs_process_info"
     " FROM process"},
    {"probefs_cpu_seconds", "Processor time.",
     "SELECT pid, rank, 'user' AS mode, cpu_user AS probefs_cpu_seconds_total FROM process"
     " UNION ALL SELECT pid, rank, 'system', cpu_system FROM process"},
    {"probefs_resident_memory_bytes", "Memory that it has resident.",
     "SELECT pid, rank, rss AS probefs_resident_memory_bytes FROM process"},
    {"probefs_start_time_seconds", "When it was started, since 1970.",
     "SELECT pid, rank, started AS probefs_start_time_seconds FROM process"},
    {"probefs_threads", "Its threads, by what they do.",
     "SELECT pid, rank, state, count(*) AS probefs_threads FROM threads GROUP BY pid, state"},
    {"probefs_gil_held", "1: a thread holds the GIL.",
     "SELECT pid, rank, max(holds_gil) AS probefs_gil_held FROM threads GROUP BY pid"},
    {"probefs_gil_waiting_threads", "Threads that wait for the GIL.",
     "SELECT pid, rank, sum(waits_gil) AS probefs_gil_waiting_threads FROM threads GROUP BY pid"},
    {"probefs_step", "Number of the optimizer's step: record torch on.",
     "SELECT pid, rank, max(step) AS probefs_step FROM torch_trace WHERE ended IS NULL"
     " GROUP BY pid"},
    {"probefs_step_seconds", "How long the last step took: record torch on.",
     "SELECT pid, rank, duration AS probefs_step_seconds FROM (SELECT pid, rank, duration, max(ts)"
     " FROM torch_trace WHERE stage IN ('iteration', 'shadow') AND duration NOT NULL"
     " AND ended IS NULL GROUP BY pid)"},
    {"probefs_span_seconds", "How long the last span of a name took: record spans on.",
     "SELECT pid, rank, name AS span, duration AS probefs_span_seconds FROM (SELECT pid, rank,"
     " name, duration, max(start) FROM spans WHERE duration NOT NULL AND ended IS NULL"
     " GROUP BY pid, name LIMIT " LABELS_MAX ")"},
    {"probefs_collective", "Number of the group's last collective: record collectives on.",
     "SELECT pid, rank, group_name AS \"group\", max(seq) AS probefs_collective FROM collectives"
     " WHERE source = 'counter' AND ended IS NULL GROUP BY pid, group_name LIMIT " LABELS_MAX},
    {"probefs_collective_unchanged_seconds",
     "For how long that number has been the same: record collectives on.",
     "SELECT pid, rank, group_name AS \"group\", max(0, " NOW " - max(start))"
     " AS probefs_collective_unchanged_seconds FROM collectives WHERE source = 'counter'"
     " AND ended IS NULL GROUP BY pid, group_name LIMIT " LABELS_MAX},
    {"probefs_exceptions", "Exceptions that are kept, by type: record exceptions on.",
     "SELECT pid, rank, type, CASE handled WHEN 1 THEN 'yes' WHEN 0 THEN 'no' ELSE 'unknown' END"
     " AS handled, count(*) AS probefs_exceptions FROM exceptions WHERE ended IS NULL"
     " GROUP BY pid, type, handled ORDER BY count(*) DESC LIMIT " LABELS_MAX},
    {"probefs_rows", "Rows that were recorded, by table.",
     "SELECT pid, rank, name AS \"table\", kept + lost AS probefs_rows_total FROM tables"
     " WHERE kept NOT NULL AND pid IN (SELECT pid FROM process)"},
    {"probefs_rows_lost", "Those that later ones have overwritten, or that were dropped.",
     "SELECT pid, rank, name AS \"table\", lost AS probefs_rows_lost_total FROM tables"
     " WHERE kept NOT NULL AND pid IN (SELECT pid FROM process)"},
};

int metrics_render(struct file_context *context, struct text *out)
{
    struct tables_of of;
    struct provider provider = tables_provider(context, &of);
    uint64_t until = monotonic_ns() + ENGINE_DEADLINE_NS; /* of all together */
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(families) && r == 0; i++) {
        uint64_t now = monotonic_ns();
        provider.deadline_ns = now < until ? until - now : 1;
        text_printf(out, "# HELP %s %s\n", families[i].name, families[i].help);
        r = query_select(context, &provider, families[i].sql, "metrics", out);
    }
    text_puts(out, "# EOF\n");
    return r;
}
