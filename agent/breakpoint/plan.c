#include "agent/breakpoint/plan.h"

#include "agent/base/clock.h"
#include "agent/breakpoint/expression.h"
#include "agent/cpython/exception_words.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/interpreter.h"
#include "agent/monitor/hear.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void plan_free(struct plan **plan)
{
    if (!*plan)
        return;
    breakpoint_set_clear(&(*plan)->next);
    for (unsigned i = 0; i < (*plan)->count; i++)
        breakpoint_unref((*plan)->entries[i].breakpoint);
    free((*plan)->entries);
    free(*plan);
}

__attribute__((format(printf, 3, 4))) static int refuse(const struct plan *plan, int error,
                                                        const char *format, ...)
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
    int r = breakpoint_read(text + *at, size - *at, plan->here, &entry->breakpoint, &used, &why);
    if (r == -EINVAL)
        return refuse(plan, EINVAL, "%s", why);
    if (r < 0)
        return r;
    plan->count++;
    *at += used;
    uint32_t id = entry->breakpoint->id;
    if (!breakpoint_is_change(entry->breakpoint->kind) && id <= PROTO_BREAKPOINTS_MAX)
        plan->taken[id] = id;
    return 0;
}

int plan_read(struct plan *plan, const char *text, size_t size)
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

/* A breakpoint of the set with the same words, and the same id if one is said, else of the same
 * open file; NULL: there is none. One whose frame has returned is of another call. */
static struct breakpoint *find_same(const struct plan *plan, const struct breakpoint_set *set,
                                    const struct breakpoint *wanted)
{
    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        bool others = breakpoint->id <= PROTO_BREAKPOINTS_MAX && plan->taken[breakpoint->id];
        bool is_past = !wanted->id && breakpoint->thread && breakpoint->done;
        if (!breakpoint_is_removed(breakpoint) && strcmp(breakpoint->text, wanted->text) == 0 &&
            !is_past &&
            (wanted->id ? breakpoint->id == wanted->id
                        : !others && breakpoint->here == wanted->here))
            return breakpoint;
    }
    return NULL;
}

static int switch_one(struct plan *plan, struct entry *entry)
{
    uint32_t id = entry->breakpoint->id;
    unsigned at = breakpoint_set_find(&plan->next, id);

    if (at == plan->next.count || plan->next.all[at]->id != id)
        return refuse(plan, ENOENT, "there is no breakpoint %u", id);
    entry->is = plan->next.all[at];
    entry->is->planned.disabled = entry->breakpoint->kind == BREAKPOINT_DISABLE;
    return 0;
}

static void drop_id(struct breakpoint_set *set, uint32_t id)
{
    unsigned at = breakpoint_set_find(set, id);
    if (at < set->count && set->all[at]->id == id)
        breakpoint_unref(breakpoint_set_take(set, at));
}

static uint32_t free_id(const struct plan *plan)
{
    uint32_t id = breakpoint_ids_spent() + 1;

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
    bool there = entry->is;
    if (!there && plan->replace)
        entry->is = find_same(plan, breakpoint_set(), wanted);
    entry->adopts = entry->is && (!entry->is->here || !wanted->here);
    if (entry->is)
        entry->is->planned.disabled = wanted->disabled;
    if (there)
        return 0;
    entry->fresh = !entry->is;
    if (entry->fresh)
        entry->is = wanted;
    drop_id(&plan->next, wanted->id);
    if (!entry->is->id || (entry->fresh && breakpoint_id_is_spent(entry->is->id)))
        entry->is->id = free_id(plan);
    drop_id(&plan->next, entry->is->id);
    if (plan->next.count == PROTO_BREAKPOINTS_MAX)
        return refuse(plan, EFBIG, "more than %d breakpoints", PROTO_BREAKPOINTS_MAX);
    breakpoint_set_insert(&plan->next, breakpoint_ref(entry->is));
    return 0;
}

void plan_switch(enum plan_stage stage)
{
    const struct breakpoint_set *set = breakpoint_set();

    for (unsigned i = 0; i < set->count; i++) {
        struct breakpoint *breakpoint = set->all[i];
        bool before = breakpoint->planned.before, then = breakpoint->planned.disabled;
        bool now = stage == PLAN_BEFORE ? before : stage == PLAN_ARMING ? before && then : then;
        __atomic_store_n(&breakpoint->disabled, now, __ATOMIC_RELAXED);
    }
}

bool plan_spares(const struct plan *plan, const struct breakpoint *breakpoint)
{
    return !plan->replace || (breakpoint->here && breakpoint->here != plan->here);
}

int plan_make(struct plan *plan)
{
    const struct breakpoint_set *set = breakpoint_set();

    for (unsigned i = 0; i < set->count; i++) {
        set->all[i]->planned.before = set->all[i]->planned.disabled = set->all[i]->disabled;
        set->all[i]->planned.arms = false;
        if (plan_spares(plan, set->all[i]))
            breakpoint_set_insert(&plan->next, breakpoint_ref(set->all[i]));
    }
    for (unsigned i = 0; i < plan->count; i++) {
        struct entry *entry = &plan->entries[i];
        plan->at = entry->at;
        enum breakpoint_kind kind = entry->breakpoint->kind;
        int r = kind == BREAKPOINT_REMOVE    ? remove_one(plan, entry)
                : breakpoint_is_change(kind) ? switch_one(plan, entry)
                                             : add_one(plan, entry);
        if (r < 0)
            return r;
    }
    if (!breakpoint_set_fits(&plan->next))
        return refuse(
            plan, EFBIG,
            "the set is too long to be shown: `record breakpoints 64M` in ctl makes room");
    return 0;
}

/* ---- checking ---- */

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

/* An exception is set: what is wrong in an expression, and where, in the words as
 * they came (agent/wire/proto.h). */
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
        words_copy(message, words, sizeof words);
    else
        snprintf(words, sizeof words, "it can't be compiled");
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(traceback);
    plan->at += sizeof(struct proto_breakpoint) + (size_t)(text - breakpoint->text) +
                bytes_before(text, column);
    return refuse(plan, EINVAL, "%s", words);
}

static int check_expressions(struct plan *plan, const struct breakpoint *breakpoint)
{
    const char *text = breakpoint->captures;

    bool is_expression = breakpoint->kind == BREAKPOINT_WATCH ||
                         (breakpoint->kind == BREAKPOINT_NAN && breakpoint->where[0]);

    if (is_expression && !expression_check(breakpoint->where))
        return say_wrong(plan, breakpoint, breakpoint->where);
    if (breakpoint->condition && !expression_check(breakpoint->condition))
        return say_wrong(plan, breakpoint, breakpoint->condition);
    for (uint32_t i = 0; i < breakpoint->ncaptures; i++, text += strlen(text) + 1)
        if (!expression_check(text))
            return say_wrong(plan, breakpoint, text);
    return 0;
}

/* Numbers of threads are given again; those of their states aren't. */
static int find_thread(struct plan *plan, struct interpreter *interpreter,
                       struct breakpoint *breakpoint)
{
    struct thread_seen *all;
    uint64_t id = 0;
    size_t count;

    int r = thread_states_all(interpreter->state, &all, &count);
    if (r < 0)
        return refuse(plan, -r, "%s", thread_states_words(r));
    for (size_t i = 0; i < count && !id; i++)
        if (all[i].ident == breakpoint->thread)
            id = all[i].id;
    thread_states_drop(all, count);
    breakpoint->thread = id;
    return id ? 0 : refuse(plan, ESRCH, "the thread has ended, or runs no Python code now");
}

static bool is_next(const struct plan *plan, const struct breakpoint *breakpoint)
{
    unsigned at = breakpoint_set_find(&plan->next, breakpoint->id);
    return at < plan->next.count && plan->next.all[at] == breakpoint;
}

/* Lists what an entry is about, unless it is armed, or isn't to be, or is listed already. */
static void list_to_arm(struct plan *plan, struct entry *entry)
{
    struct breakpoint *is = entry->is;

    entry->arms = (entry->fresh || is->disabled) && !is->planned.disabled && !is->planned.arms &&
                  !is->done;
    is->planned.arms |= entry->arms;
    if (entry->arms && !plan_watches(is))
        plan->arming[plan->narming++] = is;
}

int plan_check(struct plan *plan, struct interpreter *interpreter)
{
    if (!expression_bind())
        return refuse(
            plan, EOPNOTSUPP,
            "this interpreter lacks what it takes to evaluate expressions at breakpoints");
    for (unsigned i = 0; i < plan->count; i++) {
        struct entry *entry = &plan->entries[i];
        plan->at = entry->at;
        int r = entry->fresh ? check_expressions(plan, entry->is) : 0;
        if (r == 0 && entry->fresh && entry->is->thread)
            r = find_thread(plan, interpreter, entry->is);
        if (r < 0)
            return r;
        if (entry->fresh && entry->is->leaving && !hear_tells_of_unwinds())
            return refuse(plan, EOPNOTSUPP,
                          "which exception leaves a function is told from CPython 3.12 on: "
                          "`raise in own` hits where it comes to the program's own code");
        if (entry->breakpoint->kind == BREAKPOINT_REMOVE || !is_next(plan, entry->is))
            continue; /* a line behind it took it out */
        if (entry->fresh)
            entry->is->set_at = realtime_s();
        list_to_arm(plan, entry);
    }
    return 0;
}
