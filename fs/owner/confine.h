/* What an owner process (owner.h) gives up beside the ids of others, since ids aren't all: one that
 * reads a container of root's may have root's. It sees an empty, read-only root directory with
 * nothing but /proc in it, read-only too; it can't execute or start another program, open a socket,
 * mount, change its rights, or send a signal. What it reads of a process, its files too, it reaches
 * below /proc/PID/. */
#pragma once

#include <sys/types.h>

/* Who is confined. A process that runs a statement (sql_process.h) has no /proc either, and may do
 * nothing but compute, and talk by the socket that it has. */
enum confine {
    CONFINE_READING,
    CONFINE_ACTING,   /* what puts an agent into one process (acting.h) */
    CONFINE_STARTING, /* what starts these, and is CONFINE_STATEMENT but for that */
    CONFINE_STATEMENT,
};

/* So much memory may it have of its own. No reading takes as much: it is against one that goes
 * wrong. */
#define CONFINE_BYTES (4ull << 30)

#define CONFINE_SQL_BYTES (512ull << 20) /* twice what is counted (sql/heap.h), and the result */
#define CONFINE_SQL_SECONDS 15           /* of processor time; a text has 10 s */
#define CONFINE_SQL_STACK (16ull << 20)  /* bytes, as COMMAND_STACK */

/* Gives up all descriptors above `kept`, and the standard ones: who gets hold of this process
 * writes to nobody's terminal, and into nobody's log. -errno. */
int confine_descriptors(int kept);
/* In a process with one thread that has the daemon's rights. Where these don't reach for mounting,
 * which is so of no mount of root's, its root directory stays as it is. writes: of CONFINE_ACTING,
 * the process whose files below /proc may be written to. -errno. */
int confine_files(enum confine what, pid_t writes);
/* From now on only the system calls are left that it takes: for all threads to come. To be
 * called once PR_SET_NO_NEW_PRIVS is set. -errno. */
int confine_calls(enum confine what);
