#include "fs/format/locks.h"

#include "agent/base/cleanup.h"
#include "fs/base/strings.h"

#include <string.h>

struct listing {
    const struct waits *waits;
    struct text *out;
};

static const char *name_of(const struct listing *l, const struct actor *who)
{
    const struct wait_thread *thread = NULL;

    if (who->name)
        return waits_string(l->waits, who->name);
    if (who->kind == ACTOR_THREAD)
        thread = waits_thread(l->waits, who->id);
    return thread ? waits_string(l->waits, thread->name) : NULL;
}

static bool is_shown(const struct listing *l, const struct wait *wait)
{
    return wait->who.kind != ACTOR_THREAD || waits_thread(l->waits, wait->who.id);
}

/* "thread 63", "task 0x7f3a5e80", "process 31". */
static void add_number(const struct actor *who, struct text *out)
{
    switch (who->kind) {
    case ACTOR_THREAD: text_printf(out, "thread %d", (int)who->id); break;
    case ACTOR_TASK: text_printf(out, "task 0x%lx", (unsigned long)who->task); break;
    case ACTOR_PROCESS: text_printf(out, "process %d", (int)who->id); break;
    case ACTOR_GONE: text_puts(out, "a thread that is no more"); break;
    }
}

static void add_actor(const struct listing *l, const struct actor *who)
{
    const char *name = name_of(l, who);

    add_number(who, l->out);
    if (name)
        text_printf(l->out, " (%s)", name);
}

/* " (shop.py:24)": the last part of the path only. */
static void add_place(const struct listing *l, const struct wait_place *place)
{
    const char *file = waits_string(l->waits, place->file), *slash = strrchr(file, '/');

    if (place->line)
        text_printf(l->out, " (%s:%d)", slash ? slash + 1 : file, place->line);
}

/* Adds for how long somebody waits: what is known of the wait itself, else how long the thread has
 * stood still. A holder has had it for that long at least. */
static void add_since(const struct listing *l, const struct actor *who, bool holds, int64_t ns)
{
    const struct wait_thread *thread = who->kind == ACTOR_THREAD ? waits_thread(l->waits, who->id)
                                                                 : NULL;
    struct standing standing = {.kind = STANDS, .ns = ns > 0 ? (uint64_t)ns : 0};

    if (ns < 0 && thread && thread->standing.kind == STANDS) {
        standing = thread->standing;
        standing.at_least |= holds;
    }
    if (!standing_said(&standing))
        return;
    text_puts(l->out, ", ");
    standing_add(&standing, l->out);
}

static void add_object(const struct waits *waits, const struct wait *wait, struct text *out)
{
    text_puts(out, wait->kind);
    if (wait->name)
        text_printf(out, " %s", waits_string(waits, wait->name));
    else if (wait->address && strcmp(wait->kind, "GIL"))
        text_printf(out, " 0x%lx", (unsigned long)wait->address);
}

/* " waits for Lock inventory.lock", " reads a socket 127.0.0.1:80", " sleeps". */
static void add_what(const struct listing *l, const struct wait *wait)
{
    static const char *const plain[] = {"child", "descriptors", "file lock"};
    bool article = wait->does;

    text_printf(l->out, " %s", wait->does ? wait->does : "waits for");
    if (!strcmp(wait->kind, "sleep"))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        article = article && strcmp(wait->kind, plain[i]);
    if (article)
        text_puts(l->out, strchr("aeiou", *wait->kind) ? " an" : " a");
    text_putc(l->out, ' ');
    add_object(l->waits, wait, l->out);
}

static void add_holders(const struct listing *l, const struct wait *wait)
{
    for (uint32_t i = 0; i < wait->nholders; i++) {
        const struct wait_holder *holder = &l->waits->holders[wait->holders + i];
        text_printf(l->out, ", %s", holder->certainty == HELD_LIKELY ? "likely " : "");
        if (!i || !wait->does)
            text_printf(l->out, "%s ", wait->held);
        add_actor(l, &holder->who);
        add_place(l, &holder->taken);
        if (strcmp(wait->held, "run by"))
            add_since(l, &holder->who, true, holder->since_ns);
        if (holder->state)
            text_printf(l->out, ", %s", holder->state);
    }
    if (wait->note)
        text_printf(l->out, ", %s", wait->note);
}

/* ---- deadlocks ---- */

/* Adds a chain of processes, of which each waits for the one that follows. */
static void add_chain(const struct listing *l, const struct wait_cycle *cycle)
{
    const struct waits *waits = l->waits;

    text_puts(l->out, cycle->likely ? "likely deadlock: " : "deadlock: ");
    for (uint32_t i = 0; i < cycle->n; i++) {
        const struct wait *wait = &waits->items[waits->links[cycle->first + i]];
        if (i)
            text_puts(l->out, ", which");
        else
            add_actor(l, &wait->who);
        add_what(l, wait);
        add_place(l, &wait->place);
        for (uint32_t k = 0; k < wait->nholders; k++) {
            text_printf(l->out, "%s ", k ? " and" : "");
            if (!k)
                text_printf(l->out, "%s ", wait->held);
            add_actor(l, &waits->holders[wait->holders + k].who);
        }
    }
    text_putc(l->out, '\n');
}

/* Adds a circle, of which each holds what the one before it waits for. */
static void add_cycle(const struct listing *l, const struct wait_cycle *cycle)
{
    const struct waits *waits = l->waits;

    text_printf(l->out, "%sdeadlock%s:", cycle->likely ? "likely " : "",
                cycle->timed ? " until a timeout" : "");
    for (uint32_t i = 0; i < cycle->n; i++) {
        uint32_t before = waits->links[cycle->first + (i ? i : cycle->n) - 1];
        const struct wait *waiting = &waits->items[waits->links[cycle->first + i]];
        const struct wait *held = &waits->items[before];
        const struct wait_holder *holder = &waits->holders[waiting->holders];
        const char *verb = strcmp(held->held, "run by") ? "holds" : "runs";
        text_puts(l->out, i ? ", which" : " ");
        if (!i)
            add_actor(l, &waiting->who);
        text_printf(l->out, " %s ", verb);
        add_object(waits, held, l->out);
        add_place(l, &waits->holders[held->holders].taken);
        text_puts(l->out, " and waits for ");
        add_object(waits, waiting, l->out);
        add_place(l, &waiting->place);
        text_printf(l->out, " %s ", waiting->held);
        add_actor(l, &holder->who);
    }
    text_putc(l->out, '\n');
}

/* ---- waits ---- */

static void add_wait(const struct listing *l, const struct wait *wait)
{
    const struct waits *waits = l->waits;

    add_actor(l, &wait->who);
    add_what(l, wait);
    if (wait->place.func)
        text_printf(l->out, " in %s", waits_string(waits, wait->place.func));
    add_place(l, &wait->place);
    if (wait->timed)
        text_puts(l->out, " with a timeout");
    add_since(l, &wait->who, false, wait->since_ns);
    add_holders(l, wait);
    text_putc(l->out, '\n');
}

void locks_add(const struct waits *waits, struct text *out)
{
    const struct listing l = {waits, out};

    for (size_t i = 0; i < waits->ncycles; i++)
        (waits->cycles[i].between ? add_chain : add_cycle)(&l, &waits->cycles[i]);
    for (size_t i = 0; i < waits->n; i++)
        if (is_shown(&l, &waits->items[i]))
            add_wait(&l, &waits->items[i]);
    if (!waits->n)
        text_puts(out, "nobody waits for a lock\n");
    if (waits->torn)
        text_puts(out, "[torn: the process changes too fast; some may be missing or wrong]\n");
    if (waits->cut)
        text_puts(out, "[cut: there are more waits, or holders, than are read]\n");
    if (waits->late)
        text_puts(out,
                  "[cut: it took too long to find who is at the other ends: some are missing]\n");
}

/* ---- in short ---- */

/* Threads by their number alone. */
static void add_short_actor(const struct actor *who, struct text *out)
{
    if (who->kind == ACTOR_THREAD)
        text_printf(out, "%d", (int)who->id);
    else
        add_number(who, out);
}

/* "waits for inventory.lock held by 68" */
static void add_short(const struct waits *waits, const struct wait *wait, struct text *out)
{
    text_puts(out, "waits for ");
    if (wait->name && (!strcmp(wait->kind, "Lock") || !strcmp(wait->kind, "RLock")))
        text_puts(out, waits_string(waits, wait->name));
    else
        add_object(waits, wait, out);
    for (uint32_t i = 0; i < wait->nholders; i++) {
        const struct wait_holder *holder = &waits->holders[wait->holders + i];
        text_printf(out, "%s %s%s ", i ? "," : "",
                    holder->certainty == HELD_LIKELY ? "likely " : "", wait->held);
        add_short_actor(&holder->who, out);
    }
}

static struct thread *thread_of(const struct snapshot *snapshot, pid_t tid)
{
    for (size_t i = 0; i < snapshot->nthreads; i++)
        if (snapshot->threads[i].tid == tid)
            return &snapshot->threads[i];
    return NULL;
}

void locks_mark(const struct waits *waits, struct snapshot *snapshot)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;

    for (size_t i = 0; i < waits->n; i++) {
        const struct wait *wait = &waits->items[i];
        struct thread *thread = wait->who.kind == ACTOR_THREAD ? thread_of(snapshot, wait->who.id)
                                                               : NULL;
        if (!thread || thread->waits || (wait->does && !wait->nholders))
            continue;
        text_clear(&text);
        add_short(waits, wait, &text);
        if (!text.error)
            thread->waits = strings_add(snapshot->strings, text.data);
    }
}

static void add_deadlock(const struct waits *waits, const struct wait_cycle *cycle,
                         struct text *out)
{
    text_printf(out, "%sdeadlock of", cycle->likely ? "likely " : "");
    for (uint32_t i = 0; i < cycle->n; i++) {
        text_puts(out, !i ? " " : i + 1 < cycle->n ? ", " : " and ");
        add_short_actor(&waits->items[waits->links[cycle->first + i]].who, out);
    }
}

void locks_add_stuck(const struct waits *waits, struct text *out)
{
    for (size_t i = 0; i < waits->ncycles; i++)
        if (!waits->cycles[i].timed) {
            add_deadlock(waits, &waits->cycles[i], out);
            return;
        }
    for (size_t i = 0; i < waits->n; i++) {
        const struct wait *wait = &waits->items[i];
        if (wait->nholders != 1 || wait->timed ||
            waits->holders[wait->holders].who.kind != ACTOR_GONE)
            continue;
        add_short_actor(&wait->who, out);
        text_putc(out, ' ');
        add_short(waits, wait, out);
        return;
    }
}
