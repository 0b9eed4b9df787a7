#include "fs/tree/cores.h"

#include "agent/base/cleanup.h"
#include "fs/process/registry.h"
#include "fs/remote/memory/core.h"

#include <errno.h>
#include <string.h>

static int cores_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = registry_add_cores(context->registry, &list);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        const char *name = list.items[i]->target->core->name;
        r = numbers_add_word(out, name, steal_pointer(list.items[i]));
    }
    return r;
}

static int cores_find(struct file_context *context, unsigned value)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = registry_add_cores(context->registry, &list);
    for (size_t i = 0; r == 0 && i < list.n && !context->process; i++)
        if (!strcmp(list.items[i]->target->core->name, context->word))
            context->process = steal_pointer(list.items[i]);
    return r < 0 ? r : context->process ? 0 : -ENOENT;
}

const struct naming cores = {WORD_CORE, cores_list, cores_find};

bool cores_are_there(struct file_context *context)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    return registry_add_cores(context->registry, &list) == 0 && list.n;
}
