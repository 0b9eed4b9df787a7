/* <pid>/stacks.folded: one line a thread, `root;...;leaf 1`, as flame graph tools read it. No pids,
 * no addresses: equal stacks of many processes and hosts fold together. */
#include "fs/format/frames.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

static void add_thread(const struct thread *thread, struct text *out)
{
    bool any = false;

    for (size_t i = thread->nframes; i-- > 0;) {
        struct text element = TEXT_INIT;
        if (frame_add_folded(&thread->frames[i], &element)) {
            if (any)
                text_putc(out, ';');
            text_add(out, element.data, element.size);
            any = true;
        }
        text_deinit(&element);
    }
    if (any)
        text_puts(out, " 1\n");
}

int stacks_folded_render(struct file_context *context, struct text *out)
{
    return snapshot_each_thread(context, true, add_thread, out);
}
