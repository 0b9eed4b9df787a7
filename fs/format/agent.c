#include "fs/format/agent.h"

#include <string.h>
#include <time.h>

static const char *origin_name(uint32_t origin)
{
    switch (origin) {
    case ORIGIN_INJECTED: return "injected";
    case ORIGIN_IMPORTED: return "import probing";
    case ORIGIN_STARTUP: return "PROBING=1";
    case ORIGIN_REMOTE_EXEC: return "remote_exec";
    }
    return "unknown";
}

/* What the agent said of itself; not trusted, so nothing of it is taken for text but escaped. */
static void add_ready(const struct proto_ready *ready, struct text *out)
{
    text_puts(out, "AgentVersion: ");
    text_add_escaped(out, ready->agent_version,
                     strnlen(ready->agent_version, sizeof ready->agent_version));
    text_printf(out, "\nAgentOrigin: %s\nAgentSince: ", origin_name(ready->origin));
    text_add_time(out, (time_t)(ready->since_ns / 1000000000u));
    text_printf(out, "\nAgentThreads: %d", ready->channel_tid);
    if (ready->python_tid)
        text_printf(out, " %d", ready->python_tid);
    text_printf(out, "\nAgentMemory: %lu\nAgentRings: %lu\nAgentEvals: %lu\n",
                (unsigned long)ready->memory, (unsigned long)ready->rings,
                (unsigned long)ready->evals);
}

void agent_text(const struct attach_status *status, struct text *out)
{
    if (!status->loaded) {
        text_puts(out, "Agent: none\n");
        return;
    }
    text_printf(out, "Agent: %s\n",
                !status->running    ? "loaded, not running"
                : status->connected ? "running, connected"
                                    : "running");
    if (status->connected)
        add_ready(&status->ready, out);
    if (status->attach_ns)
        text_printf(out, "AgentAttach: %.6f\nAgentPause: %.6f\n", (double)status->attach_ns / 1e9,
                    (double)status->pause_ns / 1e9);
}

void agent_text_passive(struct target *target, struct text *out)
{
    struct attach_status status = {0};

    if (agent_status(target, &status) == 0)
        agent_text(&status, out);
}
