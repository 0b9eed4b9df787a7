#include "agent/stop/stop_table.h"

#include "agent/wire/record.h"

#include <string.h>

static struct probe_stop stops[PROBE_STOPS_MAX];
static struct probe_pause pauses[PROBE_STOPS_MAX]; /* atomically */

static bool change_pause(struct probe_pause *pause, uint64_t before, uint64_t thread)
{
    return __atomic_compare_exchange_n(&pause->thread, &before, thread, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}

void pause_table_add(uint64_t thread, uint64_t here)
{
    __atomic_store_n(&probe_agent_record.pauses, (uint64_t)(uintptr_t)pauses, __ATOMIC_RELEASE);
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++) {
        if (!change_pause(&pauses[i], PROBE_PAUSE_FREE, PROBE_PAUSE_TAKEN))
            continue;
        __atomic_store_n(&pauses[i].here, here, __ATOMIC_RELAXED);
        __atomic_store_n(&pauses[i].thread, thread, __ATOMIC_RELEASE);
        return;
    }
}

void pause_table_remove(uint64_t thread)
{
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++)
        change_pause(&pauses[i], thread, PROBE_PAUSE_FREE);
}

void pause_table_clear(uint64_t here)
{
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++) {
        uint64_t thread = __atomic_load_n(&pauses[i].thread, __ATOMIC_ACQUIRE);
        if (thread != PROBE_PAUSE_FREE && thread != PROBE_PAUSE_TAKEN &&
            (!here || __atomic_load_n(&pauses[i].here, __ATOMIC_RELAXED) == here))
            change_pause(&pauses[i], thread, PROBE_PAUSE_FREE);
    }
}

static void write_entry(struct probe_stop *entry, const struct probe_stop *now)
{
    uint32_t change = entry->change | 1;

    __atomic_store_n(&entry->change, change, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy((char *)entry + sizeof change, (const char *)now + sizeof change,
           sizeof *now - sizeof change);
    __atomic_store_n(&entry->change, change + 1, __ATOMIC_RELEASE);
}

static void count(int32_t by)
{
    __atomic_store_n(&probe_agent_record.stopped, probe_agent_record.stopped + (uint32_t)by,
                     __ATOMIC_RELEASE);
}

struct probe_stop *stop_table_take(const struct probe_stop *stop)
{
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++) {
        if (stops[i].why != STOP_NONE)
            continue;
        write_entry(&stops[i], stop);
        __atomic_store_n(&probe_agent_record.stops, (uint64_t)(uintptr_t)stops, __ATOMIC_RELEASE);
        count(1);
        return &stops[i];
    }
    return NULL;
}

void stop_table_set_line(struct probe_stop *entry, int32_t line)
{
    struct probe_stop now = *entry;

    now.line = line;
    write_entry(entry, &now);
}

void stop_table_free(struct probe_stop *entry)
{
    const struct probe_stop none = {.why = STOP_NONE};

    if (!entry)
        return;
    write_entry(entry, &none);
    count(-1);
}

void stop_table_forget(void)
{
    memset(pauses, 0, sizeof pauses);
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++)
        if (stops[i].why != STOP_NONE)
            stop_table_free(&stops[i]);
}
