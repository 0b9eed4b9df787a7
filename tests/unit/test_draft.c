#include "fs/mount/draft.h"
#include "tests/unit/check.h"

#define SOMEBODY(tid_, uid_)                                      \
 {                                                                \
  .refs = 1, .who = {.tid = tid_}, .known = true, .uid = { uid_ } \
 }
static struct credentials anna = SOMEBODY(100, 1), bert = SOMEBODY(200, 1), carl = SOMEBODY(100, 2),
                          unknown = {.refs = 1};

static void put(struct drafts *drafts, uint64_t place, struct credentials *who, const char *what)
{
    struct text text = TEXT_INIT;

    text_puts(&text, what);
    drafts_put(drafts, place, who, &text);
    CHECK(!text.data);
}

static void has(struct drafts *drafts, uint64_t place, const struct credentials *who, long size)
{
    size_t found;

    CHECK_INT(drafts_find(drafts, place, who, &found) ? (long)found : -1, size);
}

int main(void)
{
    struct budget budget;
    struct drafts drafts;
    struct text text;

    budget_init(&budget, 100000, 100000, 0);
    drafts_init(&drafts, &budget);
    has(&drafts, 1, &anna, -1);
    put(&drafts, 1, &anna, "four");
    has(&drafts, 1, &anna, 4);
    has(&drafts, 2, &anna, -1);
    has(&drafts, 1, &bert, -1); /* another thread */
    has(&drafts, 1, &carl, -1); /* the same number, another user */
    put(&drafts, 1, &bert, "three");
    put(&drafts, 1, &anna, "sixsix"); /* in the place of the former */
    has(&drafts, 1, &anna, 6);
    has(&drafts, 1, &bert, 5);
    CHECK(drafts_take(&drafts, 1, &anna, &text));
    CHECK_STR(text.data, "sixsix");
    text_deinit(&text);
    CHECK(!drafts_take(&drafts, 1, &anna, &text));

    /* the oldest go */
    for (uint64_t i = 0; i < DRAFTS_MAX; i++)
        put(&drafts, 10 + i, &anna, "x");
    has(&drafts, 1, &bert, -1);
    has(&drafts, 10, &anna, 1);
    /* nothing is kept over the budget */
    size_t used = budget.bytes.n;
    budget.bytes.all = used - 1;
    put(&drafts, 99, &anna, "too much");
    has(&drafts, 99, &anna, -1);
    CHECK(budget.bytes.n <= used);
    /* nor for somebody that can't be told from others */
    put(&drafts, 50, &unknown, "?");
    has(&drafts, 50, &unknown, -1);
    drafts_deinit(&drafts);
    CHECK_INT(budget.bytes.n, 0);
    budget_deinit(&budget);
    CHECK_INT(anna.refs + bert.refs + carl.refs + unknown.refs, 4);
    return 0;
}
