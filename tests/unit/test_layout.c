#include "agent/base/cleanup.h"
#include "fs/tree/layout.h"
#include "tests/unit/check.h"

static void finds(const char *directory, const char *name, const char *want, int number)
{
    const struct entry *at = LAYOUT_ROOT;
    unsigned value = 0;

    for (size_t i = 0; i < layout_size; i++)
        if (!strcmp(layout[i].path, directory))
            at = &layout[i];
    CHECK_STR(at->path, directory);
    const struct entry *found = layout_find(at, name, &value);
    if (!want) {
        CHECK(!found);
        return;
    }
    CHECK(found);
    CHECK_STR(found->path, want);
    CHECK(!found->naming == (number < 0));
    if (number >= 0)
        CHECK_INT(value, number);
}

/* What every entry has to have for the rest to work. */
static void is_sound(const struct entry *entry)
{
    bool dynamic = strchr(entry_name(entry), '<') != NULL;

    CHECK(dynamic == (entry->naming != NULL));
    CHECK((S_ISDIR(entry->mode) || entry->streams) == (entry->render == NULL));
    /* what can be written is a command */
    CHECK(!entry->run == !(S_ISREG(entry->mode) && entry->mode & 0200));
    if (!strncmp(entry->path, "<pid>", 5))
        CHECK_INT(entry->mode & 0077, 0);

    /* it can be reached: its directory stands before it, and lists it once */
    size_t parents = 0, times = 0;
    for (size_t i = 0; i < layout_size; i++) {
        for (const struct entry *e = NULL; (e = layout_next(&layout[i], e));) {
            if (e != entry)
                continue;
            times++;
            parents += &layout[i] < entry && S_ISDIR(layout[i].mode);
        }
    }
    CHECK_INT(parents, 1);
    CHECK_INT(times, 1);
}

/* Below <pid>/, what the daemon itself reads in every mode (-o contain), since it takes what only
 * the daemon keeps or may, or looks at other processes too. All else is read, or told, with the
 * process's own rights. */
static const char *const read_by_daemon[] = {
    "<pid>/exceptions.top",
    "<pid>/crash/",
    "<pid>/torch/t",
};

static bool is_read_by_daemon(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(read_by_daemon); i++)
        if (!strncmp(path, read_by_daemon[i], strlen(read_by_daemon[i])))
            return true;
    return false;
}

/* Whoever adds a file has thought about who reads it. */
static void test_reader(const struct entry *entry)
{
    const char *name = entry_name(entry);

    if (entry_core(entry) && entry->render && entry->render != errors_render && !entry->run &&
        entry->render != table_render)
        CHECK(entry_passive(entry) != entry_asks(entry)); /* else nobody could read it */
    if (strncmp(entry->path, "<pid>/", 6) || !entry->render)
        return;
    if (entry->run || entry->render == errors_render)
        CHECK(!entry_passive(entry));
    else if (entry_asks(entry))
        CHECK(!entry_passive(entry) && !is_read_by_daemon(entry->path));
    else if (entry->render != table_render)
        CHECK(entry_passive(entry) != is_read_by_daemon(entry->path));
    else if (!strcmp(name, "locks.csv") || !strcmp(name, "gc.csv") || !strcmp(name, "profile.csv"))
        CHECK(!entry_passive(entry));
    else if (!strcmp(name, "locals.csv") || !strcmp(name, "torch_memory.csv"))
        CHECK(entry_passive(entry));
}

static void test_help(void)
{
    struct file_context context = {0};
    struct text text = TEXT_INIT;
    size_t lines = 0, width = 0;

    CHECK_INT(help_render(&context, &text), 0);
    for (const char *p = text.data; *p; p++) {
        width = *p == '\n' ? 0 : width + 1;
        lines += *p == '\n';
        CHECK(width <= 84);
    }
    CHECK(lines <= 80); /* one screen */
    for (size_t i = 1; i < layout_size; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", entry_name(&layout[i]));
        if (layout[i].sized || layout[i].render == table_render) /* by the table's name */
            name[strcspn(name, ".")] = 0;
        CHECK(strstr(text.data, name));
    }
    text_deinit(&text);
}

int main(void)
{
    for (size_t i = 1; i < layout_size; i++) {
        is_sound(&layout[i]);
        test_reader(&layout[i]);
    }

    finds("", "help", "help", -1);
    finds("", "self", "self", -1);
    finds("", "1", "<pid>", 1);
    finds("", "2147483647", "<pid>", 2147483647);
    finds("", "2147483648", NULL, 0);
    finds("", "99999999999999999999999", NULL, 0);
    finds("", "007", NULL, 0);
    finds("", "-1", NULL, 0);
    finds("", "+1", NULL, 0);
    finds("", "1 ", NULL, 0);
    finds("", "", NULL, 0);
    finds("", "<pid>", NULL, 0);
    finds("", "status", NULL, 0);
    finds("", "hel", NULL, 0);
    finds("", "helpp", NULL, 0);
    finds("by-rank", "0", "by-rank/<rank>", 0);
    finds("by-rank", "status", NULL, 0);
    finds("<pid>", "status", "<pid>/status", -1);
    finds("<pid>", "threads", "<pid>/threads", -1);
    finds("<pid>", "12", NULL, 0);
    finds("<pid>/threads", "12", "<pid>/threads/<tid>", 12);
    finds("<pid>/threads", "status", NULL, 0);

    /* the fixed names of the root come before the processes */
    const struct entry *first = layout_next(LAYOUT_ROOT, NULL);
    CHECK_STR(first->path, "help");

    struct numbers numbers = {0};
    for (unsigned i = 0; i < 1000; i++)
        CHECK_INT(numbers_add(&numbers, i, NULL), 0);
    CHECK_INT(numbers.n, 1000);
    CHECK_INT(numbers.items[999].value, 999);
    numbers_deinit(&numbers);
    CHECK_INT(numbers.n, 0);

    test_help();
    return 0;
}
