/* Which mapped files are libraries that an earlier attach put there, and the path by which the
 * process itself opened them. */
#include "fs/inject/script/files.h"
#include "tests/unit/check.h"

int main(void)
{
    char path[SCRIPT_FILES_PATH_MAX], small[16];

    CHECK(script_files_path("/tmp/.probefs-12-34-ab/probe-agent0.so", path, sizeof path));
    CHECK_STR(path, "/tmp/.probefs-12-34-ab/probe-agent0.so");
    CHECK(script_files_path("/srv/root/var/tmp/.probefs-1-2-c/probe-agent1.so (deleted)", path,
                            sizeof path));
    CHECK_STR(path, "/var/tmp/.probefs-1-2-c/probe-agent1.so");
    CHECK(script_files_path("/.probefs-1-2-c/probe-agent2.so (deleted)", path, sizeof path));
    CHECK_STR(path, "/dev/shm/.probefs-1-2-c/probe-agent2.so");

    CHECK(!script_files_path("/tmp/.probefs-1-2-c/probe-agent0.so", small, sizeof small));
    CHECK(!script_files_path("", path, sizeof path));
    CHECK(!script_files_path("/tmp/probe-agent0.so", path, sizeof path));
    CHECK(!script_files_path("/tmp/.probefs-1-2-c/probe-agent3.so", path, sizeof path));
    CHECK(!script_files_path("/tmp/.probefs-1-2-c/probe-agent0.so.old", path, sizeof path));
    CHECK(!script_files_path("/tmp/.probefs-1'\nx/probe-agent0.so", path, sizeof path));
    return 0;
}
