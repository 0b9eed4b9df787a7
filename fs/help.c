#include "fs/layout.h"

#include <string.h>

#define ABOUT_COLUMN 28

/* One line of the tree: indented by its depth, with what it is about. */
static void render_entry(const struct entry *entry, struct text *out)
{
    int indent = 2;
    for (const char *p = entry->path; *p; p++)
        indent += *p == '/' ? 2 : 0;
    const char *mark = S_ISDIR(entry->mode) ? "/" : S_ISLNK(entry->mode) ? " ->" : "";
    int width = indent + (int)strlen(entry_name(entry)) + (int)strlen(mark);

    text_printf(out, "%*s%s%s", indent, "", entry_name(entry), mark);
    if (*entry->about)
        text_printf(out, "%*s%s", width < ABOUT_COLUMN ? ABOUT_COLUMN - width : 2, "",
                    entry->about);
    text_putc(out, '\n');
}

int help_render(struct file_context *context, struct text *out)
{
    text_puts(out, "probefs: every running CPython process as files; looking never touches it\n\n");
    for (size_t i = 1; i < layout_size; i++)
        render_entry(&layout[i], out);
    text_puts(out,
              "\n"
              "<pid> and <tid> are those of /proc. <depth> counts Python frames, 0 is the\n"
              "innermost; #N in a backtrace counts native ones too. Each open shows one moment;\n"
              "open again to see the next. Only writing acts: to eval and ctl, by the process's\n"
              "owner. Why an open or a write failed: <pid>/errors. Examples:\n"
              "  cat 1234/backtrace                     where is it now?\n"
              "  grep -r loss 1234/threads/*/locals     what is loss?\n"
              "  echo 'max(grads)' > 1234/eval; cat 1234/eval    runs in it, shows what it gave\n"
              "  cat by-rank/0/status                   the first of a distributed job\n"
              "  cat */stacks.folded | sort | uniq -c   which stacks are common?\n");
    return 0;
}
