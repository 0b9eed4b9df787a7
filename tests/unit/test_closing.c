#include "fs/proc/closing.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A stat file of proc(5) with these flags and this exit code. */
static enum closing kind(const char *comm, unsigned flags, unsigned code)
{
    char text[512];
    int n = snprintf(text, sizeof text, "7 (%s) R 1 7 7 0 -1 %u", comm, flags);
    for (int field = 10; field < 52; field++)
        n += snprintf(text + n, sizeof text - (size_t)n, " 0");
    snprintf(text + n, sizeof text - (size_t)n, " %u\n", code);
    return closing_parse(text);
}

int main(void)
{
    CHECK_INT(kind("sh", 0x400000, 0), CLOSING_ASKED);
    CHECK_INT(kind("sh", 0x400004, 0), CLOSING_EXITED);
    CHECK_INT(kind("sh", 0x400004, 1 << 8), CLOSING_EXITED); /* exit(1) */
    CHECK_INT(kind("sh", 0x400004, 9), CLOSING_KILLED);
    CHECK_INT(kind("sh", 0x400004, 0x80 | 11), CLOSING_KILLED); /* with a core dump */
    CHECK_INT(kind("a) R 1 1", 0x400004, 2), CLOSING_KILLED);
    CHECK_INT(closing_parse(""), CLOSING_ASKED);
    CHECK_INT(closing_parse("7 (sh) R 1"), CLOSING_ASKED);

    uint64_t inode = 0;
    CHECK(closing_parse_inode("pos:\t0\nflags:\t02\nmnt_id:\t29\nino:\t18446744073709551615\n",
                              &inode));
    CHECK(inode == UINT64_MAX);
    CHECK(!closing_parse_inode("pos:\t0\nflags:\t02\n", &inode)); /* before Linux 5.14 */

    /* this process, and a child of it */
    CHECK_INT(closing_kind(getpid()), CLOSING_ASKED);
    CHECK_INT(closing_kind(0), CLOSING_ASKED);
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    CHECK(closing_held(getpid(), st.st_ino));
    CHECK(!closing_held(getpid(), st.st_ino ^ 0x123456789abcdefu));
    CHECK(!closing_held(0, st.st_ino));
    close(fd);
    CHECK(!closing_held(getpid(), st.st_ino));
    return 0;
}
