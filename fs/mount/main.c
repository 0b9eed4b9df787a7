/* probefs: shows running CPython processes as files.
 *
 * The child that is to serve mounts by itself and tells its parent over a pipe once the kernel
 * has agreed with it: when the command returns with 0 the mount answers, and when something is
 * wrong it is said on the terminal and the exit status is 1. */
#include "agent/base/cleanup.h"
#include "fs/mount/check.h"
#include "fs/mount/loop.h"
#include "fs/mount/mountpoint.h"
#include "fs/mount/ops.h"
#include "fs/mount/options.h"
#include "fs/owner/owner.h"
#include "fs/owner/sql_process.h"
#include "fs/proc/may_hang.h"
#include "fs/process/registry.h"
#include "fs/remote/memory/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define COMMANDS_END_NS 5000000000u
#define HISTORY_END_NS 5000000000u

enum { EXIT_USAGE = 2 };

static void complain(const struct text *why)
{
    fprintf(stderr, "probefs: %s\n", why->data ? why->data : "failed");
}

/* The limits of the shell that started it aren't meant for a daemon. */
static void raise_limit(int resource)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(resource, &limit);
    }
}

/* Tells a supervisor that the mount serves, where one wants to know it: see sd_notify(3). */
static void tell_supervisor(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const char ready[] = "READY=1";

    if (!path || !*path || strlen(path) >= sizeof address.sun_path)
        return;
    strcpy(address.sun_path, path);
    if (*path == '@') /* a name that is in no file system */
        address.sun_path[0] = 0;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        sendto(fd, ready, strlen(ready), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

/* The mount serves: lets the parent go, and the terminal too. The session is left only now: autofs
 * lets no other process group than its own reach a mount point before something is mounted there.
 */
static void let_parent_go(void *arg)
{
    int *fd = arg;

    tell_supervisor();
    if (*fd < 0)
        return;
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    if (null > 2)
        close(null);
    if (write(*fd, "", 1) < 0) { /* the parent is gone: nobody waits */
    }
    close(*fd);
    *fd = -1;
}

/* Returns the pipe's end to report to, in the child. The parent never returns from here. */
static int go_to_background(void)
{
    int ends[2], status;
    char byte;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t child = fork();
    if (child < 0)
        return -errno;
    if (child == 0) {
        close(ends[0]);
        return ends[1];
    }
    close(ends[1]);
    ssize_t n;
    do
        n = read(ends[0], &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    /* it ended without a word on the pipe, having said why on the terminal */
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status))
        _exit(WEXITSTATUS(status));
    fprintf(stderr, "probefs: the daemon died before the mount served\n");
    _exit(1);
}

/* Commands end soon once they are told to. One that doesn't holds on to what would be freed now:
 * then the process ends with it, as it might at any moment. */
static void end_commands(struct fuse_session *session, struct mount *mount)
{
    if (commands_end(&mount->commands, COMMANDS_END_NS))
        return;
    fuse_session_unmount(session);
    _exit(0);
}

/* Ends the history, whose thread may wait for a disk that doesn't answer. */
static void end_history(struct fuse_session *session, struct mount *mount)
{
    if (history_end(mount->history, HISTORY_END_NS))
        return;
    fuse_session_unmount(session);
    _exit(0);
}

/* Whoever waits for a file system that doesn't answer holds on to what would be freed now, too. */
static void end_looks(struct fuse_session *session)
{
    if (!may_hang_any())
        return;
    fuse_session_unmount(session);
    _exit(0);
}

/* Mounts and answers until it is unmounted or told to end. */
static int serve(struct options *options, struct mount *mount)
{
    struct fuse_session *session =
        fuse_session_new(&options->fuse, &mount_ops, sizeof mount_ops, mount);
    if (!session)
        return -EINVAL;
    int r = fuse_set_signal_handlers(session);
    if (r == 0)
        r = fuse_session_mount(session, options->mountpoint);
    if (r == 0) {
        r = chdir("/") < 0 ? -errno : mount_look_up_in_parallel(session);
        if (r == 0 && mount->history)
            r = history_start(mount->history);
        if (r == 0 && options->profile)
            r = registry_sample_all(mount->registry, &options->profile_request);
        if (r == 0)
            r = loop_run(session);
        end_commands(session, mount);
        events_end(mount->events);
        end_history(session, mount);
        end_looks(session);
        fuse_session_unmount(session);
    } else {
        fprintf(stderr, "probefs: can't mount at %s%s\n", options->mountpoint,
                geteuid() ? ""
                          : "; in a container, run it with --cap-add SYS_ADMIN "
                            "--device /dev/fuse");
    }
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return r;
}

/* Opens it, and reads it where this process does. */
static int open_core(const struct options *options, const struct core_option *option,
                     unsigned number, struct mount *mount, struct text *why)
{
    struct process *process;
    struct core *core;

    int r = core_open(option->path, option->executable, options->sysroot, &core, why);
    if (r < 0)
        return r;
    r = mount->owners ? owners_read_core(mount->owners, core, number, why)
                      : core_parse(core, NULL, why);
    if (r < 0) {
        core_free(core);
        return r;
    }
    return registry_open_core(mount->registry, core, &mount->access.daemon.ns, &process, why);
}

/* Says itself what is wrong. */
static int open_cores(const struct options *options, struct mount *mount)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    int r = options->ncores > REGISTRY_CORES_MAX ? -E2BIG : 0;

    if (r < 0)
        text_printf(&why, "more than %d core files", REGISTRY_CORES_MAX);
    for (unsigned i = 0; i < options->ncores && r == 0; i++)
        r = open_core(options, &options->cores[i], i, mount, &why);
    if (r < 0)
        complain(&why);
    return r;
}

/* Says itself what is wrong. */
static int open_history(const struct options *options, struct mount *mount)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    _cleanup_free_ char *path = NULL;
    size_t n = strlen(options->mountpoint);

    if (!options->history)
        return 0;
    int r = history_find(options->history, &why, &path);
    if (r == 0 && !strncmp(path, options->mountpoint, n) && path[n] == '/') {
        text_printf(&why, "history=%s: it lies below the mount point; name another file",
                    options->history);
        r = -EINVAL;
    }
    if (r == 0)
        r = history_new(mount->registry, path, &options->history_limits, &why, &mount->history);
    if (r < 0)
        complain(&why);
    return r;
}

static int open_owners(const struct options *options, struct mount *mount)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    if (options->contain == CONTAIN_NO)
        return 0;
    int r = owners_new(options->contain, &mount->access, &mount->owners, &why);
    if (r < 0) {
        if (!options->contain_word)
            text_puts(&why, ", as it is mounted now");
        complain(&why);
        return options->contain_word ? r : 0;
    }
    registry_set_examiner(mount->registry, owners_examiner(mount->owners));
    return 0;
}

static int run(struct options *options)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct mount mount = {0};
    int report = -1;

    int r = mountpoint_prepare(options, &why);
    if (why.size)
        complain(&why);
    if (r < 0)
        return r;
    close_range(STDERR_FILENO + 1, ~0u, 0); /* whatever was open where the command was typed */
    raise_limit(RLIMIT_NOFILE);             /* one pidfd for each process shown */
    raise_limit(RLIMIT_FSIZE);              /* the agent's library, written to memory */
    if (!options->foreground) {
        r = report = go_to_background();
        if (r < 0) {
            fprintf(stderr, "probefs: can't go to the background: %s\n", strerror(-r));
            return r;
        }
    }
    clock_gettime(CLOCK_REALTIME, &mount.began);
    mount.serves = let_parent_go;
    mount.serves_arg = &report;
    r = access_init(&mount.access, options->hidepid);
    if (r == 0)
        r = registry_new(&mount.registry);
    if (r == 0)
        r = open_owners(options, &mount);
    if (r == 0)
        r = nodes_new(&mount.nodes);
    if (r == 0)
        r = events_new(mount.registry, &mount.events);
    bool begun = r == 0;
    if (begun)
        r = open_cores(options, &mount);
    if (begun && r == 0)
        r = open_history(options, &mount);
    handles_init(&mount.handles);
    drafts_init(&mount.drafts, &mount.handles.budget);
    replies_init(&mount.replies);
    commands_init(&mount.commands);
    if (!begun)
        fprintf(stderr, "probefs: can't start: %s\n", strerror(-r));
    else if (r == 0)
        r = serve(options, &mount);
    commands_deinit(&mount.commands);
    drafts_deinit(&mount.drafts);
    replies_deinit(&mount.replies);
    handles_deinit(&mount.handles);
    history_free(mount.history);
    events_free(mount.events);
    nodes_free(mount.nodes);
    registry_free(mount.registry);
    owners_free(mount.owners);
    budget_deinit(&mount.handles.budget); /* out of which replies have their bytes */
    return r;
}

/* probefs --check. The exit status. */
static int check(void)
{
    _cleanup_(text_deinit) struct text out = TEXT_INIT;
    enum check_result result;

    int r = check_run(&out, &result);
    if (r < 0) {
        fprintf(stderr, "probefs: can't check: %s\n", strerror(-r));
        return CHECK_NOTHING;
    }
    printf("Version: %s, FUSE library %s\n%s", PROBEFS_VERSION, fuse_pkgversion(), out.data);
    return result;
}

int main(int argc, char **argv)
{
    if (argc == 1 && !strcmp(argv[0], OWNER_PROCESS_NAME))
        return owner_main();
    if (argc == 1 && !strcmp(argv[0], SQL_PROCESS_NAME))
        return sql_process_main();

    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct options options;

    if (options_parse(argc, argv, &options, &text) < 0) {
        complain(&text);
        return EXIT_USAGE;
    }
    int r = 0;
    if (options.help) {
        options_help(&text);
        fputs(text.data, stdout);
    } else if (options.version) {
        printf("probefs %s\nFUSE library %s\n", PROBEFS_VERSION, fuse_pkgversion());
    } else if (options.check) {
        r = check();
    } else {
        r = run(&options) ? 1 : 0;
    }
    options_deinit(&options);
    return r;
}
