/* all/eval, and that of a job: Python that runs in every process that its opener and its writers
 * may control, side by side, with one deadline; equal answers are told once.
 *
 * Lines at the beginning of what is written say where, and count for all that follows in the same
 * open file: `on 0,2-3`, these ranks themselves; `-- strict`: it fails where it failed in any. */
#include "fs/tree/everywhere.h"

#include "agent/base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define HEAD_LINE_MAX 4096 /* bytes */

struct head {
    struct ranges ranks;
    bool has_ranks, strict;
    size_t size; /* of its lines */
};

/* What all are to run. */
struct eval_text {
    char *text;
    struct input input;
};

static void free_code(void *of)
{
    struct eval_text *code = of;

    free(code->text);
    free(code);
}

/* Whether a line is `on` and a digit: no Python begins like that. */
static bool begins_with_ranks(const char *line, size_t size)
{
    size_t i = 2;

    if (size < 3 || memcmp(line, "on", 2) || (line[2] != ' ' && line[2] != '\t'))
        return false;
    while (i < size && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return i < size && isdigit((unsigned char)line[i]);
}

static bool is_strict(const char *line, size_t size)
{
    static const char word[] = "-- strict";

    while (size && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    return size == sizeof word - 1 && memcmp(line, word, size) == 0;
}

static int complain(struct file_context *context)
{
    text_puts(&context->why, "ranks belong behind `on`, and nothing else: on 0,2-3");
    return -EINVAL;
}

/* 1: its last line isn't whole, and what it will be one can't know. */
static int read_head(struct file_context *context, const struct input *input, struct head *out)
{
    while (out->size < input->size) {
        const char *line = input->text + out->size, *rest, *wrong;
        size_t left = input->size - out->size;
        const char *newline = memchr(line, '\n', left);
        size_t size = newline ? (size_t)(newline - line) : left;
        bool ranks = begins_with_ranks(line, size), strict = is_strict(line, size);
        if (!newline && !input->last && (ranks || size < 10) && left < HEAD_LINE_MAX &&
            (ranks || !strncmp(line, "-- strict", size) || !strncmp(line, "on ", size)))
            return 1;
        if (!ranks && !strict)
            return 0;
        out->strict |= strict;
        if (ranks && (everywhere_read_on(line, size, &out->ranks, &rest, &wrong) < 0 ||
                      strspn(rest, " \t") < (size_t)(line + size - rest)))
            return complain(context);
        out->has_ranks |= ranks;
        out->size += size + (newline != NULL);
    }
    return 0;
}

static int run(const void *of, struct file_context *context, struct text *said,
               struct outcome *outcome)
{
    return eval_run(context, &((const struct eval_text *)of)->input, said, outcome);
}

static struct eval_text *code_new(const struct input *input, size_t head)
{
    struct eval_text *code = malloc(sizeof *code);
    char *text = malloc(input->size - head + 1);

    if (!code || !text) {
        free(code);
        free(text);
        return NULL;
    }
    memcpy(text, input->text + head, input->size - head);
    text[input->size - head] = 0;
    *code = (struct eval_text){text, *input};
    code->input.text = text;
    code->input.size = input->size - head;
    code->input.before = input->before > head ? input->before - head : 0;
    return code;
}

static int run_all(struct file_context *context, const struct input *input, const struct head *head,
                   struct text *said, struct outcome *outcome)
{
    _cleanup_everywhere_ struct everywhere *all = NULL;
    struct eval_text *code = code_new(input, head->size);
    size_t consumed = 0;

    int r = code ? everywhere_new(context, run, code, free_code, &all) : -ENOMEM;
    if (r == 0)
        r = everywhere_list(all, context, head->has_ranks ? &head->ranks : NULL);
    if (r < 0)
        return r;
    everywhere_do(all, context->interrupt);
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].outcome.consumed > consumed)
            consumed = all->items[i].outcome.consumed;
    outcome->consumed = head->size + consumed;
    return everywhere_tell(all, head->strict, said, &context->why);
}

int all_eval_run(struct file_context *context, const struct input *input, struct text *said,
                 struct outcome *outcome)
{
    struct head head = {0};

    int r = read_head(context, input, &head);
    if (r < 0)
        return r;
    outcome->stays = head.size;
    if (r > 0 || head.size == input->size)
        return 0;
    return run_all(context, input, &head, said, outcome);
}
