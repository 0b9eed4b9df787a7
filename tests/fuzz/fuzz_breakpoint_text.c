/* A line of <pid>/breakpoints, and many of them. What is taken is written so
 * that it reads as the same. */
#include "fs/breakpoint/request.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void print(const char *line, size_t size, struct text *out)
{
    struct breakpoint_text b;
    struct complaint why = {0};

    int r = breakpoint_text_read(line, size, &b, &why);
    if (r < 0 && (!why.what || why.at < line || why.at > line + size))
        abort();
    if (r < 1)
        return;
    if (b.remove) {
        text_putc(out, '-');
        if (b.id)
            text_printf(out, "%u", b.id);
        else
            breakpoint_text_location(&b, out);
        return;
    }
    if (b.ids.size) {
        text_puts(out, b.disabled ? "disable" : "enable");
        while (breakpoint_text_next_id(&b.ids, &b.id))
            text_printf(out, " %u", b.id);
        return;
    }
    if (b.id)
        text_printf(out, "%u: ", b.id);
    text_puts(out, b.here ? "here " : "");
    text_puts(out, b.disabled ? "disabled " : "");
    breakpoint_text_print(&b, out);
}

/* Any byte of it may be said to be wrong. */
static void request(const char *lines, size_t size)
{
    struct breakpoint_request all;
    struct text why = TEXT_INIT;

    int r = breakpoint_request_read(lines, size, &all, &why);
    if ((r < 0) != (why.size > 0))
        abort();
    for (size_t i = 0; r == 0 && i <= 16; i++) {
        text_clear(&why);
        breakpoint_request_blame(&all, all.text.size * i / 16, &why);
    }
    breakpoint_request_deinit(&all);
    text_deinit(&why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text once = TEXT_INIT, twice = TEXT_INIT;

    request((const char *)data, size);
    print((const char *)data, size, &once);
    if (once.size) {
        print(once.data, once.size, &twice);
        if (once.size != twice.size || memcmp(once.data, twice.data, once.size) ||
            memchr(once.data, '\n', once.size))
            abort();
    }
    text_deinit(&once);
    text_deinit(&twice);
    return 0;
}
