/* <pid>/tables/NAME.csv and all/tables/NAME.csv: a table as a file. */
#include "fs/tree/query.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The table of a path that ends in NAME.csv. */
static int name_of(const char *path, char *name, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;

    return snprintf(name, cap, "%.*s", (int)strcspn(base, "."), base) < (int)cap ? 0 : -ENOENT;
}

/* Renders a table. Where this interpreter hasn't what it shows the file has a header, and nothing
 * below: those who read /probe/<all>/tables/<all> at once want to go on. The process's errors say
 * why. */
int table_render(struct file_context *context, struct text *out)
{
    struct tables_of of;
    const struct provider provider = tables_provider(context, &of);
    char name[32], sql[64];

    int r = name_of(context->file, name, sizeof name);
    if (r < 0)
        return r;
    snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
    r = query_select(context, &provider, sql, "csv", out);
    if (r == -EOPNOTSUPP && context->process) {
        context->noted = r;
        snprintf(sql, sizeof sql, "SELECT * FROM %s LIMIT 0", name);
        r = query_select(context, &provider, sql, "csv", out);
    }
    return r;
}
