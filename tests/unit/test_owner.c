/* What passes between who asks and who reads, and whose rights that takes. */
#include "fs/owner/message.h"
#include "fs/process/process.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define LARGE 1000000

static uint32_t index_of(const char *path)
{
    for (size_t i = 0; i < layout_size; i++)
        if (!strcmp(layout[i].path, path))
            return (uint32_t)i;
    CHECK(!"in the layout");
    return 0;
}

/* ---- replies ---- */

struct sending {
    int fd;
    const struct owner_answer *answer;
};

static void *send_answer(void *arg)
{
    const struct sending *sending = arg;

    CHECK_INT(owner_reply_send(sending->fd, sending->answer), 0);
    close(sending->fd);
    return NULL;
}

/* Sends what is answered and takes it in at the other end. What that says. */
static int pass(const struct owner_call *call, const struct owner_answer *answer,
                struct owner_answer *out)
{
    struct owner_receipt receipt = {.call = call};
    struct sending sending = {.answer = answer};
    char message[OWNER_PIECE];
    pthread_t thread;
    int ends[2], r = 1;

    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    sending.fd = ends[0];
    CHECK_INT(pthread_create(&thread, NULL, send_answer, &sending), 0);
    while (r > 0) {
        ssize_t n = recv(ends[1], message, sizeof message, 0);
        CHECK(n > 0);
        r = owner_receipt_take(&receipt, message, (size_t)n);
    }
    pthread_join(thread, NULL);
    close(ends[1]);
    if (r == 0)
        r = owner_receipt_answer(&receipt, out);
    owner_receipt_deinit(&receipt);
    return r;
}

static void texts(void)
{
    const struct owner_call call = {.op = OWNER_RENDER, .entry = index_of("<pid>/backtrace")};
    struct owner_answer answer = {.error = 0, .noted = -EOPNOTSUPP}, out = {0};

    for (int i = 0; i < LARGE; i++)
        text_putc(&answer.text, 'x');
    text_puts(&answer.why, "why");
    CHECK_INT(pass(&call, &answer, &out), 0);
    CHECK_INT(out.error, 0);
    CHECK_INT(out.noted, -EOPNOTSUPP);
    CHECK_STR(out.why.data, "why");
    CHECK_INT(out.text.size, LARGE);
    CHECK(!memcmp(out.text.data, answer.text.data, LARGE));
    owner_answer_deinit(&out);

    out = (struct owner_answer){0};
    answer.error = -ESRCH; /* then there is no text */
    CHECK_INT(pass(&call, &answer, &out), 0);
    CHECK_INT(out.error, -ESRCH);
    CHECK_INT(out.text.size, 0);
    owner_answer_deinit(&out);
    owner_answer_deinit(&answer);
}

/* What a terminal would obey doesn't come through, whoever says it. */
static void controls(void)
{
    const struct owner_call call = {.op = OWNER_RENDER, .entry = index_of("<pid>/backtrace")};
    struct owner_answer answer = {0}, out = {0};

    text_puts(&answer.text, "a\tb\n\x1b[2J\r\x7f\xc2\x9b"
                            "2J\xc2\xa0\xc3\xa9");
    text_puts(&answer.why, "\x1b");
    CHECK_INT(pass(&call, &answer, &out), 0);
    CHECK_STR(out.text.data, "a\tb\n?[2J????2J\xc2\xa0\xc3\xa9");
    CHECK_STR(out.why.data, "?");
    owner_answer_deinit(&out);
    owner_answer_deinit(&answer);
}

static int pass_name(uint32_t directory, uint32_t entry, unsigned value, const char *word,
                     struct owner_answer *out)
{
    const struct owner_call call = {.op = OWNER_LIST, .entry = directory};
    struct owner_answer answer = {0};
    struct owner_name name = {.entry = entry, .number.value = value};

    if (word)
        name.number.word = strdup(word);
    CHECK_INT(owner_answer_add(&answer, &name), 0);
    *out = (struct owner_answer){0};
    int r = pass(&call, &answer, out);
    owner_answer_deinit(&answer);
    return r;
}

/* Names are those of the directory that was asked for, and can be a file's. */
static void names(void)
{
    static const char *const bad[] = {"a/b", ".", "..", "a\nb", "\x1b", "\xc2\x9b"};
    uint32_t threads = index_of("<pid>/threads"), tid = index_of("<pid>/threads/<tid>");
    uint32_t globals = index_of("<pid>/globals"), module = index_of("<pid>/globals/<module>");
    char longest[NAME_MAX + 2] = "";
    struct owner_answer out;

    CHECK_INT(pass_name(threads, tid, 77, NULL, &out), 0);
    CHECK(out.nnames == 1 && out.names[0].entry == tid && out.names[0].number.value == 77);
    owner_answer_deinit(&out);
    memset(longest, 'n', NAME_MAX);
    CHECK_INT(pass_name(globals, module, 0, longest, &out), 0);
    CHECK(out.nnames == 1);
    CHECK_STR(out.names[0].number.word, longest);
    owner_answer_deinit(&out);

    longest[NAME_MAX] = 'n';
    CHECK_INT(pass_name(globals, module, 0, longest, &out), -EPROTO);
    owner_answer_deinit(&out);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(pass_name(globals, module, 0, bad[i], &out), -EPROTO);
        owner_answer_deinit(&out);
    }
    CHECK_INT(pass_name(globals, module, 1, NULL, &out), -EPROTO); /* a word it has to be */
    owner_answer_deinit(&out);
    CHECK_INT(pass_name(threads, tid, 1, "word", &out), -EPROTO); /* and here none */
    owner_answer_deinit(&out);
    CHECK_INT(pass_name(threads, module, 0, "word", &out), -EPROTO); /* another directory's */
    owner_answer_deinit(&out);
    CHECK_INT(pass_name(threads, (uint32_t)layout_size, 0, NULL, &out), -EPROTO);
    owner_answer_deinit(&out);
}

/* Sizes that it can't have, and messages that no reply has. */
static void lies(void)
{
    static const struct owner_reply bad[] = {
        {.error = 1},
        {.error = -4096},
        {.noted = 5},
        {.why = OWNER_WHY_MAX + 1},
        {.nnames = OWNER_NAMES_MAX + 1},
        {.names = OWNER_NAMES_BYTES + 1},
        {.text = TEXT_MAX + 1},
        {.text = UINT64_MAX},
    };
    const struct owner_call call = {.op = OWNER_RENDER};
    struct owner_reply reply = {.text = 3};
    char message[sizeof reply + 8] = "";

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct owner_receipt receipt = {.call = &call};
        CHECK_INT(owner_receipt_take(&receipt, (const char *)&bad[i], sizeof bad[i]), -EPROTO);
        owner_receipt_deinit(&receipt);
    }
    memcpy(message, &reply, sizeof reply);
    struct owner_receipt receipt = {.call = &call};
    CHECK_INT(owner_receipt_take(&receipt, message, sizeof reply - 1), -EPROTO); /* cut */
    CHECK_INT(owner_receipt_take(&receipt, message, sizeof reply + 1), 1);
    CHECK_INT(owner_receipt_take(&receipt, message, 0), -EPROTO);
    CHECK_INT(owner_receipt_take(&receipt, message, 3), -EPROTO); /* one byte too many */
    owner_receipt_deinit(&receipt);
}

/* ---- what a process is, and its stacks ---- */

static int pass_examined(const struct owner_examined *examined, size_t size, struct examined *out)
{
    const struct owner_call call = {.op = OWNER_EXAMINE};
    struct owner_answer answer = {0}, got = {0};

    text_add(&answer.text, (const char *)examined, size);
    CHECK_INT(pass(&call, &answer, &got), 0);
    int r = owner_examined_read(&got, out);
    owner_answer_deinit(&got);
    owner_answer_deinit(&answer);
    return r;
}

/* A job's name is a file's, and shown in many places. */
static void examined(void)
{
    static const char *const bad[] = {"a/b", "..", "\x1b[2J", "a b", "\xc2\x9b"};
    const struct owner_examined sound = {
        .membership = {.rank = 3, .world = -1, .job = "10.0.0.1:29500", .role = "dp=1"},
        .record_addr = UINT64_MAX,
        .pid = 7,
    };
    struct owner_examined lies;
    struct examined out;

    CHECK_INT(pass_examined(&sound, sizeof sound, &out), 0);
    CHECK(out.membership.rank == 3 && out.agent.record_addr == UINT64_MAX && out.agent.pid == 7);
    CHECK_STR(out.membership.job, "10.0.0.1:29500");
    CHECK_INT(pass_examined(&sound, sizeof sound - 1, &out), -EPROTO);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        lies = sound;
        snprintf(lies.membership.job, sizeof lies.membership.job, "%s", bad[i]);
        CHECK_INT(pass_examined(&lies, sizeof lies, &out), -EPROTO);
    }
    lies = sound;
    memset(lies.membership.backend, 'x', sizeof lies.membership.backend); /* without an end */
    CHECK_INT(pass_examined(&lies, sizeof lies, &out), -EPROTO);
    lies = sound;
    lies.membership.rank = -2;
    CHECK_INT(pass_examined(&lies, sizeof lies, &out), -EPROTO);
    lies = sound;
    memset(&lies.membership.inherited, 0xff, sizeof lies.membership.inherited); /* is no bool */
    CHECK_INT(pass_examined(&lies, sizeof lies, &out), 0);
    CHECK(out.membership.inherited == 1);
}

static void blocks(void)
{
    const struct owner_call call = {.op = OWNER_STACKS, .value = STACKS_BLOCKS};
    struct owner_answer answer = {0}, out = {0};

    text_add(&answer.text, "a\n\0\x1b\0", 5);
    CHECK_INT(pass(&call, &answer, &out), 0);
    CHECK(out.text.size == 5 && !memcmp(out.text.data, "a\n\0?\0", 5));
    owner_answer_deinit(&out);
    out = (struct owner_answer){0};
    text_putc(&answer.text, 'b'); /* the last one has no end */
    CHECK_INT(pass(&call, &answer, &out), -EPROTO);
    owner_answer_deinit(&out);
    owner_answer_deinit(&answer);
}

/* ---- whose rights ---- */

#define ALL_CAPS ((UINT64_C(1) << 41) - 1)
#define NET_RAW (UINT64_C(1) << 13)

static const struct user_ns first = {.dev = 4, .ino = 1}, by_user = {4, 2, 1000},
                            by_root = {4, 3, 0}, inner = {4, 5, 7};

static struct access_target target_of(uid_t uid, gid_t gid, uint64_t caps)
{
    return (struct access_target){
        .pid = 1,
        .uid = {uid, uid, uid},
        .gid = {gid, gid, gid},
        .permitted = caps,
        .dumpable = uid || gid, /* of root's that can't be seen */
        .ns = {first},
        .nns = 1,
    };
}

static bool mapped = true; /* the target's ids have numbers in its own namespace */

static struct owner_class decide(const struct access_target *target)
{
    const struct access access = {.daemon = {.ns = first, .effective = ALL_CAPS}};
    static const gid_t groups[] = {10, 20};
    const struct class_facts facts = {groups, 2, mapped, 7, 70};
    struct owner_class class;

    memset(&class, 0xff, sizeof class);
    class_decide(&access, target, &facts, &class);
    return class;
}

static void is_own(const struct access_target *target)
{
    const struct owner_class own = {.own = true, .user = target->uid[0]}, class = decide(target);

    CHECK(!memcmp(&class, &own, sizeof own));
}

static void classes(void)
{
    struct access_target target = target_of(1000, 100, 0);
    struct owner_class class = decide(&target);

    CHECK(!class.own && class.uid == 1000 && class.gid == 100 && class.caps == 0);
    CHECK(class.ngroups == 2 && class.groups[1] == 20 && class.groups[2] == 0);
    target.permitted = NET_RAW;
    CHECK(decide(&target).caps == NET_RAW);

    target.dumpable = false;
    is_own(&target);
    target.dumpable = true;
    target.uid[2] = 0; /* setuid */
    is_own(&target);
    target.uid[2] = 1000;
    target.gid[1] = 5; /* setgid */
    is_own(&target);

    target = target_of(0, 0, ALL_CAPS);
    is_own(&target);
    target = target_of(0, 0, NET_RAW); /* a container's root, without a namespace of its own */
    class = decide(&target);
    CHECK(!class.own && class.uid == 0 && class.caps == NET_RAW);

    /* whoever made the outermost namespace may do anything in it, root's are root's */
    target = target_of(100000, 100000, ALL_CAPS);
    target.ns[0] = inner;
    target.ns[1] = by_user;
    target.ns[2] = first;
    target.nns = 3;
    class = decide(&target);
    CHECK(!class.own && class.uid == 1000 && class.caps == 0 && class.ngroups == 0);
    CHECK(class.user == 1000 && !class.ns_ino);
    target.ns[1] = by_root;
    class = decide(&target);
    CHECK(!class.own && class.user == 100000 && class.uid == 7 && class.gid == 70);
    CHECK(class.ns_ino == inner.ino && class.caps == ALL_CAPS && class.ngroups == 0);
    mapped = false;
    is_own(&target);
    mapped = true;
    target.uid[1] = 100001;
    is_own(&target);
    target.uid[1] = 100000;
    target.nns = 2; /* whose it is can't be seen */
    is_own(&target);
    target.nns = 0;
    is_own(&target);
}

/* As the kernel shows them: numbers inside, outside, how many. */
static void maps(void)
{
    static const char map[] = "         0     100000       1000\n      5000      1234          1\n";
    unsigned id = 0;

    CHECK(class_map_id(map, 100000, &id) && id == 0);
    CHECK(class_map_id(map, 100999, &id) && id == 999);
    CHECK(class_map_id(map, 1234, &id) && id == 5000);
    CHECK(!class_map_id(map, 101000, &id) && !class_map_id(map, 0, &id) &&
          !class_map_id("", 0, &id));
    CHECK(class_map_id("0 0 4294967295\n", 4294967294u, &id) && id == 4294967294u);
}

/* ---- what puts agents in ---- */

/* What becomes of an answer, with an end of a pipe in it, to be a channel, or without. */
static int act(enum acting_op op, struct acting_reply reply, bool passes, const char *words,
               int *channel, struct text *why)
{
    const struct acting acting = {.op = op, .pid = getpid()};
    int ends[2], pipes[2];

    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    CHECK_INT(pipe(pipes), 0);
    reply.why = reply.why ? reply.why : (uint32_t)strlen(words);
    CHECK_INT(owner_send(ends[0], &reply, sizeof reply, passes ? pipes[1] : -1), 0);
    if (*words)
        CHECK_INT(owner_send(ends[0], words, strlen(words), -1), 0);
    close(ends[0]);
    text_clear(why);
    int r = acting_wait(ends[1], getpid(), &acting, NULL, &reply, channel, why);
    close(ends[1]);
    close(pipes[0]);
    close(pipes[1]);
    return r;
}

static void acted(void)
{
    struct text why = TEXT_INIT;
    int channel;

    CHECK_INT(act(ACTING_CHANNEL, (struct acting_reply){.done = 1}, true, "", &channel, &why), 0);
    CHECK(channel >= 0);
    close(channel);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){0}, false,
                  "st\x1b"
                  "ays",
                  &channel, &why),
              0);
    CHECK_STR(why.data, "st?ays");
    CHECK_INT(act(ACTING_CHANNEL, (struct acting_reply){.error = -EBUSY}, false, "why", &channel,
                  &why),
              -EBUSY);
    CHECK_STR(why.data, "why");
    CHECK_INT(channel, -1);

    /* a channel that is missing, or that nobody wants */
    CHECK_INT(act(ACTING_CHANNEL, (struct acting_reply){0}, false, "", &channel, &why), -EPROTO);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){0}, true, "", &channel, &why), -EPROTO);
    CHECK_INT(act(ACTING_CHANNEL, (struct acting_reply){.error = -EIO}, true, "", &channel, &why),
              -EPROTO);
    CHECK_INT(channel, -1);
    /* numbers that can't be */
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.error = 1}, false, "", &channel, &why),
              -EPROTO);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.error = -5000}, false, "", &channel,
                  &why),
              -EPROTO);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.done = 2}, false, "", &channel, &why),
              -EPROTO);
    CHECK_INT(act(ACTING_CHANNEL, (struct acting_reply){.pid = -1}, true, "", &channel, &why),
              -EPROTO);
    CHECK_INT(channel, -1);
    /* words that don't come, or aren't as many */
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.why = 7}, false, "", &channel, &why),
              -EIO);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.why = 7}, false, "six", &channel, &why),
              -EPROTO);
    CHECK_INT(act(ACTING_TAKE_OUT, (struct acting_reply){.why = UINT32_MAX}, false, "", &channel,
                  &why),
              -EPROTO);
    text_deinit(&why);
}

int main(void)
{
    texts();
    controls();
    names();
    lies();
    examined();
    blocks();
    classes();
    maps();
    acted();
    return 0;
}
