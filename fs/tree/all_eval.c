/* all/eval, and that of a job: Python that runs in every process that its opener and its writers
 * may control, side by side, with one deadline; equal answers are told once.
 *
 * Lines at the beginning of what is written say where, and count for all that follows in the same
 * open file: `on 0,2-3`, these ranks themselves; `-- strict`: it fails where it failed in any. What
 * counts in each, `-- format: json`, is handed on with the text. */
#include "fs/tree/eval_head.h"
#include "fs/tree/everywhere.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

/* What all are to run. */
struct eval_text {
    char *text;
    struct input input;
    struct eval_head head; /* what of it counts in each */
};

static void free_code(void *of)
{
    struct eval_text *code = of;

    free(code->text);
    free(code);
}

static int run(const void *of, struct file_context *context, struct text *said,
               struct outcome *outcome)
{
    const struct eval_text *code = of;

    return eval_run_behind(context, &code->input, &code->head, said, outcome);
}

static struct eval_text *code_new(const struct input *input, const struct eval_head *head)
{
    struct eval_text *code = malloc(sizeof *code);
    char *text = malloc(input->size - head->size + 1);

    if (!code || !text) {
        free(code);
        free(text);
        return NULL;
    }
    memcpy(text, input->text + head->size, input->size - head->size);
    text[input->size - head->size] = 0;
    *code = (struct eval_text){text, *input, {.as_json = head->as_json}};
    code->input.text = text;
    code->input.size = input->size - head->size;
    code->input.before = input->before > head->size ? input->before - head->size : 0;
    return code;
}

static int run_all(struct file_context *context, const struct input *input,
                   const struct eval_head *head, struct text *said, struct outcome *outcome)
{
    _cleanup_everywhere_ struct everywhere *all = NULL;
    struct eval_text *code = code_new(input, head);
    size_t consumed = 0;

    int r = code ? everywhere_new(context, run, code, free_code, &all) : -ENOMEM;
    if (r == 0)
        r = everywhere_list(all, context, head->has_ranks ? &head->ranges : NULL);
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
    struct eval_head head = {0};

    int r = eval_head_read(context, input, &head);
    if (r < 0)
        return r;
    outcome->stays = head.stays;
    if (r > 0 || head.size == input->size)
        return 0;
    return run_all(context, input, &head, said, outcome);
}
