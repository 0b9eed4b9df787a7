/* exited/<pid>/status: what the process was, how it ended, what it recorded. */
#include "agent/base/cleanup.h"
#include "fs/format/recorded.h"
#include "fs/process/facts.h"
#include "fs/process/process.h"
#include "fs/sampler/profile.h"
#include "fs/tree/file.h"

int exited_status_render(struct file_context *context, struct text *out)
{
    struct process *process = context->process;

    {
        _guard_mutex_(&process->lock);
        text_add(out, process->facts->identity.data, process->facts->identity.size);
        ending_text(&process->ending, out);
    }
    if (recording_any(context->recording))
        recorded_text_all(context->recording, out);
    else if (!profile_any(process->profile))
        text_puts(out, "Record: nothing kept, it was more than 256 MiB\n");
    return 0;
}
