#include "fs/owner/core_file.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/remote/memory/core_unpack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The first time from one message to the next, and unpacking takes as long as it takes; later, for
 * all of it. */
#define SAID_NS 60000000000u

/* ---- in the mount's process ---- */

static int give(const struct core_file *file, int control)
{
    _cleanup_free_ struct core_given *given = calloc(1, sizeof *given);

    if (!given)
        return -ENOMEM;
    given->stat = file->core->stat;
    snprintf(given->path, sizeof given->path, "%s", file->core->path);
    return owner_send(control, given, sizeof *given, file->core->fd);
}

/* Opens what is asked for. A descriptor that stays whose it is, or -errno. */
static int open_asked(struct core_file *file, const struct core_said *said, int *space)
{
    if (said->what != CORE_SAID_SPACE)
        return core_open_named(file->core, said->text, said->what == CORE_SAID_EXECUTABLE,
                               file->known);
    if (*space < 0 && !file->known)
        *space = core_unpack_space();
    return *space;
}

/* Takes what was unpacked for the core file: that is not done again. */
static int take_space(struct core *core, int *space)
{
    struct stat st;

    if (*space < 0)
        return 0;
    if (fstat(*space, &st) < 0)
        return -errno;
    close(core->fd);
    core->fd = steal_fd(*space);
    core->stat.st_size = st.st_size;
    return 0;
}

/* What the process has come to. */
static int conclude(struct core_file *file, const struct core_said *said, int *space)
{
    text_clear(&file->why);
    text_puts(&file->why, said->text);
    owner_drop_controls(&file->why, -1);
    if (said->error)
        return said->error < 0 && said->error > -4096 ? said->error : -EPROTO;
    if (file->known)
        return 0;
    if (said->pid <= 0 || said->pid >= TARGET_CORE_PID)
        return -EPROTO;
    file->core->pid = said->pid;
    int r = take_space(file->core, space);
    file->known = r == 0;
    return r;
}

static int receive(int control, pid_t pid, uint64_t until, struct core_said *said)
{
    int passed;

    int r = child_await(control, pid, until);
    if (r < 0)
        return r;
    r = owner_receive(control, said, sizeof *said, &passed);
    if (passed >= 0)
        close(passed);
    said->text[sizeof said->text - 1] = 0;
    return r;
}

int core_file_serve(struct core_file *file, int control, pid_t pid)
{
    _cleanup_free_ struct core_said *said = malloc(sizeof *said);
    _cleanup_close_ int space = -1;
    uint64_t until = monotonic_ns() + SAID_NS;

    int r = said ? give(file, control) : -ENOMEM;
    for (unsigned n = 0; r == 0; n++) {
        r = receive(control, pid, until, said);
        if (r == 0 && said->what == CORE_SAID_READ)
            return conclude(file, said, &space);
        if (r == 0 && n == CORE_ASKED_MAX)
            r = -EPROTO;
        if (r < 0)
            break;
        int fd = open_asked(file, said, &space);
        const int32_t error = fd < 0 ? fd : 0;
        r = owner_send(control, &error, sizeof error, fd);
        if (!file->known)
            until = space >= 0 ? UINT64_MAX : monotonic_ns() + SAID_NS;
    }
    return r;
}

/* ---- in the process that reads it ---- */

struct asking {
    int control;
    struct core_said said;
};

static int ask(void *arg, const char *path, bool is_executable)
{
    struct asking *asking = arg;
    struct core_said *said = &asking->said;
    int32_t error;
    int fd;

    said->what = !path ? CORE_SAID_SPACE : is_executable ? CORE_SAID_EXECUTABLE : CORE_SAID_FILE;
    if (path && strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    snprintf(said->text, sizeof said->text, "%s", path ? path : "");
    int r = owner_send(asking->control, said, sizeof *said, -1);
    if (r == 0)
        r = owner_receive(asking->control, &error, sizeof error, &fd);
    return r < 0 ? r : error < 0 ? error : fd;
}

int core_file_receive(int control, struct core **out)
{
    const struct rlimit unpacked = {CORE_UNPACKED_MAX, CORE_UNPACKED_MAX};
    _cleanup_free_ struct core_given *given = malloc(sizeof *given);
    int fd;

    if (!given)
        return -ENOMEM;
    (void)setrlimit(RLIMIT_FSIZE, &unpacked); /* else it is less already */
    int r = owner_receive(control, given, sizeof *given, &fd);
    if (r < 0 || fd < 0)
        return -EPROTO;
    core_unpack_prepare(fd);
    return core_take(given->path, fd, &given->stat, out);
}

int core_file_read(int control, struct core *core, struct registry *registry,
                   const struct user_ns *ns, struct process **out)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    _cleanup_free_ struct asking *asking = calloc(1, sizeof *asking);

    if (!asking) {
        core_free(core);
        return -ENOMEM;
    }
    asking->control = control;
    int r = core_parse(core, &(struct core_opener){ask, asking}, &why);
    if (r == 0)
        r = registry_open_core(registry, core, ns, out, &why);
    else
        core_free(core);
    struct core_said *said = &asking->said;
    said->what = CORE_SAID_READ;
    said->error = r;
    said->pid = r == 0 ? process_number(*out) : 0;
    snprintf(said->text, sizeof said->text, "%s", why.data ? why.data : "");
    int sent = owner_send(control, said, sizeof *said, -1);
    return r < 0 ? r : sent;
}
