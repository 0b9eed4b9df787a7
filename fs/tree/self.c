#include "fs/proc/procfs.h"
#include "fs/tree/file.h"

#include <errno.h>
#include <stdlib.h>

/* FUSE names the calling thread; the link leads to its process. */
int self_render(struct file_context *context, struct text *out)
{
    char status[8192];

    if (!context->caller->pid || /* of a pid namespace that can't be seen from here */
        proc_read(context->caller->pid, "status", status, sizeof status) < 0)
        return -ENOENT;
    const char *tgid = proc_status_field(status, "Tgid");
    if (!tgid)
        return -ENOENT;
    text_printf(out, "%d", atoi(tgid));
    return 0;
}
