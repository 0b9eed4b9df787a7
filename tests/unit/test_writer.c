#include "fs/mount/writer.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>

static const char file[] = "<pid>/fake";
static struct budget budget;
static struct replies replies;
static struct credentials me = {.refs = 1, .known = true, .uid = {1000}},
                          somebody = {.refs = 1, .known = true, .uid = {1001}};

/* A file_run: each line is a statement, "[N] line" its answer; "bad" fails. */
static int runs;

static int fake(struct file_context *context, const struct input *input, struct text *said,
                struct outcome *outcome)
{
    runs++;
    while (outcome->consumed < input->size) {
        const char *line = input->text + outcome->consumed;
        const char *end = memchr(line, '\n', input->size - outcome->consumed);
        if (!end && !input->last)
            return 0;
        size_t size = end ? (size_t)(end - line) : input->size - outcome->consumed;
        if (size == 3 && !memcmp(line, "bad", 3)) {
            text_puts(&context->why, "it is bad");
            return -EINVAL;
        }
        if (size == 5 && !memcmp(line, "worse", 5)) { /* with a page of its own */
            text_puts(said, "it is worse, see:\nit is worse\n");
            text_puts(&context->why, "it is worse");
            return -EIO;
        }
        text_add(said, line, size);
        text_puts(said, "!\n");
        outcome->consumed += size + (end != NULL);
    }
    return 0;
}

/* Says that it did more than there was. */
static int greedy(struct file_context *context, const struct input *input, struct text *said,
                  struct outcome *outcome)
{
    outcome->consumed = SIZE_MAX;
    return 0;
}

static struct writer *new_writer(void)
{
    const struct reply_key key = {.file = file, .credentials = &me};
    struct writer *writer;

    CHECK_INT(writer_new(0, false, &key, 1, &budget, &writer), 0);
    return writer;
}

static int write_with(struct writer *writer, file_run *run, const char *text, bool last)
{
    struct file_context context = {0};
    const struct input input = {.text = text, .size = strlen(text), .last = last};

    int r = writer_run(writer, run, &context, &me, &input, &replies);
    text_deinit(&context.why);
    return r;
}

static int writes(struct writer *writer, const char *text)
{
    return write_with(writer, fake, text, false);
}

static void replied_to(struct credentials *who, const char *wanted)
{
    const struct reply_key key = {.file = file, .credentials = who};
    struct text text = TEXT_INIT;

    replies_render(&replies, &key, &text);
    CHECK_STR(text.data ? text.data : "", wanted);
    text_deinit(&text);
}

static void replied(const char *wanted) { replied_to(&me, wanted); }

/* All that can be read of an open file now, `piece` bytes at a time. */
static void reads(struct writer *writer, size_t piece, const char *wanted)
{
    char buf[256] = "";
    size_t n, size = 0;

    while ((n = writer_read(writer, buf + size, piece)))
        size += n;
    CHECK_STR(buf, wanted);
}

/* However a text is cut, the same comes out. */
static void test_pieces(void)
{
    static const char text[] = "one\ntwo\nthree\nfour";

    for (size_t piece = 1; piece <= sizeof text; piece++) {
        struct writer *writer = new_writer();
        for (size_t i = 0; i < sizeof text - 1; i += piece) {
            char part[32] = "";
            strncat(part, text + i, piece);
            CHECK_INT(writes(writer, part), 0);
        }
        CHECK(writer_pending(writer));
        CHECK_INT(write_with(writer, fake, "", true), 0);
        CHECK(!writer_pending(writer));
        replied("one!\ntwo!\nthree!\nfour!\n");
        runs = 0;
        CHECK_INT(write_with(writer, fake, "", true), 0); /* once is enough */
        CHECK_INT(runs, 0);
        writer_free(writer);
    }
    replied_to(&somebody, "");
}

static void test_error(void)
{
    struct writer *writer = new_writer();

    CHECK_INT(writes(writer, "one\nbad\ntwo\nthr"), -EINVAL);
    replied("one!\nerror: it is bad\n");
    CHECK(!writer_pending(writer));
    runs = 0;
    CHECK_INT(writer_failed(writer), -EINVAL);
    CHECK_INT(writes(writer, "three\n"), -EINVAL); /* the rest of it */
    CHECK_INT(runs, 0);
    replied("one!\nerror: it is bad\n");
    writer_flushed(writer);
    CHECK_INT(writer_failed(writer), 0);
    CHECK_INT(writes(writer, "four\n"), 0);
    replied("one!\nerror: it is bad\nfour!\n");
    writer_free(writer);

    writer = new_writer(); /* what the reply says is not said again */
    CHECK_INT(writes(writer, "worse\n"), -EIO);
    replied("it is worse, see:\nit is worse\n");
    writer_free(writer);

    /* one that nothing was run for */
    struct text why = TEXT_INIT;
    text_puts(&why, "not you");
    writer = new_writer();
    CHECK_INT(writes(writer, "half"), 0);
    CHECK_INT(writer_fail(writer, -EPERM, &why, &replies), -EPERM);
    CHECK(!writer_pending(writer));
    CHECK_INT(writer_fail(writer, -EAGAIN, &why, &replies), -EPERM);
    replied("error: not you\n");
    writer_free(writer);
    text_deinit(&why);
}

static void test_reads(void)
{
    struct writer *writer = new_writer(), *other = new_writer();

    reads(writer, 3, "");
    CHECK_INT(writes(writer, "one\n"), 0);
    CHECK_INT(writes(other, "other\n"), 0);
    CHECK_INT(writes(writer, "two\n"), 0);
    reads(writer, 3, "one!\ntwo!\n");
    reads(writer, 3, "");
    CHECK_INT(writes(writer, "three\n"), 0);
    reads(writer, 100, "three!\n");
    reads(other, 100, "other!\n");
    replied("three!\n");

    CHECK_INT(writes(writer, "bad\n"), -EINVAL);
    reads(writer, 100, "error: it is bad\n"); /* seen: the next is a new attempt */
    CHECK_INT(writes(writer, "four\n"), 0);
    reads(writer, 100, "four!\n");
    writer_free(writer);
    replied("four!\n"); /* outlives the open file */
    writer_free(other);
}

static void test_limits(void)
{
    struct writer *writer = new_writer();
    char *half = malloc(INPUT_MAX / 2 + 1);

    memset(half, 'x', INPUT_MAX / 2);
    half[INPUT_MAX / 2] = 0;
    CHECK_INT(writes(writer, half), 0);
    CHECK_INT(writes(writer, half), 0);
    CHECK_INT(writes(writer, "x"), -EFBIG);
    CHECK(!writer_pending(writer));
    CHECK_INT(writes(writer, "one\n"), -EFBIG);
    writer_flushed(writer);
    CHECK_INT(writes(writer, "one\n"), 0);
    writer_free(writer);

    writer = new_writer();
    CHECK_INT(write_with(writer, greedy, "one\n", false), 0);
    CHECK(!writer_pending(writer));
    CHECK_INT(writes(writer, "half"), 0);
    writer_drop(writer);
    CHECK(!writer_pending(writer));
    CHECK_INT(writes(writer, "one\n"), 0);
    replied("one!\n");
    writer_free(writer);
    free(half);
}

/* Says how much there is, for now: the next call says it anew, unless it is told to keep that. */
/* The first line counts for all that follow. */
static int under_a_head(struct file_context *context, const struct input *input, struct text *said,
                        struct outcome *outcome)
{
    const char *newline = memchr(input->text, '\n', input->size);

    if (!newline)
        return 0;
    outcome->stays = (size_t)(newline + 1 - input->text);
    if (outcome->stays == input->size)
        return 0;
    text_add(said, input->text, outcome->stays - 1);
    text_puts(said, ": ");
    text_add(said, input->text + outcome->stays, input->size - outcome->stays);
    outcome->consumed = input->size;
    return 0;
}

static void test_stays(void)
{
    struct writer *writer = new_writer();

    CHECK_INT(write_with(writer, under_a_head, "he", false), 0);
    CHECK_INT(write_with(writer, under_a_head, "ad\n", false), 0);
    CHECK_INT(write_with(writer, under_a_head, "one\n", false), 0);
    CHECK_INT(write_with(writer, under_a_head, "two\n", false), 0);
    reads(writer, 256, "head: one\nhead: two\n");
    CHECK(writer_pending(writer));
    CHECK_INT(write_with(writer, under_a_head, "", true), 0);
    CHECK(!writer_pending(writer));
    reads(writer, 256, "");
    writer_free(writer);
}

static int counting(struct file_context *context, const struct input *input, struct text *said,
                    struct outcome *outcome)
{
    CHECK(input->before <= input->size);
    outcome->retake = input->before > 0;
    text_printf(said, "%zu then %zu\n", input->before, input->size - input->before);
    if (memchr(input->text, ';', input->size))
        outcome->consumed = input->size;
    else
        outcome->passing = said->size;
    return 0;
}

static void test_retaken(void)
{
    struct writer *writer = new_writer();

    CHECK_INT(write_with(writer, counting, "one", false), 0);
    replied("0 then 3\n");
    CHECK_INT(write_with(writer, counting, "two;", false), 0);
    replied("3 then 4\n");
    CHECK_INT(write_with(writer, counting, "three", false), 0); /* another statement */
    replied("3 then 4\n0 then 5\n");
    CHECK_INT(write_with(writer, counting, "four", false), 0);
    replied("3 then 4\n5 then 4\n");
    reads(writer, 100, "3 then 4\n5 then 4\n");
    /* what was read can't be taken back */
    CHECK_INT(write_with(writer, counting, "five", false), 0);
    reads(writer, 100, "9 then 4\n");
    writer_free(writer);
    replies_clear(&replies);
}

/* Holds what is written; comments are nothing. */
static int holding(struct file_context *context, const struct input *input, struct text *said,
                   struct outcome *outcome)
{
    bool something = input->size && *input->text != '#';

    outcome->consumed = input->size;
    if (something && *input->text == '!')
        return -EINVAL;
    if (something && *input->text == '-') {
        outcome->keeps = true;
        return 0;
    }
    if (something || (input->last && context->clears)) {
        text_puts(said, context->clears ? "replaced\n" : "added\n");
        outcome->cleared = true;
    }
    return 0;
}

static struct writer *new_truncated(bool clears)
{
    const struct reply_key key = {.file = file, .credentials = &me};
    struct writer *writer;

    CHECK_INT(writer_new(O_WRONLY | O_TRUNC, clears, &key, 1, &budget, &writer), 0);
    return writer;
}

static void test_clears(void)
{
    struct writer *writer = new_truncated(true);

    CHECK(writer_pending(writer)); /* nothing was written: it is cleared */
    CHECK_INT(write_with(writer, holding, "", true), 0);
    replied("replaced\n");
    CHECK(!writer_pending(writer));
    writer_free(writer);

    writer = new_truncated(true);
    CHECK_INT(write_with(writer, holding, "# comment", false), 0);
    CHECK(writer_pending(writer));
    CHECK_INT(write_with(writer, holding, "one", false), 0);
    CHECK(!writer_pending(writer));
    CHECK_INT(write_with(writer, holding, "two", false), 0);
    replied("replaced\nadded\n");
    CHECK_INT(writer_truncate(writer, &me), 0);
    CHECK(writer_pending(writer));
    writer_drop(writer); /* killed */
    CHECK(!writer_pending(writer));
    writer_free(writer);

    writer = new_truncated(true);
    CHECK_INT(write_with(writer, holding, "!", false), -EINVAL);
    CHECK(!writer_pending(writer)); /* what was refused changes nothing */
    writer_flushed(writer);
    CHECK_INT(write_with(writer, holding, "one", false), 0);
    CHECK(writer->reply != NULL && !writer->clears);
    writer_free(writer);

    writer = new_truncated(true);
    CHECK_INT(write_with(writer, holding, "-one", false), 0);
    CHECK(!writer_pending(writer) && writer->clears); /* but what follows replaces it */
    CHECK_INT(writer_truncate(writer, &me), 0);
    CHECK(writer_pending(writer));
    writer_free(writer);

    writer = new_truncated(false);
    CHECK(!writer_pending(writer));
    CHECK_INT(write_with(writer, holding, "", true), 0);
    writer_free(writer);
    replies_clear(&replies);
}

/* In whose names the last command ran. */
static struct principals ran_as;

static int noting(struct file_context *context, const struct input *input, struct text *said,
                  struct outcome *outcome)
{
    ran_as = *context->principals;
    outcome->consumed = memchr(input->text, '\n', input->size) || input->last ? input->size : 0;
    outcome->cleared = outcome->consumed;
    return 0;
}

static int writes_as(struct writer *writer, struct credentials *who, struct process *process,
                     const char *text)
{
    struct file_context context = {.process = process};
    const struct input input = {.text = text, .size = strlen(text), .last = !who};

    int r = writer_run(writer, noting, &context, who, &input, &replies);
    text_deinit(&context.why);
    return r;
}

/* Whatever was written by somebody, and waits, runs in their name, too. */
static void test_principals(void)
{
    struct process *process = (struct process *)&budget; /* any: it is not looked into */
    struct credentials many[PENDING_BY_MAX + 1];
    struct writer *writer = new_writer();

    me.who = (struct access_caller){.pid = 5, .start_time = 6, .euid = 1000};
    somebody.who = (struct access_caller){.pid = 5, .start_time = 6, .euid = 1001};
    CHECK_INT(writes_as(writer, &me, NULL, "one\n"), 0);
    CHECK(ran_as.n == 1 && ran_as.opener == &me && !ran_as.items[0].lives);
    CHECK_INT(writes_as(writer, &me, process, "one\n"), 0);
    CHECK(ran_as.n == 1 && ran_as.items[0].lives); /* of its own file a process is one */
    me.start_stack = 7;
    struct credentials executed = me;
    executed.start_stack = 8;
    CHECK_INT(writes_as(writer, &executed, process, "one\n"), 0);
    CHECK(ran_as.n == 1 && !ran_as.items[0].lives);

    CHECK_INT(writes_as(writer, &somebody, process, "half"), 0);
    CHECK(ran_as.n == 2 && ran_as.items[0].euid == 1000 && ran_as.items[1].euid == 1001);
    CHECK(!ran_as.items[1].lives);
    CHECK_INT(writes_as(writer, &me, process, " of"), 0);
    CHECK_INT(ran_as.n, 2);
    CHECK_INT(writes_as(writer, NULL, process, ""), 0); /* nobody is left */
    CHECK(ran_as.n == 2 && !ran_as.items[0].lives);
    CHECK_INT(writes_as(writer, &me, NULL, "one\n"), 0); /* what they wrote is done with */
    CHECK_INT(ran_as.n, 1);

    for (unsigned i = 0; i <= PENDING_BY_MAX; i++) {
        many[i] = (struct credentials){.refs = 1, .known = true, .uid = {2000 + i}};
        CHECK_INT(writes_as(writer, &many[i], NULL, "x"), i < PENDING_BY_MAX ? 0 : -EPERM);
    }
    CHECK(!writer_pending(writer));
    writer_free(writer);

    writer = new_truncated(true); /* who has it cleared is asked for, too */
    CHECK_INT(writer_truncate(writer, &somebody), 0);
    CHECK_INT(writes_as(writer, NULL, NULL, ""), 0);
    CHECK_INT(ran_as.n, 2);
    writer_free(writer);
    replies_clear(&replies);
    CHECK_INT(me.refs + somebody.refs, 2);
}

int main(void)
{
    budget_init(&budget, 512u << 20, 512u << 20, 0);
    replies_init(&replies);
    test_principals();
    test_clears();
    test_stays();
    test_retaken();
    test_pieces();
    test_error();
    test_reads();
    test_limits();
    replies_deinit(&replies);
    CHECK_INT(budget.bytes.n, 0);
    return 0;
}
