#include "agent/breakpoint/change.h"

#include "agent/base/clock.h"
#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/location.h"
#include "agent/breakpoint/places.h"
#include "agent/breakpoint/plan.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/exception_words.h"
#include "agent/eval/eval.h"
#include "agent/monitor/hear.h"
#include "agent/stop/hold.h"
#include "agent/stop/step.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PERIOD_NS 200000000ull
/* How often an interpreter that can't be entered, or isn't ready, is looked at. */
#define TRIES 25

/* ---- arming ---- */

static void add_report(struct place_report *all, const struct place_report *one)
{
    all->places += one->places;
    all->files = one->files > all->files ? one->files : all->files;
    all->line = all->line ? all->line : one->line;
    all->known = all->known || one->known;
    all->costs = all->costs ? all->costs : one->costs;
}

static void arm_in(struct interpreter *interpreter, void *arg)
{
    struct plan *plan = arg;

    if (plan->error < 0)
        return;
    bool is_new = !places_here(interpreter); /* what was there before goes there, too */
    plan->error =
        is_new
            ? places_arm(interpreter, plan->next.all, plan->next.count, plan->in_one, plan->words)
            : places_arm(interpreter, plan->arming, plan->narming, plan->in_one, plan->words);
    if (plan->error < 0 && PyErr_Occurred() && !plan->words[0])
        exception_words(plan->words, PROTO_WORDS_MAX);
    PyErr_Clear();
    for (unsigned i = 0; i < plan->narming && plan->error == 0; i++)
        add_report(
            &plan->reports[i],
            &plan->in_one[is_new ? breakpoint_set_find(&plan->next, plan->arming[i]->id) : i]);
}

static void disarm_in(struct interpreter *interpreter, void *unused)
{
    places_disarm(interpreter);
    hit_forget_removed(interpreter);
    PyErr_Clear();
}

static void disarm(struct interpreter *interpreter)
{
    interpreter_each_other(disarm_in, NULL);
    disarm_in(interpreter, NULL);
}

static const struct armer *armer_of(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_NAN ? &nan_armer : &watch_armer;
}

/* Ends the watchpoints that are to go, to make room for others; back: begins them again, should
 * nothing come of that. */
static void leave_watches(struct interpreter *interpreter, const struct plan *plan, bool back)
{
    const struct breakpoint_set *set = breakpoint_set();
    char words[PROTO_WORDS_MAX];
    const char *state;

    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        unsigned at = breakpoint_set_find(&plan->next, breakpoint->id);
        bool stays = at < plan->next.count && plan->next.all[at] == breakpoint &&
                     !breakpoint->planned.disabled;
        if (stays || !plan_watches(breakpoint) || breakpoint_is_over(breakpoint))
            continue;
        breakpoint->same_frame = back;
        if (!back)
            armer_of(breakpoint)->remove(interpreter, breakpoint);
        else if (armer_of(breakpoint)->add(interpreter, breakpoint, &state, words) == 0)
            breakpoints_publish(breakpoint, state, words);
        else if (!breakpoint_is_over(breakpoint))
            breakpoints_publish(breakpoint, "pending", words);
    }
}

static int arm_watches(struct interpreter *interpreter, struct plan *plan)
{
    char words[PROTO_WORDS_MAX];
    int r = 0;

    leave_watches(interpreter, plan, false);
    for (unsigned i = 0; i < plan->count && r == 0; i++)
        if (plan->entries[i].arms && plan_watches(plan->entries[i].is)) {
            struct breakpoint *is = plan->entries[i].is;
            plan->at = plan->entries[i].at;
            r = armer_of(is)->add(interpreter, is, &plan->entries[i].state, words);
            snprintf(r < 0 ? plan->words : plan->entries[i].note, PROTO_WORDS_MAX, "%s", words);
        }
    if (r == 0)
        return 0;
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->entries[i].arms && plan_watches(plan->entries[i].is))
            armer_of(plan->entries[i].is)->remove(interpreter, plan->entries[i].is);
    leave_watches(interpreter, plan, true);
    return r;
}

static int arm(struct interpreter *interpreter, struct plan *plan)
{
    plan_switch(PLAN_ARMING);
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->entries[i].arms && plan->entries[i].is->action == BREAKPOINT_STOP)
            hear_learn(); /* who is held there may be told to step */
    if (plan->narming) {
        arm_in(interpreter, plan);
        interpreter_each_there(arm_in, plan);
    }
    int r = plan->error < 0 ? plan->error : arm_watches(interpreter, plan);
    if (r == 0)
        return 0;
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->entries[i].fresh)
            plan->entries[i].is->removed = true;
    plan_switch(PLAN_BEFORE);
    disarm(interpreter);
    return r;
}

/* ---- telling ---- */

static const char *what_lacks(const struct breakpoint *breakpoint,
                              const struct place_report *report)
{
    switch (breakpoint->kind) {
    case BREAKPOINT_LINE:
        if (location_is_compiled(breakpoint))
            return "its module is compiled (Nuitka, Cython, C): no line of it is seen";
        return report->known ? "no code is at that line or behind it"
                             : "no code of such a file was loaded when it was set";
    case BREAKPOINT_HOOK: return "the program has no sys.breakpointhook";
    case BREAKPOINT_RAISE: return "there was no such class when it was set";
    default:
        return location_is_compiled(breakpoint)
                   ? "it is compiled (Nuitka, Cython, C): no call of it is seen"
                   : "no such function was loaded when it was set";
    }
}

static void describe(const struct breakpoint *breakpoint, const struct place_report *report,
                     char note[PROTO_WORDS_MAX])
{
    size_t size = 0;

    note[0] = '\0';
    if (!place_report_found(report, breakpoint))
        size = (size_t)snprintf(note, PROTO_WORDS_MAX, "%s", what_lacks(breakpoint, report));
    if (report->line)
        size = (size_t)snprintf(note, PROTO_WORDS_MAX, "line %d is used, the next one with code",
                                report->line);
    if (report->files > 1)
        size += (size_t)snprintf(note + size, PROTO_WORDS_MAX - size, "%sin %u files of that name",
                                 size ? "; " : "", report->files);
    if (report->costs && (report->places || breakpoint->kind == BREAKPOINT_RAISE))
        snprintf(note + size, PROTO_WORDS_MAX - size, "%s%s", size ? "; " : "", report->costs);
}

/* What is switched off now, and what is switched on that had its last hit before. */
static void publish_switched(void)
{
    const struct breakpoint_set *set = breakpoint_set();

    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        if (!breakpoint->disabled && breakpoint->planned.before && breakpoint->done)
            breakpoints_publish(breakpoint, "done", NULL);
        if (!breakpoint->disabled || (breakpoint->planned.before && breakpoint->state))
            continue;
        breakpoint->lineno = 0;
        if (plan_watches(breakpoint))
            breakpoint->places = 0;
        breakpoints_publish(breakpoint, "disabled", NULL);
    }
}

static void publish(struct plan *plan)
{
    char note[PROTO_WORDS_MAX];

    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        if (entry->arms && entry->state)
            breakpoints_publish(entry->is, entry->state, entry->note);
    }
    for (unsigned i = 0; i < plan->narming; i++) {
        struct breakpoint *breakpoint = plan->arming[i];
        describe(breakpoint, &plan->reports[i], note);
        breakpoints_armed(breakpoint, &plan->reports[i], note);
    }
    publish_switched();
}

/* Tells which breakpoints of a set that was replaced stay, since they live as long as other open
 * files. */
static void tell_spared(const struct plan *plan, FILE *output)
{
    const struct breakpoint_set *set = breakpoint_set();
    const char *before = "# ";
    bool any = false;

    for (unsigned i = 0; i < set->count && plan->replace; i++) {
        bool is = plan_spares(plan, set->all[i]);
        for (unsigned k = 0; k < plan->count && is; k++)
            is = plan->entries[k].is != set->all[i];
        if (!is)
            continue;
        fprintf(output, "%s%u", before, set->all[i]->id);
        before = ", ";
        any = true;
    }
    if (any)
        fprintf(output, ": here of another open file, and left to it; -ID removes one\n");
}

/* Writes one line of the reply for each change. */
static void tell(const struct plan *plan, FILE *output)
{
    char words[BREAKPOINT_WORDS_MAX];

    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        const struct breakpoint *is = entry->is;
        if (entry->breakpoint->kind == BREAKPOINT_REMOVE && entry->breakpoint->id)
            fprintf(output, "-%u\n", entry->breakpoint->id);
        else if (entry->breakpoint->kind == BREAKPOINT_REMOVE)
            fprintf(output, "-%s\n", entry->breakpoint->where);
        else {
            breakpoint_words(is, words);
            fprintf(output, "%u: %s  # %s%s%s\n", is->id, words, is->state ? is->state : "removed",
                    is->note[0] ? ", " : "", is->note);
        }
    }
    tell_spared(plan, output);
}

/* ---- */

/* Something else than before, if what is to be armed has changed. */
static uint32_t changes(void)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        sum += probe_agent_record.watches[i].change;
    return sum;
}

/* The next set becomes the present one. What is removed holds no thread any more. */
static void replace_set(struct interpreter *interpreter, struct breakpoint_set *next)
{
    _cleanup_(breakpoint_set_clear) struct breakpoint_set before = {0};
    const struct breakpoint_set *set = breakpoint_set();

    for (unsigned i = 0; i < set->count; i++)
        breakpoint_set_insert(&before, breakpoint_ref(set->all[i]));
    breakpoint_set_replace(next);
    for (unsigned i = 0; i < before.count; i++)
        if (before.all[i]->removed && before.all[i]->action == BREAKPOINT_STOP) {
            hold_removed(before.all[i]->id, "removed");
            step_removed(interpreter, before.all[i]->id);
        }
}

void breakpoints_tidy(struct interpreter *interpreter)
{
    const struct breakpoint_set *set = breakpoint_set();
    _cleanup_free_ struct breakpoint_set *next = calloc(1, sizeof *next);
    uint32_t before = changes();
    unsigned count = set->count;

    for (unsigned i = 0; i < count && next; i++)
        if (!breakpoint_is_removed(set->all[i]))
            breakpoint_set_insert(next, breakpoint_ref(set->all[i]));
        else if (plan_watches(set->all[i]))
            armer_of(set->all[i])->remove(interpreter, set->all[i]);
    if (!next || next->count == count) {
        if (next)
            breakpoint_set_clear(next);
        return;
    }
    replace_set(interpreter, next);
    disarm(interpreter);
    if (changes() != before)
        channel_tell_watches();
}

/* What lines say of those that stay. */
static void adopt(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        if (entry->adopts && entry->is->here != entry->breakpoint->here)
            breakpoints_keep(entry->is, entry->breakpoint->here);
    }
}

static int carry_out(struct interpreter *interpreter, struct plan *plan, FILE *output)
{
    breakpoints_tidy(interpreter);
    uint32_t before = changes();
    int r = plan_make(plan);
    if (r == 0)
        r = plan_check(plan, interpreter);
    if (r == 0)
        r = arm(interpreter, plan);
    if (r < 0)
        return r;
    replace_set(interpreter, &plan->next);
    plan_switch(PLAN_DONE);
    disarm(interpreter);
    adopt(plan);
    publish(plan);
    if (changes() != before)
        channel_tell_watches();
    tell(plan, output);
    return 0;
}

int breakpoints_run(struct interpreter *interpreter, struct request *request,
                    struct evaluation *out)
{
    _cleanup_(plan_free) struct plan *plan = calloc(1, sizeof *plan);
    FILE *output = open_memstream(&out->output, &out->size);
    size_t size = request->eval.text_size;
    int r = -ENOMEM;

    if (plan && output) {
        plan->words = out->done.words;
        plan->replace = request->eval.flags & BREAKPOINTS_REPLACE;
        plan->here = request->eval.thread;
        r = plan_read(plan, request->text, size);
        if (r == 0)
            r = carry_out(interpreter, plan, output);
        out->done.consumed = r < 0 ? plan->at : size;
    }
    if (output && fclose(output) != 0)
        out->size = 0;
    if (r < 0 && !out->done.words[0])
        snprintf(out->done.words, sizeof out->done.words, "%s", strerrordesc_np(-r));
    if (out->size > request->eval.output_max) {
        out->size = request->eval.output_max;
        out->done.flags |= DONE_CUT;
    }
    PyErr_Clear();
    return r;
}

void breakpoints_daemon_gone(void)
{
    if (breakpoints_release(0))
        requests_tidy();
}

void breakpoints_leave(struct interpreter *interpreter) { places_leave(interpreter); }

/* ---- interpreters that come into being ---- */

/* A hook that told of new interpreters could not be taken out again, so it is looked whether the
 * newest one is another. */
static const PyInterpreterState *newest; /* when it was looked last */
static unsigned tries;
static uint64_t next_ns; /* CLOCK_MONOTONIC: not before that */

static void arm_newcomer(struct interpreter *interpreter, void *arg)
{
    static struct place_report reports[PROTO_BREAKPOINTS_MAX];
    const struct breakpoint_set *set = breakpoint_set();
    char words[PROTO_WORDS_MAX] = "";

    if (places_here(interpreter))
        return;
    int r = places_arm(interpreter, set->all, set->count, reports, words);
    PyErr_Clear();
    for (unsigned i = 0; i < set->count && r == 0; i++)
        if (reports[i].places)
            breakpoints_found(set->all[i], &reports[i]);
}

uint64_t breakpoints_look(void)
{
    struct interpreter *interpreter;
    uint64_t now_ns = monotonic_ns();

    if (!breakpoint_set()->count)
        return 0;
    if (now_ns < next_ns)
        return next_ns - now_ns;
    next_ns = now_ns + PERIOD_NS;
    const PyInterpreterState *now = python.interpreter_head();
    if (now == newest || interpreter_enter(0, 0, &interpreter) < 0)
        return PERIOD_NS;
    if (interpreter_each_there(arm_newcomer, NULL) || ++tries == TRIES) {
        newest = now;
        tries = 0;
    }
    interpreter_leave(interpreter);
    return PERIOD_NS;
}
