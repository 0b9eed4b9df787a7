#include "fs/watch/slots.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

static int arm_ptrace(struct watch_slots *slots, unsigned slot, const struct watch_place *place,
                      struct text *why)
{
    int r = slots->tracer ? 0 : by_ptrace_new(slots->pid, &slots->tracer, why);
    if (r == 0)
        r = by_ptrace_set(slots->tracer, slot, place, why);
    slots->slots[slot].traced = r == 0;
    return r;
}

static void end_idle_tracer(struct watch_slots *slots)
{
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        if (slots->slots[i].traced)
            return;
    by_ptrace_free(slots->tracer);
    slots->tracer = NULL;
}

static void say_blocking(const struct watch_slots *slots, struct text *why)
{
    size_t n = watch_blocking(slots->pid);

    if (n)
        text_printf(why, "not in %zu thread%s that block%s SIGTRAP", n, n > 1 ? "s" : "",
                    n > 1 ? "" : "s");
}

int watch_slots_arm(struct watch_slots *slots, unsigned slot, const struct probe_watch *watch,
                    enum watch_route *route, struct text *why)
{
    const struct watch_place place = {watch->address, watch->length,
                                      PROTO_WATCH_DATA(slot, watch->change)};
    _cleanup_(text_deinit) struct text by_ptrace = TEXT_INIT;
    int r = -EINVAL;

    *route = ROUTE_PERF;
    if (!ARCH_WATCHES) {
        text_puts(why, "debug registers are not used on " ARCH_NAME
                       ", where they tell of a write before "
                       "it is made");
        return -EOPNOTSUPP;
    }
    if (!watch_possible(watch->address, watch->length)) {
        text_puts(why, "no debug register can watch that");
        return r;
    }
    if (watch->route != ROUTE_PTRACE)
        r = by_perf_arm(slots->pid, &place, &slots->slots[slot].perf, why);
    if (r == 0)
        say_blocking(slots, why);
    if (r == 0 || watch->route == ROUTE_PERF)
        return r;
    *route = ROUTE_PTRACE;
    r = arm_ptrace(slots, slot, &place, &by_ptrace);
    if (r == 0) {
        text_clear(why);
        say_blocking(slots, why);
        return 0;
    }
    text_printf(why, "%sby ptrace: ", why->size ? "; " : "");
    text_puts(why, by_ptrace.size ? by_ptrace.data : strerror(-r));
    end_idle_tracer(slots);
    return r;
}

bool watch_slots_armed(const struct watch_slots *slots, unsigned slot)
{
    return slots->slots[slot].perf || slots->slots[slot].traced;
}

void watch_slots_disarm(struct watch_slots *slots, unsigned slot)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    by_perf_free(slots->slots[slot].perf);
    slots->slots[slot].perf = NULL;
    if (!slots->slots[slot].traced)
        return;
    slots->slots[slot].traced = false;
    by_ptrace_set(slots->tracer, slot, NULL, &why);
    end_idle_tracer(slots);
}

void watch_slots_disarm_all(struct watch_slots *slots)
{
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        by_perf_free(slots->slots[i].perf);
        slots->slots[i].perf = NULL;
        slots->slots[i].traced = false;
    }
    end_idle_tracer(slots);
}

int watch_slots_attend(struct watch_slots *slots)
{
    uint64_t hits;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        if (slots->slots[i].perf)
            by_perf_follow(slots->slots[i].perf);
    return slots->tracer ? by_ptrace_attend(slots->tracer, &hits) : 0;
}
