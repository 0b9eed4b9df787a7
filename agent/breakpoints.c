#include "agent/breakpoints.h"

#include "agent/agent.h"
#include "agent/breakpoint_set.h"
#include "agent/channel.h"
#include "agent/eval.h"
#include "agent/expression.h"
#include "agent/hit.h"
#include "agent/places.h"
#include "agent/recorder.h"
#include "agent/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What is asked for. */
struct entry {
    struct breakpoint *breakpoint; /* a reference */
    struct breakpoint *is;    /* what it came to: in the new set, or, borrowed, what is removed */
    size_t at;                /* where in the text it begins */
    bool fresh;               /* it was not there before */
    const char *state;        /* of a fresh one that watches */
    char note[PROTO_WORDS_MAX]; /* the same */
};

/* A request while it is carried out. */
struct plan {
    struct breakpoint_set next;
    struct entry *entries;
    unsigned count;
    bool replace;
    bool taken[PROTO_BREAKPOINTS_MAX + 1]; /* ids that lines say; by number, as far as that goes */
    struct breakpoint *fresh[PROTO_BREAKPOINTS_MAX]; /* borrowed: those that are at code */
    struct place_report reports[PROTO_BREAKPOINTS_MAX], here[PROTO_BREAKPOINTS_MAX]; /* of fresh ones: of all
                                                                    interpreters, and of one */
    unsigned nfresh;
    int error;                /* of an interpreter */
    char *words;              /* of DONE */
    size_t at;                /* what is to blame */
};

static void free_plan(struct plan **plan)
{
    if (!*plan)
        return;
    breakpoint_set_clear(&(*plan)->next);
    for (unsigned i = 0; i < (*plan)->count; i++)
        breakpoint_unref((*plan)->entries[i].breakpoint);
    free((*plan)->entries);
    free(*plan);
}

__attribute__((format(printf, 3, 4)))
static int refuse(const struct plan *plan, int error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(plan->words, PROTO_WORDS_MAX, format, args);
    va_end(args);
    return -error;
}

/* ---- reading ---- */

static int read_one(struct plan *plan, const char *text, size_t size, size_t *at)
{
    struct entry *entries = realloc(plan->entries, (plan->count + 1) * sizeof *entries);
    const char *why;
    size_t used;

    if (!entries)
        return -ENOMEM;
    plan->entries = entries;
    struct entry *entry = &entries[plan->count];
    *entry = (struct entry){.at = *at};
    int r = breakpoint_read(text + *at, size - *at, &entry->breakpoint, &used, &why);
    if (r == -EINVAL)
        return refuse(plan, EINVAL, "%s", why);
    if (r < 0)
        return r;
    plan->count++;
    *at += used;
    uint32_t id = entry->breakpoint->id;
    if (entry->breakpoint->kind != BREAKPOINT_REMOVE && id <= PROTO_BREAKPOINTS_MAX)
        plan->taken[id] = id;
    return 0;
}

static int read_all(struct plan *plan, const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        plan->at = at;
        if (plan->count == 2 * PROTO_BREAKPOINTS_MAX)
            return refuse(plan, EFBIG, "more than %d changes at once", 2 * PROTO_BREAKPOINTS_MAX);
        int r = read_one(plan, text, size, &at);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- planning ---- */

static bool is_meant(const struct breakpoint *breakpoint, const struct breakpoint *which)
{
    return which->id ? breakpoint->id == which->id : breakpoint_is_at(breakpoint, which->where);
}

static int remove_one(struct plan *plan, struct entry *entry)
{
    const struct breakpoint_set *set = breakpoint_set();
    const struct breakpoint *which = entry->breakpoint;
    bool found = false;

    for (unsigned i = 0; i < set->count && plan->replace && !found; i++)
        found = is_meant(set->all[i], which); /* which goes anyway */
    for (unsigned i = 0; i < plan->next.count;) {
        struct breakpoint *breakpoint = plan->next.all[i];
        if (!is_meant(breakpoint, which)) {
            i++;
            continue;
        }
        found = true;
        entry->is = breakpoint;
        breakpoint_unref(breakpoint_set_take(&plan->next, i));
    }
    if (found)
        return 0;
    return which->id ? refuse(plan, ENOENT, "there is no breakpoint %u", which->id)
                     : refuse(plan, ENOENT, "there is no breakpoint at %.100s", which->where);
}

/* One with the same words, and the same id if one is said; NULL: none. */
static struct breakpoint *find_same(const struct plan *plan, const struct breakpoint_set *set,
                                    const struct breakpoint *wanted)
{
    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        bool others = breakpoint->id <= PROTO_BREAKPOINTS_MAX && plan->taken[breakpoint->id];
        if (strcmp(breakpoint->text, wanted->text) == 0 && (wanted->id ? breakpoint->id == wanted->id : !others))
            return breakpoint;
    }
    return NULL;
}

static void drop_id(struct breakpoint_set *set, uint32_t id)
{
    unsigned at = breakpoint_set_find(set, id);
    if (at < set->count && set->all[at]->id == id)
        breakpoint_unref(breakpoint_set_take(set, at));
}

static uint32_t free_id(const struct plan *plan)
{
    uint32_t id = 1;

    for (;; id++) {
        unsigned at = breakpoint_set_find(&plan->next, id);
        bool used = at < plan->next.count && plan->next.all[at]->id == id;
        if (!used && !(id <= PROTO_BREAKPOINTS_MAX && plan->taken[id]))
            return id;
    }
}

static int add_one(struct plan *plan, struct entry *entry)
{
    struct breakpoint *wanted = entry->breakpoint;

    entry->is = find_same(plan, &plan->next, wanted);
    if (entry->is)
        return 0;
    entry->is = plan->replace ? find_same(plan, breakpoint_set(), wanted) : NULL;
    entry->fresh = !entry->is;
    if (entry->fresh)
        entry->is = wanted;
    if (!entry->is->id)
        entry->is->id = free_id(plan);
    drop_id(&plan->next, entry->is->id);
    if (plan->next.count == PROTO_BREAKPOINTS_MAX)
        return refuse(plan, EFBIG, "more than %d breakpoints", PROTO_BREAKPOINTS_MAX);
    breakpoint_set_insert(&plan->next, breakpoint_ref(entry->is));
    return 0;
}

static int make_next(struct plan *plan)
{
    const struct breakpoint_set *set = breakpoint_set();

    for (unsigned i = 0; i < set->count && !plan->replace; i++)
        breakpoint_set_insert(&plan->next, breakpoint_ref(set->all[i]));
    for (unsigned i = 0; i < plan->count; i++) {
        struct entry *entry = &plan->entries[i];
        plan->at = entry->at;
        int r = entry->breakpoint->kind == BREAKPOINT_REMOVE ? remove_one(plan, entry) : add_one(plan, entry);
        if (r < 0)
            return r;
    }
    if (!breakpoint_set_fits(&plan->next))
        return refuse(plan, EFBIG, "the set is too long to be shown: `record breakpoints 64M` in ctl makes room");
    return 0;
}

/* ---- checking ---- */

static bool watches(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_WATCH || breakpoint->kind == BREAKPOINT_WATCH_ADDRESS;
}

/* Bytes before a character, from 1; no more than there are. */
static size_t bytes_before(const char *text, long column)
{
    size_t n = 0;

    if (column < 1) /* Python says so of what ends too early */
        return strlen(text);
    for (long at = 1; text[n] && at < column; at++)
        for (n++; (text[n] & 0xc0) == 0x80;)
            n++;
    return n;
}

/* An exception is set: what is wrong in an expression, and where, in the words as they came (agent/proto.h). */
static int say_wrong(struct plan *plan, const struct breakpoint *breakpoint, const char *text)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    _cleanup_unref_ PyObject *message = value ? PyObject_GetAttrString(value, "msg") : NULL;
    _cleanup_unref_ PyObject *offset = value ? PyObject_GetAttrString(value, "offset") : NULL;
    long column = offset && PyLong_Check(offset) ? PyLong_AsLong(offset) : 0;
    char words[PROTO_WORDS_MAX / 2];

    PyErr_Clear();
    if (message && PyUnicode_Check(message))
        eval_copy_words(message, words, sizeof words);
    else
        snprintf(words, sizeof words, "it can't be compiled");
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(traceback);
    plan->at += sizeof(struct proto_breakpoint) + (size_t)(text - breakpoint->text) + bytes_before(text, column);
    return refuse(plan, EINVAL, "%s", words);
}

static int check_expressions(struct plan *plan, const struct breakpoint *breakpoint)
{
    const char *text = breakpoint->captures;

    if (breakpoint->kind == BREAKPOINT_WATCH && !expression_check(breakpoint->where))
        return say_wrong(plan, breakpoint, breakpoint->where);
    if (breakpoint->condition && !expression_check(breakpoint->condition))
        return say_wrong(plan, breakpoint, breakpoint->condition);
    for (uint32_t i = 0; i < breakpoint->ncaptures; i++, text += strlen(text) + 1)
        if (!expression_check(text))
            return say_wrong(plan, breakpoint, text);
    return 0;
}

static bool is_next(const struct plan *plan, const struct breakpoint *breakpoint)
{
    unsigned at = breakpoint_set_find(&plan->next, breakpoint->id);
    return at < plan->next.count && plan->next.all[at] == breakpoint;
}

static int check_all(struct plan *plan)
{
    if (!expression_bind())
        return refuse(plan, EOPNOTSUPP, "this interpreter lacks what it takes to evaluate expressions at breakpoints");
    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        plan->at = entry->at;
        if (!entry->fresh)
            continue;
        int r = check_expressions(plan, entry->is);
        if (r < 0)
            return r;
        if (!is_next(plan, entry->is))
            continue; /* a line behind it took it out */
        entry->is->set_at = recorder_now();
        if (!watches(entry->is))
            plan->fresh[plan->nfresh++] = entry->is;
    }
    return 0;
}

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
    plan->error = is_new ? places_arm(interpreter, plan->next.all, plan->next.count, plan->here, plan->words)
                         : places_arm(interpreter, plan->fresh, plan->nfresh, plan->here, plan->words);
    if (plan->error < 0 && PyErr_Occurred() && !plan->words[0])
        eval_describe_exception(plan->words, PROTO_WORDS_MAX);
    PyErr_Clear();
    for (unsigned i = 0; i < plan->nfresh && plan->error == 0; i++)
        add_report(&plan->reports[i],
                   &plan->here[is_new ? breakpoint_set_find(&plan->next, plan->fresh[i]->id) : i]);
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

/* Those that are to go make room for others; once more, should nothing come of it. */
static void leave_watches(struct interpreter *interpreter, const struct plan *plan, bool back)
{
    const struct breakpoint_set *set = breakpoint_set();
    char words[PROTO_WORDS_MAX];
    const char *state;

    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        unsigned at = breakpoint_set_find(&plan->next, breakpoint->id);
        bool stays = at < plan->next.count && plan->next.all[at] == breakpoint;
        if (stays || !watches(breakpoint) || breakpoint_is_over(breakpoint))
            continue;
        if (!back)
            watch_remove(interpreter, breakpoint);
        else if (watch_add(interpreter, breakpoint, &state, words) == 0)
            breakpoints_publish(breakpoint, state, words);
        else
            breakpoints_publish(breakpoint, "pending", words);
    }
}

static int arm_watches(struct interpreter *interpreter, struct plan *plan)
{
    char words[PROTO_WORDS_MAX];
    int r = 0;

    leave_watches(interpreter, plan, false);
    for (unsigned i = 0; i < plan->count && r == 0; i++)
        if (plan->entries[i].fresh && watches(plan->entries[i].is)) {
            plan->at = plan->entries[i].at;
            r = watch_add(interpreter, plan->entries[i].is, &plan->entries[i].state, words);
            snprintf(r < 0 ? plan->words : plan->entries[i].note, PROTO_WORDS_MAX, "%s", words);
        }
    if (r == 0)
        return 0;
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->entries[i].fresh)
            watch_remove(interpreter, plan->entries[i].is);
    leave_watches(interpreter, plan, true);
    return r;
}

static int arm(struct interpreter *interpreter, struct plan *plan)
{
    if (plan->nfresh) {
        arm_in(interpreter, plan);
        interpreter_each_there(arm_in, plan);
    }
    int r = plan->error < 0 ? plan->error : arm_watches(interpreter, plan);
    if (r == 0)
        return 0;
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->entries[i].fresh)
            plan->entries[i].is->removed = true;
    disarm(interpreter);
    return r;
}

/* ---- telling ---- */

static void describe(const struct breakpoint *breakpoint, const struct place_report *report, char note[PROTO_WORDS_MAX])
{
    size_t size = 0;

    note[0] = '\0';
    if (!report->places && report->known && breakpoint->kind == BREAKPOINT_LINE)
        size = (size_t)snprintf(note, PROTO_WORDS_MAX, "no code is at that line or behind it");
    if (report->line)
        size = (size_t)snprintf(note, PROTO_WORDS_MAX, "line %d is used, the next one with code", report->line);
    if (report->files > 1)
        size += (size_t)snprintf(note + size, PROTO_WORDS_MAX - size, "%sin %u files of that name", size ? "; " : "",
                                 report->files);
    if (report->costs)
        snprintf(note + size, PROTO_WORDS_MAX - size, "%s%s", size ? "; " : "", report->costs);
}

static void publish(struct plan *plan)
{
    char note[PROTO_WORDS_MAX];

    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        if (entry->fresh && entry->state)
            breakpoints_publish(entry->is, entry->state, entry->note);
    }
    for (unsigned i = 0; i < plan->nfresh; i++) {
        struct breakpoint *breakpoint = plan->fresh[i];
        describe(breakpoint, &plan->reports[i], note);
        breakpoints_publish(breakpoint,
                            plan->reports[i].places || breakpoint->kind == BREAKPOINT_RAISE ? "armed" : "pending", note);
    }
}

/* One line for each change. */
static void tell(const struct plan *plan, FILE *output)
{
    for (unsigned i = 0; i < plan->count; i++) {
        const struct entry *entry = &plan->entries[i];
        const struct breakpoint *is = entry->is;
        if (entry->breakpoint->kind == BREAKPOINT_REMOVE && entry->breakpoint->id)
            fprintf(output, "-%u\n", entry->breakpoint->id);
        else if (entry->breakpoint->kind == BREAKPOINT_REMOVE)
            fprintf(output, "-%s\n", entry->breakpoint->where);
        else
            fprintf(output, "%u: %s  # %s%s%s\n", is->id, is->text, is->state ? is->state : "removed",
                    is->note[0] ? ", " : "", is->note);
    }
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

static int carry_out(struct interpreter *interpreter, struct plan *plan, FILE *output)
{
    uint32_t before = changes();
    int r = make_next(plan);
    if (r == 0)
        r = check_all(plan);
    if (r == 0)
        r = arm(interpreter, plan);
    if (r < 0)
        return r;
    breakpoint_set_replace(&plan->next);
    disarm(interpreter);
    publish(plan);
    if (changes() != before)
        channel_tell_watches();
    tell(plan, output);
    return 0;
}

int breakpoints_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    _cleanup_(free_plan) struct plan *plan = calloc(1, sizeof *plan);
    FILE *output = open_memstream(&out->output, &out->size);
    size_t size = request->eval.text_size;
    int r = -ENOMEM;

    if (plan && output) {
        plan->words = out->done.words;
        plan->replace = request->eval.flags & BREAKPOINTS_REPLACE;
        r = read_all(plan, request->text, size);
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

void breakpoints_leave(struct interpreter *interpreter)
{
    places_leave(interpreter);
}
