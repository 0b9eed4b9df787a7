/* Files of /proc, in which a process has chosen its name and its links: what the kernel says behind
 * a name is found whatever that is, and any other bytes do no harm. */
#include "fs/access/access.h"
#include "fs/proc/blocking.h"
#include "fs/proc/closing.h"
#include "fs/proc/descriptors.h"
#include "fs/proc/file_locks.h"
#include "fs/proc/procfs.h"
#include "fs/proc/sockets.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_ 15 /* TASK_COMM_LEN - 1 */
#define GROUPS 3

static void expect(bool right)
{
    if (!right)
        abort();
}

/* As the kernel escapes it in status (proc_task_name(), fs/proc/array.c). */
static void escape(const char *name, char *out)
{
    for (; *name; name++) {
        if (*name == '\n' || *name == '\\')
            *out++ = '\\';
        *out++ = *name == '\n' ? 'n' : *name;
    }
    *out = 0;
}

static void with_name(const uint8_t *data, size_t size)
{
    char name[NAME_MAX_ + 1] = "", escaped[2 * NAME_MAX_ + 1], text[512];
    struct access_caller caller = {.fsuid = 4, .fsgid = 8, .effective = 1};
    struct proc_stat stat;
    gid_t groups[GROUPS];
    unsigned ids[4];

    memcpy(name, data, size < NAME_MAX_ ? size : NAME_MAX_);
    escape(name, escaped);
    snprintf(text, sizeof text,
             "Name:\t%s\nTgid:\t77\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10 20 30 \n"
             "NoNewPrivs:\t1\nSeccomp:\t2\n",
             escaped);
    expect(proc_status_ids(text, "Uid", ids) && ids[0] == 1 && ids[3] == 4);
    expect(proc_status_ids(text, "Gid", ids) && ids[0] == 5 && ids[3] == 8);
    expect(proc_status_groups(text, groups, GROUPS) == 3 && groups[2] == 30);
    expect(proc_status_groups(text, groups, 2) == -E2BIG);
    access_complete(&caller, text);
    expect(caller.pid == 77 && caller.ruid == 1 && caller.euid == 2 && caller.rgid == 5 &&
           caller.sandbox == (SANDBOX_NO_NEW_PRIVS | SANDBOX_SECCOMP) && caller.effective == 1);

    snprintf(text, sizeof text, "7 (%s) S 5 7 8 0 -1 64 1 2 3 4 5 6 7 8 20 0 12 0 777 1 99 1 2 3 4",
             name);
    expect(proc_stat_parse(text, &stat) && stat.state == 'S' && stat.ppid == 5 &&
           stat.session == 8 && stat.start_time == 777);
    expect(closing_parse(text) == CLOSING_ASKED);
}

static void any(const char *text)
{
    struct access_caller caller = {.effective = 1};
    struct descriptor descriptor;
    struct tcp_socket socket;
    struct blocking blocking;
    struct file_lock lock;
    struct proc_stat stat;
    gid_t groups[GROUPS];
    uint64_t inode;
    unsigned number;

    access_complete(&caller, text);
    expect(proc_status_groups(text, groups, GROUPS) <= GROUPS);
    if (proc_stat_parse(text, &stat))
        expect(strchr(text, ')') != NULL);
    (void)closing_parse(text);
    (void)closing_parse_inode(text, &inode);
    if (!blocking_parse(text, &blocking))
        expect(blocking.kind == BLOCKING_UNKNOWN);
    descriptor_parse(text, &descriptor);
    expect(descriptor.kind == DESCRIPTOR_OTHER || strstr(text, ":["));
    (void)file_lock_parse(text, &lock);
    (void)file_lock_find(text, 7, false, 1, &lock);
    if (tcp_socket_parse(text, &socket)) {
        char end[TCP_END_TEXT];
        tcp_end_print(&socket.local, end);
        tcp_end_print(&socket.remote, end);
    }
    if (number_parse(text, &number))
        expect(number <= INT32_MAX && (number == 0) == (*text == '0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* to the byte, for AddressSanitizer */

    memcpy(text, data, size);
    text[size] = 0;
    with_name(data, size);
    any(text);
    free(text);
    return 0;
}
