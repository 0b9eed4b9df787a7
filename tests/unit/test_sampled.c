/* What a process tells that samples another one, and what is made of that which can't be. */
#include "fs/owner/sampled.h"
#include "tests/unit/check.h"

#include "agent/base/clock.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static struct store_budget budget;

/* One that is told, with a store of its own. */
static struct sampled begin(void)
{
    struct sampled sampled = {.since = monotonic_ns() - 1000000000u,
                              .modes = SAMPLER_MODE(MODE_CPU),
                              .why = TEXT_INIT};

    CHECK_INT(store_new(1, &budget, &sampled.store), 0);
    return sampled;
}

static void end(struct sampled *sampled)
{
    store_unref(sampled->store);
    sampled_deinit(sampled);
}

static struct store_stats stats_of(struct sampled *sampled)
{
    struct store_stats stats;

    store_stats(sampled->store, &stats);
    return stats;
}

static int keep_name(void *arg, pid_t tid, const char *name)
{
    snprintf(arg, 64, "%d %s", (int)tid, name);
    return 0;
}

static int add_func(void *arg, uint32_t node, size_t depth, struct profile_frame frame)
{
    text_printf(arg, "%zu:%s|%s;", depth, frame.func, frame.file);
    return 0;
}

/* Takes in all that was sent. */
static void take(int fd, struct sampled *out)
{
    char message[SAMPLED_PIECE];
    ssize_t n;

    while ((n = recv(fd, message, sizeof message, MSG_DONTWAIT)) > 0)
        CHECK_INT(sampled_take(out, message, (size_t)n), 0);
}

static void passes(void)
{
    const struct profile_frame outer = {PROFILE_PYTHON, "outer", "a.py", 1, 2};
    const struct profile_frame inner = {PROFILE_PYTHON, "in\x1b[2Jner", "b.py\xc2\x9b", 3, 4};
    const struct sampler_figures figures = {
        .target_ns = 7, .daemon_ns = 8, .missing = ~0u, .note = "as \x1b it is"};
    struct sampled_writer writer;
    struct sampled out = begin();
    struct text stacks = TEXT_INIT, why = TEXT_INIT;
    struct store *store;
    uint32_t ids[2];
    char name[64] = "";
    int ends[2];

    CHECK_INT(store_new(1, &budget, &store), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    CHECK_INT(sampled_writer_init(&writer, ends[0], store), 0);
    CHECK_INT(store_intern(store, &outer, &ids[0]), 0);
    CHECK_INT(store_intern(store, &inner, &ids[1]), 0);
    text_puts(&why, "it has");
    sampled_write_begun(&writer, 0, &why);
    struct sample sample = {
        .when = monotonic_ns(), .tid = 5, .kind = SAMPLE_CPU, .weight = 10, .frames = ids, .n = 2};
    for (int i = 0; i < 3000; i++) { /* more than one message */
        CHECK_INT(store_add(store, &sample), 0);
        if (i % 500 == 0)
            take(ends[1], &out);
    }
    store_lose(store, 4);
    store_thread_name(store, 5, "wor\tker\x07");
    sampled_write_figures(&writer, &figures, true);
    sampled_write_collected(&writer, 9);
    CHECK(sampled_flush(&writer));
    take(ends[1], &out);
    CHECK_INT(stats_of(&out).samples, 3000);
    CHECK_INT(stats_of(&out).lost, 4);
    CHECK_INT(store_threads(out.store, keep_name, name), 0);
    CHECK_STR(name, "5 wor\tker?");
    CHECK_INT(store_stacks(out.store, add_func, &stacks), 0);
    CHECK_INT(text_finish(&stacks), 0);
    CHECK_STR(stacks.data, "0:in?[2Jner|b.py??;1:outer|a.py;");
    CHECK(out.begun && out.over && !out.error);
    CHECK_INT(out.collected, 9);
    CHECK_INT(out.figures.target_ns, 7);
    CHECK_INT(out.figures.missing, SAMPLER_MODE(MODE_CPU));
    CHECK_STR(out.figures.note, "as ? it is");
    close(ends[1]);
    sampled_write_collected(&writer, 10);
    CHECK(!sampled_flush(&writer)); /* nobody is there */
    close(ends[0]);
    store_unref(store);
    free(writer.bytes);
    text_deinit(&stacks);
    text_deinit(&why);
    end(&out);
}

/* One item with what follows it, to one that nothing was told. */
static int lie(uint32_t kind, const void *of, size_t size, const void *more, size_t nmore)
{
    struct sampled sampled = begin();
    char message[1024] = "";
    const struct item item = {kind, (uint32_t)(sizeof item + size + nmore)};

    memcpy(message, &item, sizeof item);
    if (size)
        memcpy(message + sizeof item, of, size);
    if (nmore)
        memcpy(message + sizeof item + size, more, nmore);
    int r = sampled_take(&sampled, message, item.size);
    CHECK(r == 0 || stats_of(&sampled).samples == 0);
    end(&sampled);
    return r;
}

static int lie_sample(struct item_sample of, uint32_t frame)
{
    return lie(ITEM_SAMPLE, &of, sizeof of, &frame, of.n ? sizeof frame : 0);
}

static void samples(void)
{
    const struct item_sample good = {.when = 1, .weight = 1, .tid = 1, .n = 1};
    struct item_sample of = good;

    CHECK_INT(lie_sample(good, STORE_NO_STACK), 0);
    CHECK_INT(lie_sample(good, STORE_NO_STACK + 1), -EPROTO); /* a frame that it never told */
    CHECK_INT(lie_sample(good, UINT32_MAX), -EPROTO);
    of.n = SAMPLED_FRAMES_MAX;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of.n = UINT32_MAX;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of = good;
    of.kind = SAMPLE_KINDS;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of = good;
    of.tid = -1;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of = good;
    of.gil = 2;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of = good;
    of.weight = INT64_MIN;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of.weight = INT64_MAX;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
    of = good;
    of.count = UINT64_MAX;
    CHECK_INT(lie_sample(of, 0), -EPROTO);
}

/* All that it says together is bounded, and no moment is another than while it sampled. */
static void sums(void)
{
    struct sampled sampled = begin();
    struct {
        struct item item;
        struct item_sample of;
    } message = {{ITEM_SAMPLE, sizeof message},
                 {.when = UINT64_MAX, .weight = (int64_t)(SAMPLED_WEIGHT_MAX / 2), .tid = 1}};
    uint64_t now = monotonic_ns();

    CHECK_INT(sampled_take(&sampled, (char *)&message, sizeof message), 0);
    message.of.when = 0;
    CHECK_INT(sampled_take(&sampled, (char *)&message, sizeof message), 0);
    CHECK_INT(sampled_take(&sampled, (char *)&message, sizeof message), -EPROTO);
    CHECK_INT(stats_of(&sampled).samples, 2);
    CHECK(stats_of(&sampled).last >= now && stats_of(&sampled).last <= monotonic_ns());
    end(&sampled);
}

static void others(void)
{
    struct item_frame frame = {.kind = PROFILE_WORD, .func = 2};
    struct item_name name = {.tid = 1, .size = 2};
    struct item_begun begun = {.error = -EPERM, .size = 2};
    struct item_figures figures = {0};
    uint64_t lost = 1;

    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, "ab", 2), 0);
    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, "a\0", 2), -EPROTO);
    frame.file = 1;
    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, "ab", 2), -EPROTO);
    frame.file = UINT32_MAX;
    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, "ab", 2), -EPROTO);
    frame = (struct item_frame){.kind = PROFILE_WORD + 1};
    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, NULL, 0), -EPROTO);
    frame = (struct item_frame){.line = -1};
    CHECK_INT(lie(ITEM_FRAME, &frame, sizeof frame, NULL, 0), -EPROTO);
    CHECK_INT(lie(ITEM_FRAME, &frame, 3, NULL, 0), -EPROTO);
    CHECK_INT(lie(ITEM_NAME, &name, sizeof name, "ab", 2), 0);
    name.size = 3;
    CHECK_INT(lie(ITEM_NAME, &name, sizeof name, "ab", 2), -EPROTO);
    CHECK_INT(lie(ITEM_BEGUN, &begun, sizeof begun, "ab", 2), 0);
    begun.error = 1;
    CHECK_INT(lie(ITEM_BEGUN, &begun, sizeof begun, "ab", 2), -EPROTO);
    begun.error = -5000;
    CHECK_INT(lie(ITEM_BEGUN, &begun, sizeof begun, "ab", 2), -EPROTO);
    CHECK_INT(lie(ITEM_FIGURES, &figures, sizeof figures, NULL, 0), 0);
    figures.native = 2;
    CHECK_INT(lie(ITEM_FIGURES, &figures, sizeof figures, NULL, 0), -EPROTO);
    memset(&figures, 'a', sizeof figures); /* a note without an end */
    figures.native = figures.over = 0;
    CHECK_INT(lie(ITEM_FIGURES, &figures, sizeof figures, NULL, 0), -EPROTO);
    CHECK_INT(lie(ITEM_LOST, &lost, sizeof lost, NULL, 0), 0);
    lost = UINT64_MAX;
    CHECK_INT(lie(ITEM_LOST, &lost, sizeof lost, NULL, 0), -EPROTO);
    CHECK_INT(lie(0, NULL, 0, NULL, 0), -EPROTO);
    CHECK_INT(lie(ITEM_COLLECTED + 1, NULL, 0, NULL, 0), -EPROTO);
}

/* Heads that aren't. */
static void heads(void)
{
    struct sampled sampled = begin();
    struct item item = {ITEM_LOST, 0};

    CHECK_INT(sampled_take(&sampled, (char *)&item, sizeof item), -EPROTO);
    item.size = sizeof item + 8;
    CHECK_INT(sampled_take(&sampled, (char *)&item, sizeof item), -EPROTO);
    CHECK_INT(sampled_take(&sampled, (char *)&item, 3), -EPROTO);
    end(&sampled);
}

int main(void)
{
    passes();
    samples();
    sums();
    others();
    heads();
    return 0;
}
