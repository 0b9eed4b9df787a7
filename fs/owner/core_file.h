/* A core file that a process of its own reads: an owner process (owner.h) without any rights, which
 * gets the open file and nothing else. Before it greets it reads the file in, and asks for the
 * files that were mapped, by the paths that the core file has. The mount's process opens these with
 * the rights of the core file's owner (core_open_named()), and reads nothing of any of them. Only
 * the first such process is given files that weren't asked for before: those that come after a
 * crash get the same. */
#pragma once

#include "fs/owner/message.h"
#include "fs/process/registry.h"
#include "fs/remote/memory/core.h"

#include <limits.h>

#define CORE_ASKED_MAX (CORE_OBJECTS_MAX + 1) /* of one process: files, and an empty one */

/* The first message there, with the core file. All bytes are defined. */
struct core_given {
    struct stat stat;
    char path[PATH_MAX];
};

/* What comes back. To the first three there is an answer: an int32_t, 0 with a descriptor or
 * -errno. */
struct core_said {
    uint32_t what;
#define CORE_SAID_FILE 1
#define CORE_SAID_EXECUTABLE 2
#define CORE_SAID_SPACE 3
#define CORE_SAID_READ 4
    int32_t error;              /* of CORE_SAID_READ ... */
    int32_t pid;                /* ... without one: of the process that was dumped */
    char text[OWNER_PIECE / 4]; /* a path; of CORE_SAID_READ why it can't be read */
};

/* One of the mount's. */
struct core_file {
    struct core *core; /* the registry's, of core_open() */
    bool known;        /* it was read in: what files it names is known */
    struct text why;   /* why it can't be read */
};

/* Gives it to the process that has just been started for it, and answers that until it has read it
 * in. The number of the process that was dumped is put down in the core. -errno, and file->why may
 * say more. */
int core_file_serve(struct core_file *file, int control, pid_t pid);

/* In such a process, while it can still open files: receives it. -errno. */
int core_file_receive(int control, struct core **out);
/* Once it is confined: reads it in, and shows it. Takes over the core. -errno. */
int core_file_read(int control, struct core *core, struct registry *registry,
                   const struct user_ns *ns, struct process **out);
