#include "fs/process/replies.h"
#include "tests/unit/check.h"

static const char eval[] = "<pid>/eval", ctl[] = "<pid>/ctl";

static struct credentials root = {.refs = 1, .known = true},
                          user = {.refs = 1, .known = true, .uid = {1000, 1000, 1000, 1000}},
                          unknown = {.refs = 1},
                          /* root without capabilities is somebody else */
    bare = {.refs = 1, .known = true, .caps = {1}};

static struct reply *put(struct replies *replies, struct budget *budget, struct reply_key key,
                         size_t size, char c)
{
    struct reply *reply;
    struct text text = TEXT_INIT;

    for (size_t i = 0; i < size; i++)
        text_putc(&text, c);
    CHECK_INT(reply_new(&key, budget, &reply), 0);
    reply_add(reply, 0, 0, &text);
    replies_put(replies, reply);
    text_deinit(&text);
    return reply;
}

static size_t shown(struct replies *replies, struct reply_key key, char *first)
{
    struct text text = TEXT_INIT;

    replies_render(replies, &key, &text);
    *first = text.size ? text.data[0] : 0;
    size_t size = text.size;
    text_deinit(&text);
    return size;
}

static void test_keys(struct replies *replies, struct budget *budget)
{
    const struct reply_key keys[] = {{.file = eval, .credentials = &root},
                                     {.file = eval, .credentials = &user},
                                     {.file = ctl, .credentials = &user},
                                     {.file = eval, .tid = 5, .credentials = &user},
                                     {.file = eval, .tid = 5, .depth = 1, .credentials = &user}};
    char c;

    for (unsigned i = 0; i < 5; i++)
        reply_unref(put(replies, budget, keys[i], i + 1, 'a' + (char)i));
    for (unsigned i = 0; i < 5; i++) {
        CHECK_INT(shown(replies, keys[i], &c), i + 1);
        CHECK_INT(c, 'a' + (int)i);
    }
    CHECK_INT(shown(replies, (struct reply_key){.file = ctl, .credentials = &root}, &c), 0);

    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &bare}, &c), 0);
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &unknown}, &c), 0);

    /* the last one is what counts; an open file keeps its own */
    struct reply *old = put(replies, budget, keys[0], 3, 'x');
    struct reply *new = put(replies, budget, keys[0], 4, 'y');
    char buf[8];
    CHECK_INT(shown(replies, keys[0], &c), 4);
    CHECK_INT(reply_copy(old, 1, buf, sizeof buf), 2);
    replies_put(replies, old);
    CHECK_INT(shown(replies, keys[0], &c), 3);
    replies_put(replies, old);
    CHECK_INT(shown(replies, keys[0], &c), 3);
    reply_unref(old);
    reply_unref(new);
    replies_clear(replies);
    CHECK_INT(shown(replies, keys[0], &c), 0);
    CHECK_INT(budget->bytes.n, 0);
}

static void test_limits(struct replies *replies, struct budget *budget)
{
    static struct credentials users[REPLIES_MAX + 1];
    char c;

    for (unsigned i = 0; i <= REPLIES_MAX; i++)
        users[i] = (struct credentials){.refs = 1, .known = true, .uid = {i}};
    /* their number: the oldest goes */
    for (unsigned i = 0; i <= REPLIES_MAX; i++)
        reply_unref(put(replies, budget, (struct reply_key){.file = eval, .credentials = &users[i]},
                        1, 'a'));
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &root}, &c), 0);
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &users[1]}, &c), 1);
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &users[REPLIES_MAX]},
                    &c),
              1);
    replies_clear(replies);

    /* their bytes */
    for (unsigned i = 0; i < 3; i++)
        reply_unref(put(replies, budget, (struct reply_key){.file = eval, .credentials = &users[i]},
                        REPLIES_BYTES_MAX / 2, 'a'));
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &root}, &c), 0);
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &users[1]}, &c),
              REPLIES_BYTES_MAX / 2);
    CHECK(budget->bytes.n < 4u * REPLIES_BYTES_MAX);
    replies_clear(replies);
    CHECK_INT(budget->bytes.n, 0);

    /* the bytes of one */
    struct text text = TEXT_INIT;
    for (unsigned i = 0; i < REPLY_MAX / 2; i++)
        text_putc(&text, 'z');
    struct reply *reply =
        put(replies, budget, (struct reply_key){.file = eval, .credentials = &root}, 10, 'a');
    reply_add(reply, 0, 0, &text);
    CHECK_INT(shown(replies, (struct reply_key){.file = eval, .credentials = &root}, &c),
              REPLY_MAX / 2 + 10);
    reply_add(reply, 0, 0, &text);
    CHECK(shown(replies, (struct reply_key){.file = eval, .credentials = &root}, &c) <
          REPLY_MAX / 2 + 100);
    CHECK_INT(c, '['); /* what was cut is said */

    /* and what all may hold */
    struct budget small;
    budget_init(&small, 100000, 100000, 0);
    struct reply *poor =
        put(replies, &small, (struct reply_key){.file = ctl, .credentials = &root}, 10, 'a');
    reply_add(poor, 0, 0, &text);
    size_t size = shown(replies, (struct reply_key){.file = ctl, .credentials = &root}, &c);
    CHECK(size > 10 && size < 100 && c == '[');
    reply_unref(poor);

    /* of which one user has a share, and root what is kept */
    static struct credentials anna = {.refs = 1, .known = true, .uid = {54321}, .who.fsuid = 54321},
                              bert = {.refs = 1, .known = true, .uid = {54322}, .who.fsuid = 54322};
    struct budget shared;
    budget_init(&shared, 300000, 100000, 100000);
    struct reply *one =
        put(replies, &shared, (struct reply_key){ctl, .credentials = &anna}, 10, 'a');
    struct reply *two =
        put(replies, &shared, (struct reply_key){ctl, .credentials = &bert}, 10, 'a');
    text_truncate(&text, 30000);
    for (int i = 0; i < 9; i++)
        reply_add(one, 0, 0, &text);
    CHECK(shared.bytes.n < 110000);
    reply_add(two, 0, 0, &text);
    CHECK(shown(replies, (struct reply_key){ctl, .credentials = &bert}, &c) > 30000);
    reply_unref(one);
    reply_unref(two);
    reply_unref(reply);
    text_deinit(&text);
    replies_clear(replies);
    CHECK_INT(shared.bytes.n, 0);
    budget_deinit(&shared);
    CHECK_INT(small.bytes.n, 0);
    CHECK_INT(budget->bytes.n, 0);
    budget_deinit(&small);
}

int main(void)
{
    struct budget budget;
    struct replies replies;

    budget_init(&budget, 512u << 20, 512u << 20, 0);
    replies_init(&replies);
    test_keys(&replies, &budget);
    test_limits(&replies, &budget);
    replies_deinit(&replies);
    budget_deinit(&budget);
    return 0;
}
