#include "fs/remote/frames/lock_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1u << 16) /* of a function that is looked at */
#define SWEEPS_MAX 64        /* over a function, until nothing changes: one more than loops nest */
#define NAMES_MAX 4096u
#define FRAME_STEPS 256 /* what a frame costs beside its instructions ... */
#define NAME_STEPS 16   /* ... and each name of its code */
#define NO_NAME UINT32_MAX

/* ---- the calls ---- */

struct names {
    struct view *view;
    const struct offsets *offsets;
    uint32_t acquire, release; /* indices in co_names, or NO_NAME */
    uint32_t n;
};

static int match_name(void *arg, uint64_t name)
{
    struct names *names = arg;

    if (str_equals(names->view, names->offsets, name, "acquire"))
        names->acquire = names->n;
    else if (str_equals(names->view, names->offsets, name, "release"))
        names->release = names->n;
    return ++names->n == NAMES_MAX;
}

/* Whether the code speaks of them. */
static bool find_names(struct names *names, const struct raw_frame *frame)
{
    uint64_t tuple;

    if (frame->info && frame->info->no_lock_calls)
        return false;
    if (!object_field(names->view, frame->code, names->offsets->code_names, &tuple) ||
        tuple_iterate(names->view, names->offsets, tuple, match_name, names, NULL) < 0)
        return false;
    bool none = names->acquire == NO_NAME && names->release == NO_NAME && names->n < NAMES_MAX;
    if (frame->info)
        frame->info->no_lock_calls = none;
    return !none;
}

#define IS_TARGET 0x80u /* a mark: a jump leads here */

static bool take_steps(const struct lock_calls *calls, uint32_t n)
{
    uint32_t *steps = &calls->work->steps;
    bool enough = *steps >= n;

    *steps = enough ? *steps - n : 0;
    return enough;
}

/* False: the bytecode makes no sense. */
static bool mark_targets(const struct lock_calls *calls)
{
    struct instruction i = {0};

    while (i.end < calls->code.size) {
        if (!bytecode_next(&calls->code, i.end, &i))
            return false;
        if (i.target != NO_TARGET)
            calls->marks[i.target / 2] |= IS_TARGET;
    }
    return true;
}

static int find_calls(struct lock_calls *calls, const struct names *names, uint32_t lasti)
{
    struct expression on_top = {0};
    struct lock_call *open = NULL; /* whose method is on top */
    struct instruction i = {0};

    while (bytecode_next(&calls->code, i.end, &i)) {
        if (lasti >= i.at && lasti < i.end)
            calls->stands_at = i.at;
        if (calls->marks[i.at / 2] & IS_TARGET)
            on_top.variable = VARIABLE_NONE;
        if (i.kind == INSTRUCTION_PREPARE_CALL && open)
            continue;
        /* release() is told from where the method is read: nothing runs until it is called */
        if (i.kind == INSTRUCTION_CALL && open && open->acquires && !i.arg) {
            open->at = i.at;
            open->plain = true;
        }
        open = NULL;
        if (i.kind == INSTRUCTION_LOAD_ATTR &&
            (i.arg == names->acquire || i.arg == names->release)) {
            if (calls->n == LOCK_CALLS_MAX)
                return -E2BIG;
            open = &calls->items[calls->n++];
            *open = (struct lock_call){on_top, 0, i.at, i.arg == names->acquire, false, false};
            on_top.variable = VARIABLE_NONE;
        } else {
            expression_follow(&on_top, &i);
        }
    }
    return calls->stands_at == NO_TARGET ? -EFAULT : 0;
}

/* The first instruction that may run after a call: loops jump back behind it. */
static void find_first_after(const struct lock_calls *calls, uint32_t *first)
{
    struct instruction i = {0};

    for (size_t k = 0; k < calls->n; k++)
        first[k] = calls->items[k].at;
    while (bytecode_next(&calls->code, i.end, &i))
        for (size_t k = 0; k < calls->n && i.target < i.at; k++)
            if (i.at > calls->items[k].at && i.target < first[k])
                first[k] = i.target;
}

/* False: it would be too much. */
static bool find_rebound(struct lock_calls *calls)
{
    uint32_t first[LOCK_CALLS_MAX];
    struct instruction i = {0};

    if (!take_steps(calls, calls->code.size))
        return false;
    find_first_after(calls, first);
    while (bytecode_next(&calls->code, i.end, &i))
        for (size_t k = 0; k < calls->n; k++)
            if (!calls->items[k].acquires && i.at >= first[k] &&
                expression_is_changed(&calls->items[k].of, &i))
                calls->items[k].rebound = true;
    return true;
}

static int read_calls(struct view *view, const struct offsets *o, const struct raw_frame *frame,
                      struct lock_calls *calls)
{
    struct names names = {view, o, NO_NAME, NO_NAME, 0};

    if (frame->lasti < 0)
        return 0;
    calls->unread = !calls->work->steps && !(frame->info && frame->info->no_lock_calls);
    if (!calls->work->steps || !find_names(&names, frame))
        return 0;
    calls->unread = names.release != NO_NAME || names.n == NAMES_MAX;
    if (names.n == NAMES_MAX || !take_steps(calls, FRAME_STEPS + NAME_STEPS * names.n))
        return -E2BIG;
    int r = bytecode_read(view, o, frame->code, &calls->code);
    if (r < 0)
        return r;
    if (calls->code.size > BYTES_MAX || !take_steps(calls, calls->code.size / 2))
        return -E2BIG;
    if (o->code_exceptiontable >= 0 &&
        !exception_table_read(view, o, frame->code, &calls->handlers))
        return -EFAULT;
    calls->marks = calloc(calls->code.size / 2 + 1, 1);
    if (!calls->marks)
        return -ENOMEM;
    if (!mark_targets(calls))
        return -EFAULT;
    r = find_calls(calls, &names, (uint32_t)frame->lasti);
    if (r == 0 && names.release != NO_NAME && !find_rebound(calls))
        r = -E2BIG;
    calls->unread &= r < 0;
    return r;
}

int lock_calls_read(struct view *view, const struct offsets *offsets, const struct raw_frame *frame,
                    lock_find *find, void *arg, struct lock_calls_work *work,
                    struct lock_calls *out)
{
    out->unread = false;
    out->n = 0; /* not set to 0 as a whole: it is large, and most frames have none */
    out->handlers = (struct exception_table){0};
    out->stands_at = NO_TARGET;
    out->marks = NULL;
    out->addr = frame->code;
    out->work = work;
    int r = read_calls(view, offsets, frame, out);
    if (r < 0)
        out->n = 0;
    for (size_t i = 0, same; i < out->n && work->steps; i++) {
        struct lock_call *call = &out->items[i];
        uint64_t asked = view_asked(view);
        for (same = 0; !expression_equals(&out->items[same].of, &call->of); same++)
            ;
        uint64_t object = same == i ? expression_object(view, offsets, frame, &call->of) : 0;
        call->lock = same < i ? out->items[same].lock : object ? find(arg, object) : 0;
        asked = view_asked(view) - asked;
        (void)take_steps(out, asked < UINT32_MAX ? (uint32_t)asked : UINT32_MAX);
    }
    if (out->n && !work->steps) { /* some were not looked for */
        out->n = 0;
        out->unread = true;
        r = -E2BIG;
    }
    return r;
}

void lock_calls_deinit(struct lock_calls *calls)
{
    free(calls->marks);
    calls->marks = NULL;
}

/* ---- the ways ---- */

#define STATES 7u    /* in a mark: what may have been done before the instruction ... */
#define SEEN_SHIFT 3 /* ... and, shifted by this, before or after it */
#define FROM_BEGINNING UINT32_MAX

struct ways {
    const struct lock_calls *calls;
    uint64_t lock;
    uint32_t since;               /* or FROM_BEGINNING */
    const struct lock_call *only; /* that counts as one that acquires; NULL: all do */
    bool changed;
};

static void reach(struct ways *w, uint32_t at, unsigned states)
{
    uint8_t *marks = w->calls->marks;

    if (at < w->calls->code.size && (states & ~marks[at / 2])) {
        marks[at / 2] |= (uint8_t)states;
        w->changed = true;
    }
}

static unsigned after(const struct ways *w, const struct instruction *i, unsigned states)
{
    bool from_beginning = w->since == FROM_BEGINNING;

    for (size_t k = 0; k < w->calls->n && states; k++) {
        const struct lock_call *call = &w->calls->items[k];
        bool is = call->lock == w->lock, reached = i->at == call->at;
        if (reached && call->acquires && is)
            states = w->only && call != w->only ? LOCK_RELEASED
                     : call->plain              ? LOCK_ACQUIRED
                                                : states | LOCK_ACQUIRED;
        else if (reached && !call->acquires &&
                 (is || (from_beginning && (!call->lock || call->rebound))))
            states = LOCK_RELEASED;
        else if (from_beginning && call->acquires && is && expression_is_changed(&call->of, i))
            states = LOCK_RELEASED; /* which lock it was isn't known any more */
    }
    return states;
}

/* An exception may come from any instruction, before it has done what it does and after that.
 * False: it would be too much. */
static bool reach_handler(struct ways *w, uint32_t start, uint32_t end, uint32_t handler)
{
    unsigned states = 0;

    if (end > w->calls->code.size)
        end = w->calls->code.size;
    if (start < end && !take_steps(w->calls, (end - start) / 2))
        return false;
    for (uint32_t at = start; at < end; at += 2)
        states |= (unsigned)(w->calls->marks[at / 2] >> SEEN_SHIFT) & STATES;
    reach(w, handler, states);
    return true;
}

/* Goes over the bytecode once. False: it would be too much. */
static bool sweep(struct ways *w)
{
    const struct lock_calls *calls = w->calls;
    struct exception_table handlers = calls->handlers;
    struct handled handled;
    struct instruction i = {0};

    if (!take_steps(calls, calls->code.size / 2))
        return false;
    while (bytecode_next(&calls->code, i.end, &i)) {
        bool begins = w->since >= i.at && w->since < i.end;
        unsigned before = calls->marks[i.at / 2] & STATES;
        unsigned states = begins ? LOCK_UNTOUCHED : after(w, &i, before);
        if (!states)
            continue;
        calls->marks[i.at / 2] |= (uint8_t)((before | states) << SEEN_SHIFT);
        if (instruction_falls_through(&i))
            reach(w, i.end, states);
        if (i.kind == INSTRUCTION_SETUP_WITH || i.kind == INSTRUCTION_SETUP_BLOCK) {
            if (!reach_handler(w, i.end, i.target, i.target))
                return false;
        } else if (i.target != NO_TARGET) {
            reach(w, i.target, states);
        }
    }
    while (exception_table_next(&handlers, &handled))
        if (!take_steps(calls, 1) || !reach_handler(w, handled.start, handled.end, handled.handler))
            return false;
    return true;
}

static unsigned walk_ways(const struct lock_calls *calls, uint64_t lock, uint32_t since,
                          const struct lock_call *only)
{
    struct ways w = {calls, lock, since, only, false};

    for (uint32_t i = 0; i < calls->code.size / 2; i++)
        calls->marks[i] &= IS_TARGET;
    if (since == FROM_BEGINNING)
        reach(&w, 0, LOCK_UNTOUCHED);
    for (int i = 0; i < SWEEPS_MAX; i++) {
        w.changed = false;
        if (!sweep(&w))
            return 0;
        if (!w.changed)
            return calls->marks[calls->stands_at / 2] & STATES;
    }
    return 0;
}

static void find_answer(const struct lock_calls *calls, uint64_t lock,
                        struct lock_calls_answer *answer)
{
    uint32_t since = answer->since;

    answer->done = walk_ways(calls, lock, since, NULL);
    answer->at = -1;
    for (size_t i = 0; i < calls->n && answer->done == LOCK_ACQUIRED; i++) {
        const struct lock_call *call = &calls->items[i];
        if (call->lock == lock && call->plain &&
            walk_ways(calls, lock, since, call) == LOCK_ACQUIRED)
            answer->at = (int32_t)call->at;
    }
}

static struct lock_calls_answer ask(const struct lock_calls *calls, uint64_t lock, uint32_t since)
{
    struct lock_calls_answer answer = {.code = calls->addr,
                                       .stands_at = calls->stands_at,
                                       .since = since,
                                       .done = LOCK_UNTOUCHED,
                                       .at = -1};

    for (size_t i = 0; i < calls->n; i++) {
        answer.of |= (uint64_t)(calls->items[i].lock == lock) << i;
        answer.unknown |= (uint64_t)!calls->items[i].lock << i;
    }
    if (!answer.of)
        return answer;
    struct lock_calls_answer *known =
        &calls->work->known[(answer.code >> 4 ^ answer.of ^ answer.stands_at) % LOCK_CALLS_KNOWN];
    if (known->code != answer.code || known->of != answer.of || known->unknown != answer.unknown ||
        known->stands_at != answer.stands_at || known->since != answer.since) {
        find_answer(calls, lock, &answer);
        *known = answer;
    }
    return *known;
}

unsigned lock_calls_of(const struct lock_calls *calls, uint64_t lock, int32_t *at)
{
    struct lock_calls_answer answer = ask(calls, lock, FROM_BEGINNING);

    *at = answer.at;
    return answer.done;
}

unsigned lock_calls_since(const struct lock_calls *calls, uint64_t lock, uint32_t since)
{
    return ask(calls, lock, since).done;
}
