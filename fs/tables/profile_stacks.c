/* The table profile_stacks: the frames of the samples in the table profile. */
#include "fs/tables/scene.h"

#include "fs/process/process.h"
#include "fs/sampler/profile.h"
#include "schema/schema.h"

static int add(void *arg, uint32_t node, size_t depth, struct profile_frame frame)
{
    struct rows *rows = arg;

    rows_add(rows);
    rows_integer(rows, PROFILE_STACKS_STACK, node);
    rows_integer(rows, PROFILE_STACKS_DEPTH, (int64_t)depth);
    rows_text(rows, PROFILE_STACKS_FUNC, frame.func);
    if (*frame.file)
        rows_text(rows, PROFILE_STACKS_FILE, frame.file);
    if (frame.line)
        rows_integer(rows, PROFILE_STACKS_LINENO, frame.line);
    if (frame.kind != PROFILE_WORD)
        rows_integer(rows, PROFILE_STACKS_NATIVE, frame.kind == PROFILE_NATIVE);
    return rows->error;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    struct store *store = scene->process ? profile_store(scene->process->profile) : NULL;

    int error = store ? store_stacks(store, add, rows) : 0;
    store_unref(store);
    return error;
}

const struct row_source profile_stacks_rows = {.fill = fill, .lasting = true};
