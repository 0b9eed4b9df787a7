/* exceptions.top: which exceptions were raised where, and how often; the last ones first. First how
 * they are recorded, as ctl has it; then, of the rows that are kept, a line for each type and
 * place. */
#include "fs/format/recorded.h"
#include "fs/tree/query.h"

/* The message is that of the last one: SQLite takes it from the row of the only max(). */
static const char statement[] =
    "SELECT count, uncaught, handled,"
    " strftime('%Y-%m-%dT%H:%M:%S', (SELECT min(ts) FROM exceptions AS e WHERE e.type = g.type AND"
    " e.file = g.file AND e.func = g.func AND e.lineno IS g.lineno), 'unixepoch', 'localtime')"
    " AS first,"
    " strftime('%Y-%m-%dT%H:%M:%S', last, 'unixepoch', 'localtime') AS last, type,"
    " coalesce(file || ':' || lineno, file, '?') || coalesce(' ' || func, '') AS place,"
    " CASE WHEN length(message) > 200 THEN substr(message, 1, 200) || '...' ELSE message END"
    " AS message"
    " FROM (SELECT count(*) AS count, sum(handled IS 0) AS uncaught,"
    " sum(handled IS 1) AS handled, max(ts) AS last, message, type, file, lineno, func"
    " FROM exceptions GROUP BY type, file, lineno, func ORDER BY last DESC LIMIT 100) AS g";

int exceptions_top_render(struct file_context *context, struct text *out)
{
    struct tables_of of;
    const struct provider provider = tables_provider(context, &of);

    recorded_text(context->recording, RECORDED_EXCEPTIONS, out);
    text_putc(out, '\n');
    return query_select(context, &provider, statement, "table", out);
}
