/* The verb `heap` of ctl: censuses that are kept, for heap/diff, to which nothing is done in the
 * process; and the agent's sampling of allocations, for heap/sites. */
#include "agent/base/cleanup.h"
#include "agent/wire/allocations.h"
#include "fs/access/credentials.h"
#include "fs/remote/heap/marks.h"
#include "fs/process/registry.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/heap.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Takes a census and keeps it. */
static int mark(struct file_context *context, const char *name)
{
    _cleanup_(census_deinit) struct census census = {
        .scan = {.unwanted = heap_unwanted, .unwanted_arg = context->interrupt},
    };

    int r = heap_take_census(context, &census);
    if (r == 0)
        r = marks_add(context->target, name, context->principals->opener->who.fsuid, &census);
    if (r == -EDQUOT)
        text_printf(&context->why,
                    "%d marks of a process, or too much of all your processes, are "
                    "kept: drop some by `heap drop NAME`",
                    MARKS_MAX);
    return r;
}

/* ---- sites ---- */

/* A number of bytes, as 4096, 64K, 1M. */
static bool parse_bytes(const struct ctl_word *word, uint64_t *out)
{
    uint64_t number = 0;
    size_t digits = 0;

    while (digits < word->size && digits < 10 && isdigit((unsigned char)word->text[digits]))
        number = number * 10 + (uint64_t)(word->text[digits++] - '0');
    char unit = word->size == digits + 1 ? (char)toupper((unsigned char)word->text[digits]) : 0;
    if (!digits || (word->size > digits && unit != 'K' && unit != 'M'))
        return false;
    *out = unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
    return *out >= ALLOCATION_MEAN_MIN && *out <= ALLOCATION_MEAN_MAX;
}

int heap_sites_order(struct file_context *context, uint64_t mean, struct text *said)
{
    struct proto_allocations order = {.mean = mean};
    struct proto_done done = {0};
    struct session *session;

    int r = mean ? agent_session_order(context, &session)
                 : agent_session_connect(context, &session);
    if (r == -ENOTCONN) { /* nothing is sampled where there is no agent */
        text_clear(&context->why);
        return 0;
    }
    if (r < 0)
        return r;
    order.gil_interval = agent_session_gil_interval(context, 0);
    r = session_order(session, PROTO_ALLOCATIONS, &order, sizeof order,
                      agent_session_patience(context, 0), context->interrupt, &done);
    session_unref(session);
    registry_watch(context->registry, context->process);
    if (r < 0)
        return agent_session_explain(context, r, &done, "allocations are sampled as before");
    text_printf(said, "HeapSites: %s\n", mean ? "on" : "off");
    if (done.words[0])
        text_add_escaped(said, done.words, strnlen(done.words, sizeof done.words));
    if (done.words[0])
        text_putc(said, '\n');
    return 0;
}

static int run_sites(struct ctl_line *line)
{
    const struct ctl_word *word = &line->words[2], *bytes = &line->words[3];
    uint64_t mean = ALLOCATION_MEAN;
    bool on = ctl_word_is(word, "on");

    if (!on && !ctl_word_is(word, "off"))
        return ctl_complain(line, word->text, "write it as: heap sites on [BYTES]|off");
    if (line->nwords == 4 && (!on || !parse_bytes(bytes, &mean)))
        return ctl_complain(line, bytes->text,
                            on ? "the bytes from one sample to the next are 1K to 1024M"
                               : "write it as: heap sites off");
    return heap_sites_order(line->context, on ? mean : 0, line->said);
}

int ctl_heap(struct ctl_line *line)
{
    struct file_context *context = line->context;
    const struct ctl_word *verb = &line->words[1], *word = &line->words[2];
    char name[MARK_NAME_MAX] = "";
    int r;

    bool marks = ctl_word_is(verb, "mark");
    if (ctl_word_is(verb, "sites"))
        return run_sites(line);
    if (line->nwords != 3 || (!marks && !ctl_word_is(verb, "drop")))
        return ctl_complain(line, verb->text,
                            "write it as: heap mark NAME|drop NAME|sites on [BYTES]|sites off");
    if (!mark_is_name(word->text, word->size))
        return ctl_complain(
            line, word->text,
            "a mark's name has letters, digits, - and _, at most 31, and isn't now");
    memcpy(name, word->text, word->size);
    r = marks ? mark(context, name) : marks_drop(context->target, name);
    if (r == -ENOENT)
        return ctl_complain(line, word->text, "there is no mark of this name");
    if (r == 0)
        heap_marks_text(context->target, line->said);
    return r;
}
