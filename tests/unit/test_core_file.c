/* What the mount's process does with what the process says that reads a core file. */
#include "fs/owner/core_file.h"

#include "agent/base/cleanup.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static char path[] = "/tmp/probefs-core-file-XXXXXX";
static int ends[2]; /* the mount's, and the other one */
static struct core_said said;

/* No more of these than a socket takes without waiting. */
static void say(uint32_t what, int error, int pid, const char *text)
{
    said = (struct core_said){.what = what, .error = error, .pid = pid};
    snprintf(said.text, sizeof said.text, "%s", text);
    CHECK_INT(owner_send(ends[1], &said, sizeof said, -1), 0);
}

/* The answer to it; its descriptor is closed. */
static int answered(ino_t *file)
{
    int32_t error = 1;
    struct stat st;

    _cleanup_close_ int fd = -1;
    CHECK_INT(owner_receive(ends[1], &error, sizeof error, &fd), 0);
    CHECK(error <= 0 && (fd >= 0) == !error);
    CHECK(fd < 0 || fstat(fd, &st) == 0);
    *file = fd < 0 ? 0 : st.st_ino;
    return error;
}

static void given(ino_t want)
{
    static struct core_given given;
    struct stat st;

    _cleanup_close_ int fd = -1;
    CHECK_INT(owner_receive(ends[1], &given, sizeof given, &fd), 0);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == want);
    CHECK_STR(given.path, path);
}

static void begin(struct core_file *file, ino_t *core)
{
    struct text why = TEXT_INIT;

    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *file = (struct core_file){.why = TEXT_INIT};
    CHECK_INT(core_open(path, NULL, NULL, &file->core, &why), 0);
    *core = file->core->stat.st_ino;
}

static void end(struct core_file *file)
{
    core_free(file->core);
    text_deinit(&file->why);
    close(ends[0]);
    close(ends[1]);
}

static int serve(struct core_file *file) { return core_file_serve(file, ends[0], getpid()); }

static void test_files(void)
{
    struct core_file file;
    struct stat program;
    ino_t core, first, second;

    CHECK_INT(stat("/proc/self/exe", &program), 0);
    char self[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    begin(&file, &core);
    say(CORE_SAID_FILE, 0, 0, self);
    say(CORE_SAID_FILE, 0, 0, "nowhere/at/all");
    say(CORE_SAID_FILE, 0, 0, "/dev/null");
    say(CORE_SAID_SPACE, 0, 0, "");
    say(CORE_SAID_READ, 0, 42, "");
    CHECK_INT(serve(&file), 0);
    given(core);
    CHECK_INT(answered(&first), 0);
    CHECK(first == program.st_ino);
    CHECK_INT(answered(&first), -ENOENT);
    CHECK_INT(answered(&first), -ENODATA);
    CHECK_INT(answered(&core), 0); /* from now on the core file is what was unpacked */
    CHECK_INT(file.core->pid, 42);

    /* the next one that reads it gets the same, and nothing else */
    say(CORE_SAID_FILE, 0, 0, self);
    say(CORE_SAID_FILE, 0, 0, "/bin/sh");
    say(CORE_SAID_SPACE, 0, 0, "");
    say(CORE_SAID_READ, 0, 43, "");
    CHECK_INT(serve(&file), 0);
    given(core);
    CHECK_INT(answered(&first), 0);
    CHECK(first == program.st_ino);
    CHECK_INT(answered(&second), -ENOENT);
    CHECK(answered(&second) < 0);
    CHECK_INT(file.core->pid, 42);
    end(&file);
}

static void lies(uint32_t what, int error, int pid, int want)
{
    struct core_file file;
    ino_t core;

    begin(&file, &core);
    say(what, error, pid, "it\x1b[2J");
    CHECK_INT(serve(&file), want);
    if (error)
        CHECK_STR(file.why.data, "it?[2J");
    CHECK(!file.known && !file.core->pid);
    end(&file);
}

/* Asks for one more than it may. */
static void *ask_on(void *arg)
{
    ino_t *core = arg, file;
    char name[32];

    given(*core);
    for (int i = 0; i < CORE_OBJECTS_MAX + 1; i++) {
        snprintf(name, sizeof name, "/nowhere/%d", i);
        say(CORE_SAID_FILE, 0, 0, name);
        CHECK_INT(answered(&file), i < CORE_OBJECTS_MAX ? -ENOENT : -EMFILE);
    }
    say(CORE_SAID_FILE, 0, 0, "/nowhere/0");
    return NULL;
}

static void test_many(void)
{
    struct core_file file;
    pthread_t thread;
    ino_t core;

    begin(&file, &core);
    CHECK_INT(pthread_create(&thread, NULL, ask_on, &core), 0);
    CHECK_INT(serve(&file), -EPROTO);
    pthread_join(thread, NULL);
    end(&file);
}

/* A path without an end, a message of another size, and nothing at all. */
static void test_garbage(void)
{
    struct core_file file;
    ino_t core;

    begin(&file, &core);
    memset(said.text, 'x', sizeof said.text);
    said.what = CORE_SAID_FILE;
    CHECK_INT(owner_send(ends[1], &said, sizeof said, -1), 0);
    CHECK_INT(owner_send(ends[1], "garbage", 7, -1), 0);
    CHECK_INT(serve(&file), -EPROTO);
    given(core);
    CHECK_INT(answered(&core), -ENOENT);
    shutdown(ends[1], SHUT_WR);
    CHECK_INT(serve(&file), -EIO);
    end(&file);
}

int main(void)
{
    int fd = mkstemp(path);

    CHECK(fd >= 0 && close(fd) == 0);
    test_files();
    lies(CORE_SAID_READ, 0, 0, -EPROTO);
    lies(CORE_SAID_READ, 0, TARGET_CORE_PID, -EPROTO);
    lies(CORE_SAID_READ, 42, 1, -EPROTO);
    lies(CORE_SAID_READ, -4242, 1, -EPROTO);
    lies(CORE_SAID_READ, -EINVAL, 1, -EINVAL);
    test_many();
    test_garbage();
    unlink(path);
    return 0;
}
