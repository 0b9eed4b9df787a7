/* One open file: its content as rendered by open, which every read slices. */
#pragma once

#include "fs/layout.h"

/* Of all open files together: whoever may read could otherwise fill the daemon's memory. */
#define HANDLES_BYTES_MAX (512u << 20)

struct handle {
    struct text text;
};

/* Renders a file. The caller owns *out. -errno of the render function, -ENFILE over the limit
 * above (context->why says so), -ENOMEM. */
int handle_open(const struct entry *entry, struct file_context *context, struct handle **out);
void handle_free(struct handle *handle);

/* The bytes at offset, at most size of them; 0 at the end. *out points into the handle. */
size_t handle_read(const struct handle *handle, uint64_t offset, size_t size, const char **out);
