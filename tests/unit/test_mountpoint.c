#include "agent/base/cleanup.h"
#include "fs/mount/mountpoint.h"
#include "tests/unit/check.h"

#include <errno.h>

static const char mounts[] =
    "/dev/vda / ext4 rw,relatime 0 0\n"
    "tmpfs /probe tmpfs rw,relatime,size=1k 0 0\n"
    "probefs /probe fuse.probefs rw,nosuid,user_id=1000,group_id=7 0 0\n"
    "host:/x\\040y /with\\040space\\134 fuse.sshfs rw,user_id=0,group_id=0 0 0\n"
    "bad line\n"
    "none\n";

static void test_mount_info(void)
{
    char file[] = "/tmp/probefs-mounts-XXXXXX";
    struct mount_info info;

    int fd = mkstemp(file);
    CHECK(fd >= 0 && write(fd, mounts, strlen(mounts)) == (ssize_t)strlen(mounts));
    close(fd);
    CHECK(mount_info_find(file, "/probe", &info)); /* the one on top */
    CHECK_STR(info.type, "fuse.probefs");
    CHECK_INT(info.user, 1000);
    CHECK(mount_info_find(file, "/with space\\", &info));
    CHECK_STR(info.type, "fuse.sshfs");
    CHECK(mount_info_find(file, "/", &info));
    CHECK_INT(info.user, (uid_t)-1);
    CHECK(!mount_info_find(file, "/prob", &info));
    unlink(file);
    CHECK(!mount_info_find(file, "/probe", &info));
}

static int parse(const char *line, struct options *out, struct text *why)
{
    char copy[256], *argv[16], *save = NULL;
    int argc = 0;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    argv[argc] = NULL;
    text_clear(why);
    return options_parse(argc, argv, out, why);
}

static void test_options(void)
{
    struct text why = TEXT_INIT;
    struct options o;

    CHECK_INT(parse("probefs /probe", &o, &why), 0);
    CHECK_STR(o.mountpoint, "/probe");
    CHECK(!o.foreground && !o.allow_other && !o.nonempty);
    CHECK_INT(o.hidepid, HIDEPID_INVISIBLE);
    options_deinit(&o);

    CHECK_INT(parse("probefs -f /probe -o hidepid=1,allow_other -o nonempty,ro", &o, &why), 0);
    CHECK(o.foreground && o.allow_other && o.nonempty);
    CHECK_INT(o.hidepid, HIDEPID_CONTENTS);
    bool ro = false, other = false;
    for (int i = 0; i < o.fuse.argc; i++) {
        ro |= strstr(o.fuse.argv[i], "ro") && !strstr(o.fuse.argv[i], "probefs");
        other |= strstr(o.fuse.argv[i], "allow_other") != NULL;
        CHECK(!strstr(o.fuse.argv[i], "hidepid"));
    }
    CHECK(ro && other); /* left for libfuse */
    options_deinit(&o);

    CHECK_INT(parse("probefs --help", &o, &why), 0);
    CHECK(o.help);
    options_deinit(&o);
    CHECK_INT(parse("probefs -V", &o, &why), 0);
    CHECK(o.version);
    options_deinit(&o);

    CHECK_INT(parse("probefs", &o, &why), -EINVAL);
    CHECK(strstr(why.data, "mount point"));
    CHECK_INT(parse("probefs /a /b", &o, &why), -EINVAL);
    CHECK(strstr(why.data, "/a and /b"));
    CHECK_INT(parse("probefs -x /a", &o, &why), -EINVAL);
    CHECK(strstr(why.data, "-x"));
    CHECK_INT(parse("probefs -o hidepid=3 /a", &o, &why), -EINVAL);
    CHECK(strstr(why.data, "hidepid"));
    CHECK_INT(parse("probefs -o hidepid=no /a", &o, &why), -EINVAL);
    text_deinit(&why);
}

/* The words name what is wrong. */
static void refuses(const char *path, int error, const char *word)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct options o = {.mountpoint = strdup(path)};

    CHECK_INT(mountpoint_prepare(&o, &why), error);
    CHECK(why.data && strstr(why.data, word));
    CHECK(strstr(why.data, path));
    free(o.mountpoint);
}

int main(void)
{
    test_mount_info();
    test_options();
    refuses("/no/such/directory", -ENOENT, "mkdir");
    refuses("/proc/self/status/x", -ENOTDIR, "");
    refuses("/proc/uptime", -ENOTDIR, "not a directory");
    refuses("/proc", -EBUSY, "mounted on it");
    refuses("/usr", -ENOTEMPTY, "nonempty");
    return 0;
}
