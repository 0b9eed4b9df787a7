/* Who is part of the agent, and in which order its parts end (interpreter/part.h); and what may be
 * recorded. */
#include "agent/allocation/allocation.h"
#include "agent/breakpoint/change.h"
#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/set.h"
#include "agent/crash/crash.h"
#include "agent/eval/interrupt.h"
#include "agent/interpreter/part.h"
#include "agent/monitor/trace.h"
#include "agent/probing/probing.h"
#include "agent/record/recorder.h"
#include "agent/record/rings.h"
#include "agent/sample/sample.h"
#include "agent/stop/hold.h"
#include "agent/stop/step.h"
#include "agent/stop/stop_row.h"
#include "agent/watch/nan.h"
#include "agent/watch/storage.h"
#include "agent/watch/watch.h"

static const struct part sample = {
    .disarm = sample_leave, /* before `watch`, which takes the handler out */
    .let_go = sample_let_go,
    .daemon_gone = sample_daemon_gone,
    .forget = sample_forget,
};
static const struct part watch = {
    .lend = storage_add_functions,
    .disarm = watch_leave,
    .daemon_gone = watch_daemon_gone,
    .forget = watch_forget,
};
static const struct part not_finite = {.disarm = nan_disarm,
                                       .give_up = nan_leave,
                                       .forget = nan_forget};
static const struct part monitor = {
    .remains = trace_remains,
    .settle = trace_wait,
    .forget = trace_forget,
};
static const struct part step = {.give_up = step_leave};
static const struct part set = {
    .disarm = breakpoints_leave,
    .look = breakpoints_look,
    .end = breakpoints_end,
    .daemon_gone = breakpoints_daemon_gone,
    .forget = breakpoints_forget,
};
static const struct part hit = {.give_up = hit_leave, .wait = hit_wait, .forget = hit_forget};
static const struct part row = {.give_up = stop_row_leave};
static const struct part recorder = {
    .give_up = recorder_leave,
    .look = recorder_look,
    .end = rings_stop,
    .forget = recorder_forget,
};
static const struct part crash = {
    .give_up = crash_leave,
    .end = crash_end,
    .daemon_gone = crash_daemon_gone,
    .remains = crash_remains,
    .forget = crash_forget,
};
static const struct part hold = {
    .lend = hold_lend,
    .let_go = hold_leave,
    .daemon_gone = hold_daemon_gone,
    .forget = hold_forget,
};
static const struct part interrupt = {.interrupt = interrupt_all, .forget = interrupt_forget};
static const struct part allocation = {
    .give_up = allocation_leave,
    .remains = allocation_remains,
    .forget = allocation_forget,
};
static const struct part probing = {
    .install = probing_install,
    .uninstall = probing_drop,
    .remains = probing_remains,
};

const struct part *const parts[] = {
    &sample,   &watch, &not_finite, &monitor,   &step,       &set,     &hit, &row,
    &recorder, &crash, &hold,       &interrupt, &allocation, &probing, NULL,
};

/* The tables whose rows are written by what makes them, once it is asked for (breakpoint/hit.h,
 * breakpoint/change.h, crash/crash.h). */
static const struct recorder by_itself = {.by_itself = true};

/* clang-format off */
const struct recorder *const recorders[RECORDED_TABLES] = {
    [RECORDED_BREAKPOINTS] = &by_itself,
    [RECORDED_COLLECTIVES] = &collectives_recorder,
    [RECORDED_CRASH] = &by_itself,
    [RECORDED_EVENTS] = &events_recorder,
    [RECORDED_EXCEPTIONS] = &exceptions_recorder,
    [RECORDED_GC] = &gc_recorder,
    [RECORDED_HITS] = &by_itself,
    [RECORDED_LOOP] = &loop_recorder,
    [RECORDED_PROCESS_SAMPLES] = &process_recorder,
    [RECORDED_SPANS] = &spans_recorder,
    [RECORDED_TORCH_PROFILE] = &torch_profile_recorder,
    [RECORDED_TORCH_TRACE] = &torch_trace_recorder,
};
/* clang-format on */
