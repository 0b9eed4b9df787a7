#include "fs/handle.h"

#include "fs/cleanup.h"

#include <errno.h>

static atomic_size_t bytes_held;

/* Gives back what growing left over: a content is kept as long as the file is open. */
static void trim(struct text *text)
{
    char *data = text->data ? realloc(text->data, text->size + 1) : NULL;
    if (data) {
        text->data = data;
        text->alloc = text->size + 1;
    }
}

int handle_open(const struct entry *entry, struct file_context *context, struct handle **out)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return -ENOMEM;
    int r = entry->render(context, &handle->text);
    if (r == 0)
        r = text_finish(&handle->text);
    if (r < 0) {
        text_deinit(&handle->text);
        free(handle);
        return r;
    }
    trim(&handle->text);
    if (atomic_fetch_add(&bytes_held, handle->text.alloc) > HANDLES_BYTES_MAX) {
        text_clear(&context->why);
        text_puts(&context->why, "all open files together hold 512 MiB: close some");
        handle_free(handle);
        return -ENFILE;
    }
    *out = handle;
    return 0;
}

void handle_free(struct handle *handle)
{
    if (!handle)
        return;
    atomic_fetch_sub(&bytes_held, handle->text.alloc);
    text_deinit(&handle->text);
    free(handle);
}

size_t handle_read(const struct handle *handle, uint64_t offset, size_t size, const char **out)
{
    if (offset >= handle->text.size)
        return 0;
    *out = handle->text.data + offset;
    return size < handle->text.size - offset ? size : handle->text.size - offset;
}
