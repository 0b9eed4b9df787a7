#include "fs/breakpoint/reader.h"

static void add_file(struct text *out, struct words file)
{
    bool quoted = *file.text == '"' || *file.text == '\'';

    for (size_t i = 0; i < file.size; i++)
        quoted |= is_blank(file.text[i]) || file.text[i] == '{' || file.text[i] == '#';
    const char *quote = !quoted ? "" : memchr(file.text, '"', file.size) ? "'" : "\"";
    text_puts(out, quote);
    text_add(out, file.text, file.size);
    text_puts(out, quote);
}

void breakpoint_text_location(const struct breakpoint_text *breakpoint, struct text *out)
{
    static const char *const routes[] = {
        [ROUTE_ANY] = "", [ROUTE_PERF] = " hw=perf", [ROUTE_PTRACE] = " hw=ptrace"};

    switch (breakpoint->kind) {
    case BREAKPOINT_REMOVE:
    case BREAKPOINT_DISABLE:
    case BREAKPOINT_ENABLE: return;
    case BREAKPOINT_LINE:
        add_file(out, breakpoint->where);
        text_printf(out, ":%u", breakpoint->line);
        return;
    case BREAKPOINT_FUNCTION:
    case BREAKPOINT_RETURN:
        text_puts(out, breakpoint->kind == BREAKPOINT_RETURN ? "return " : "");
        words_add(out, breakpoint->where);
        text_puts(out, "()");
        return;
    case BREAKPOINT_RAISE:
        text_puts(out, breakpoint->where.size ? "raise " : "raise");
        words_add(out, breakpoint->where);
        text_puts(out, !breakpoint->within.size ? "" : breakpoint->leaving ? " leaving " : " in ");
        words_add(out, breakpoint->within);
        return;
    case BREAKPOINT_HOOK: text_puts(out, "breakpoint()"); return;
    case BREAKPOINT_NAN:
        text_puts(out, breakpoint->where.size ? "nan " : "nan");
        words_add(out, breakpoint->where);
        return;
    case BREAKPOINT_WATCH:
        text_puts(out, "watch ");
        words_add(out, breakpoint->where);
        if (breakpoint->tid)
            text_printf(out, " in %u", breakpoint->tid);
        if (breakpoint->depth)
            text_printf(out, "/%u", breakpoint->depth);
        break;
    case BREAKPOINT_WATCH_ADDRESS:
        text_printf(out, "watch 0x%lx:%u", (unsigned long)breakpoint->address, breakpoint->length);
        break;
    }
    text_puts(out, routes[breakpoint->route]);
}

size_t breakpoint_text_print(const struct breakpoint_text *breakpoint, struct text *out)
{
    size_t begin = out->size;

    text_puts(out, breakpoint->action == BREAKPOINT_STOP ? "stop " : "log ");
    text_puts(out, breakpoint->all ? "all " : "");
    if (breakpoint->hold.size) {
        text_puts(out, "for ");
        words_add(out, breakpoint->hold);
        text_putc(out, ' ');
    }
    size_t location = out->size - begin;
    breakpoint_text_location(breakpoint, out);
    for (uint32_t i = 0; i < breakpoint->ncaptures; i++) {
        text_puts(out, i ? ", " : " {");
        words_add(out, breakpoint->captures[i]);
    }
    text_puts(out, breakpoint->ncaptures ? "}" : "");
    if (breakpoint->condition.size) {
        text_puts(out, " if ");
        words_add(out, breakpoint->condition);
    }
    if (breakpoint->after)
        text_printf(out, " after %lu", (unsigned long)breakpoint->after);
    if (breakpoint->every)
        text_printf(out, " every %lu", (unsigned long)breakpoint->every);
    if (breakpoint->count)
        text_printf(out, " x %lu", (unsigned long)breakpoint->count);
    return location;
}
