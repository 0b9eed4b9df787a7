#include "fs/tree/ctl.h"

#include "agent/base/cleanup.h"
#include "fs/base/caret.h"
#include "fs/proc/procfs.h"
#include "fs/process/jobs.h"
#include "fs/tree/everywhere.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

bool ctl_word_is(const struct ctl_word *word, const char *text)
{
    return word->size == strlen(text) && !memcmp(word->text, text, word->size);
}

bool ctl_word_number(const struct ctl_word *word, unsigned *out)
{
    char digits[12] = "";

    if (word->size < sizeof digits)
        memcpy(digits, word->text, word->size);
    return number_parse(digits, out);
}

int ctl_complain(struct ctl_line *line, const char *at, const char *what)
{
    text_puts(&line->context->why, what);
    text_add_caret(&line->context->why, line->text, line->size, at);
    return -EINVAL;
}

static int unknown(const struct ctl_verb *verbs, size_t n, struct ctl_line *line)
{
    _cleanup_(text_deinit) struct text what = TEXT_INIT;

    text_puts(&what, "unknown verb; there are ");
    for (size_t i = 0; i < n; i++)
        text_printf(&what, "%s%s%s", i ? ", " : "", verbs[i].here ? "[here] " : "", verbs[i].usage);
    return ctl_complain(line, line->words[0].text, what.data ? what.data : "unknown verb");
}

static int run_line(const struct ctl_verb *verbs, size_t n, struct ctl_line *line)
{
    for (size_t i = 0; i < n; i++) {
        const struct ctl_verb *verb = &verbs[i];
        if (!ctl_word_is(&line->words[0], verb->name))
            continue;
        if (line->here && !verb->here)
            return ctl_complain(line, line->text, "`here` belongs to what holds a thread");
        if (line->nwords < verb->least || line->nwords > verb->most) {
            const char *at = line->nwords > verb->most ? line->words[verb->most].text
                                                       : line->text + line->size;
            _cleanup_(text_deinit) struct text what = TEXT_INIT;
            text_printf(&what, "write it as: %s", verb->usage);
            return ctl_complain(line, at, what.data ? what.data : verb->usage);
        }
        return verb->run(line);
    }
    return unknown(verbs, n, line);
}

/* Cuts a line into words; what is beyond the last is one. */
static void split(struct ctl_line *line)
{
    const char *p = line->text, *end = line->text + line->size;

    while (line->nwords < CTL_WORDS_MAX) {
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p == end)
            return;
        struct ctl_word *word = &line->words[line->nwords++];
        word->text = p;
        while (p < end && !isspace((unsigned char)*p))
            p++;
        word->size = (size_t)(p - word->text);
    }
}

/* Takes `here` off the words. */
static void take_here(struct ctl_line *line)
{
    line->here = line->nwords > 1 && ctl_word_is(&line->words[0], "here");
    if (line->here)
        memmove(line->words, line->words + 1, --line->nwords * sizeof *line->words);
}

/* Takes `on RANKS` off the line. 0: it is for other ranks; 1: it is for this one, or for any. */
static int read_ranks(struct ctl_line *line)
{
    const struct file_context *context = line->context;
    const char *verb, *wrong;
    struct ranges ranges;
    int64_t rank;

    int r = everywhere_read_on(line->text, line->size, &ranges, &verb, &wrong);
    if (r < 0)
        return ctl_complain(line, wrong, "ranks belong here: 0,2-3");
    if (r == 0)
        return 1;
    line->size -= (size_t)(verb - line->text);
    line->text = verb;
    r = job_own_rank(context->registry, context->process, &rank);
    return r < 0 ? r : ranges_have(&ranges, rank);
}

int ctl_run_verbs(const struct ctl_verb *verbs, size_t n, struct file_context *context,
                  const struct input *input, struct text *said, struct outcome *outcome)
{
    while (outcome->consumed < input->size) {
        const char *text = input->text + outcome->consumed;
        size_t rest = input->size - outcome->consumed;
        const char *newline = memchr(text, '\n', rest);
        if (!newline && !input->last)
            return 0;
        struct ctl_line line = {
            .context = context,
            .text = text,
            .size = newline ? (size_t)(newline - text) : rest,
            .said = said,
        };
        size_t size = line.size;
        int r = read_ranks(&line);
        if (r > 0) {
            split(&line);
            take_here(&line);
            r = line.nwords ? run_line(verbs, n, &line) : 0;
        }
        if (r < 0)
            return r;
        outcome->consumed += size + (newline != NULL);
    }
    return 0;
}
