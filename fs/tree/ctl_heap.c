/* The verb `heap` of ctl: censuses that are kept, for heap/diff. Nothing is done to the process. */
#include "agent/base/cleanup.h"
#include "fs/access/credentials.h"
#include "fs/proc/may_hang.h"
#include "fs/remote/heap/marks.h"
#include "fs/tree/ctl.h"
#include "fs/tree/heap.h"

#include <errno.h>
#include <string.h>

struct taking {
    struct may_hang work;
    struct target *target; /* a reference */
    struct census census;
    struct text why;
    int error;
};

static void taking_run(struct may_hang *work)
{
    struct taking *taking = (struct taking *)work;

    taking->census.scan.unwanted = heap_unwanted;
    taking->census.scan.unwanted_arg = &work->unwanted;
    taking->error = census_take(taking->target, &taking->census, &taking->why);
}

static void taking_free(struct may_hang *work)
{
    struct taking *taking = (struct taking *)work;

    census_deinit(&taking->census);
    text_deinit(&taking->why);
    target_unref(taking->target);
    free(taking);
}

/* Takes a census and keeps it. */
static int mark(struct file_context *context, const char *name)
{
    struct taking *taking = calloc(1, sizeof *taking);

    if (!taking)
        return -ENOMEM;
    taking->work = (struct may_hang){context->target->pid, .run = taking_run, .free = taking_free};
    taking->target = target_ref(context->target);
    may_hang_init(&taking->work);
    int r = may_hang_run(&taking->work, context->interrupt);
    if (r < 0) {
        may_hang_explain(r, &context->why);
    } else if (taking->error < 0) {
        text_add(&context->why, taking->why.data, taking->why.size);
        r = heap_error(context, taking->error);
    } else {
        r = marks_add(context->target, name, context->principals->opener->who.fsuid,
                      &taking->census);
    }
    may_hang_unref(&taking->work);
    if (r == -EDQUOT)
        text_printf(&context->why,
                    "%d marks of a process, or too much of all your processes, are "
                    "kept: drop some by `heap drop NAME`",
                    MARKS_MAX);
    return r;
}

int ctl_heap(struct ctl_line *line)
{
    struct file_context *context = line->context;
    const struct ctl_word *verb = &line->words[1], *word = &line->words[2];
    char name[MARK_NAME_MAX] = "";
    int r;

    bool marks = ctl_word_is(verb, "mark");
    if (!marks && !ctl_word_is(verb, "drop"))
        return ctl_complain(line, verb->text, "write it as: heap mark NAME|drop NAME");
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
