#include "fs/format/path_error.h"

#include <errno.h>
#include <string.h>

static void add_quoted(const char *text, size_t size, struct text *why)
{
    text_putc(why, '"');
    text_add_escaped(why, text, size);
    text_putc(why, '"');
}

void path_error_add(const char *path, const char *at, int error, struct text *why)
{
    size_t found = (size_t)(at - path);

    if (error == -ENOENT && !found)
        text_puts(why, "the frame binds nothing for ");
    else if (error != -EINVAL)
        text_add_escaped(why, path, found);
    if (error == -ENOENT && found)
        text_puts(why, " holds nothing at ");
    else if (error != -ENOENT && error != -EINVAL)
        text_puts(why, found ? " can't be read as far as " : "the frame can't be read as far as ");
    add_quoted(at, strlen(at), why);
    if (error == -EINVAL)
        text_puts(why, " is no path: NAME, then .NAME, [N], ['KEY'] or {N}, the N-th of what it "
                       "holds");
}
