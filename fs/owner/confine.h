/* What an owner process (owner.h) gives up beside the ids of others, since ids aren't all: one that
 * reads a container of root's may have root's. It sees an empty, read-only root directory with
 * nothing but /proc in it, read-only too; it can't execute or start another program, open a socket,
 * mount, change its rights, or send a signal. What it reads of a process, its files too, it reaches
 * below /proc/PID/. */
#pragma once

/* So much memory may it have of its own. No reading takes as much: it is against one that goes
 * wrong. */
#define CONFINE_BYTES (4ull << 30)

/* In a process with one thread that has the daemon's rights. Where these don't reach for mounting,
 * which is so of no mount of root's, its root directory stays as it is. -errno. */
int confine_files(void);
/* From now on only the system calls are left that reading takes: for all threads to come. To be
 * called once PR_SET_NO_NEW_PRIVS is set. -errno. */
int confine_calls(void);
