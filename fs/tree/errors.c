#include "fs/process/registry.h"
#include "fs/tree/file.h"

int errors_render(struct file_context *context, struct text *out)
{
    error_ring_render(context->process->errors, context->principals->opener, out);
    return 0;
}
