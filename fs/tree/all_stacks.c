/* all/backtrace.python and all/stacks.python.folded, and those of a job: of every process, by rank,
 * then by pid. Of the first, each behind a line "host=node1 pid=1234 rank=0" (no rank: it has
 * none); the second is one text, a line a thread. */
#include "fs/tree/all_reading.h"

#include <limits.h>
#include <unistd.h>

struct all {
    bool heads; /* a line above each */
    char host[HOST_NAME_MAX + 1];
    struct text *out;
};

static void add_head(const struct all *all, const struct process *process)
{
    if (!all->heads)
        return;
    if (all->out->size)
        text_putc(all->out, '\n');
    text_printf(all->out, "host=%s pid=%d", all->host, (int)process->pid);
    if (process->rank >= 0)
        text_printf(all->out, " rank=%lld", (long long)process->rank);
    text_putc(all->out, '\n');
}

static int add(void *arg, struct process *process, struct text *text, const char *why)
{
    const struct all *all = arg;

    add_head(all, process);
    if (text)
        text_add(all->out, text->data, text->size);
    else if (all->heads)
        text_printf(all->out, "[not read: %s]\n", why);
    return 0;
}

static int render(struct file_context *context, stacks_text *text, bool heads, struct text *out)
{
    struct all all = {.heads = heads, .out = out};

    gethostname(all.host, sizeof all.host - 1);
    return all_read(context, NULL, text, add, &all);
}

int all_backtrace_python_render(struct file_context *context, struct text *out)
{
    return render(context, stacks_python_text, true, out);
}

int all_stacks_python_folded_render(struct file_context *context, struct text *out)
{
    return render(context, stacks_python_folded_text, false, out);
}
