#include "fs/tree/layout.h"

#include <string.h>

#define ABOUT_COLUMN 28
#define TABLES_LINE_MAX 80

/* Renders a line of the tree: indented by its depth, with what it is about. */
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

static bool is_table(const struct entry *entry) { return entry->render == table_render; }

#define TABLES_COLUMN 7

/* The names of the tables below one directory, side by side. Returns the last. */
static const struct entry *render_tables(const struct entry *entry, struct text *out)
{
    const struct entry *end = layout + layout_size;
    size_t begin = out->size;

    text_printf(out, "%*s", TABLES_COLUMN, "");
    for (; entry < end && is_table(entry); entry++) {
        int length = (int)(strlen(entry_name(entry)) - strlen(".csv"));
        if (out->size - begin + 1 + (size_t)length > TABLES_LINE_MAX) {
            text_puts(out, "\n");
            begin = out->size;
            text_printf(out, "%*s", TABLES_COLUMN, "");
        }
        text_printf(out, " %.*s", length, entry_name(entry));
    }
    text_putc(out, '\n');
    return entry - 1;
}

int help_render(struct file_context *context, struct text *out)
{
    text_puts(out, "probefs: every running CPython process as files; looking never touches it\n\n");
    for (size_t i = 1; i < layout_size; i++)
        if (!is_table(&layout[i]) && layout[i].about)
            render_entry(&layout[i], out);
        else if (is_table(&layout[i]) &&
                 !strncmp(layout[i].path, "<pid>", 5)) /* those below all are the same */
            i = (size_t)(render_tables(&layout[i], out) - layout);
    text_puts(
        out,
        "\n"
        "<pid> and <tid> are those of /proc. <depth> counts Python frames, 0 is the\n"
        "innermost; #N in a backtrace native ones too. Each open shows one moment. Only\n"
        "writing acts: to eval, ctl, breakpoints, by the owner. SQL selects from the tables,\n"
        "which tables and columns describe; value(TID, DEPTH, 'a[0]') opens a value.\n"
        "`record TABLE [on|off] [SIZE] [rate=R|LIMIT] [locals]` in ctl: exceptions, gc, loop,\n"
        "torch, collectives, process, spans, events (probing.*); `record` says what is.\n"
        "`profile [MODE...] [97hz] [for TIME] [native] [children] [inside] [tid N]`, off,\n"
        "  clear, mark NAME; MODE: cpu gil nogil off wall faults alloc heap. profile/: status\n"
        "  top live folded lines flamegraph.html speedscope.json gecko.json pprof\n"
        "  source/<file>; parts of it: last/<duration>/ marks/<mark>/ modes/<mode>/ threads/\n"
        "  diff/<a..b>/\n"
        "breakpoints: [ID:] [here] [on 0-2] [stop [all] [for TIME]|log] LOCATION\n"
        "  [{EXPR}] [if EXPR] [after N] [every N] [x N], -ID, disable ID..., enable ID...;\n"
        "  LOCATION: FILE:LINE, FUNC(), return FUNC(), raise [TYPE] [in|leaving PATH|own],\n"
        "  watch EXPR [in TID[/DEPTH]], watch 0xA:8, breakpoint(), nan [MODEL].\n"
        "  here (in ctl: here pause, here step): as long as the file stays open\n"
        "Why something failed: <pid>/errors. -o history=FILE: man 5 probefs. Examples:\n"
        "  grep -r loss 1234/threads/*/locals     what is loss?\n"
        "  echo 'max(grads)' > 1234/eval; cat 1234/eval    runs in it, shows what it gave\n"
        "  echo 'SELECT * FROM tables' > 1234/query; cat 1234/query\n"
        "  echo 'record exceptions on' > 1234/ctl; tail 1234/tables/exceptions.csv\n"
        "  echo 'profile wall' > 1234/ctl; sleep 10; head 1234/profile/top\n"
        "  echo 'stop train.py:88 if loss != loss' > 1234/breakpoints; cat 1234/events\n");
    return 0;
}
