/* A core file: a process as it was at one moment, in a file (core(5)).
 *
 * Its segments (PT_LOAD) hold the pages that the dumper wrote; which files were mapped where, the
 * threads with their registers, and why it was dumped, stand in its notes. Dumpers leave out what a
 * mapping has unchanged from its file: that is read from the file, if that is the one that was
 * mapped: it has to carry the build id that the dumped head of the image has. A core file may come
 * from anybody, and name any file: only ELF files are read, and only such as the core file's owner
 * may read.
 *
 * Nothing of it changes once it is open, but by whoever writes to the files. */
#pragma once

#include "agent/arch/arch.h"
#include "fs/base/text.h"
#include "fs/proc/lwp.h"
#include "fs/proc/maps.h"

#include <sys/stat.h>

#define CORE_NOTES_MAX (1u << 18)
#define CORE_FILES_BYTES_MAX (64u << 20) /* of the note that lists the mapped files */
#define CORE_OBJECTS_MAX 1024            /* mapped files that are opened */

struct core_thread {
    pid_t tid; /* as the dumper knew it */
    struct registers regs;
    uint64_t user_ticks, system_ticks; /* sysconf(_SC_CLK_TCK); 0: not told, as by gcore */
};

/* A file that was mapped. */
struct core_object {
    char *path;    /* as the core file has it, without " (deleted)" */
    uint64_t base; /* where its first page was mapped; 0: it wasn't */
    int fd;        /* negative: it isn't read, `why` says why not */
    bool is_data;  /* it has no program code: it isn't missed */
    char why[96];
};

/* What isn't in maps of a mapping. */
struct core_mapping {
    uint64_t dumped; /* bytes of it, from its start, that the core file is to have ... */
    uint64_t offset; /* ... from this offset on */
    ssize_t object;  /* the file that it maps; -1: none */
};

struct core {
    char *path; /* absolute */
    char *name; /* in the tree */
    char *root; /* absolute; below it lie the program's files: / unless sysroot= says otherwise */
    char *program; /* the executable's path, where it was said; NULL: as the core file names it */
    int fd;
    struct stat stat; /* st_size: unpacked */
    uint64_t wanted;  /* bytes that it should have: more than stat.st_size if it was truncated */

    pid_t pid, ppid;
    uid_t uid;
    gid_t gid;
    char comm[16];
    char command[81]; /* how its command line begins, as the dumper tells */
    struct core_words {
        uint64_t start, end;  /* in memory; 0: not found */
    } arguments, environment; /* with which it was started */
    int signal;               /* that it died of; 0: it was dumped alive */
    int code;                 /* si_code of that; 0: not known */
    uint64_t address;         /* that the instruction wanted, where has_address */
    bool has_address;
    pid_t faulted;        /* the thread that got the signal; without one 0 */
    uint64_t entry, vdso; /* of the executable; 0: not known */

    struct core_thread *threads; /* ascending by tid */
    struct lwp_list lwps;        /* the same, as the kernel told of them */
    struct maps maps;
    struct core_mapping *mappings; /* of each of maps */
    struct core_object *objects;
    size_t nobjects;
    ssize_t executable; /* among the objects; -1: not known */

    size_t threads_alloc, maps_alloc, mappings_alloc, objects_alloc;
};

/* Who opens files where the core file is read by a process that has no rights to. */
struct core_opener {
    /* Opens what core_open_named() does; without a path, what core_unpack_space() does. A
     * descriptor, the caller's; -errno. */
    int (*open)(void *arg, const char *path, bool is_executable);
    void *arg;
};

/* Opens a core file, and reads nothing of it. executable: the program that dumped it; NULL: as the
 * core file names it. sysroot: a directory below which its files lie; NULL: none. Fails with
 * -errno, and why says what is wrong: -EINVAL, no regular file; what open(2) fails with; -ENOMEM.
 */
int core_open(const char *path, const char *executable, const char *sysroot, struct core **out,
              struct text *why);
void core_free(struct core *core); /* NULL is fine */
/* Reads what is in it, once; opener: who opens files; NULL: this process. Fails as core_open(),
 * with -EINVAL where it is no core file of a process of this machine. */
int core_parse(struct core *core, const struct core_opener *opener, struct text *why);
/* Makes what core_open() does of a file that somebody else has opened, and takes over the
 * descriptor, also on failure. -ENOMEM. */
int core_take(const char *path, int fd, const struct stat *stat, struct core **out);
/* Opens a file that whoever parses it wants, with the rights of the core file's owner: it names
 * what it likes. is_executable: it is the program. A descriptor, which stays the core's; -errno: of
 * open(2), -ENODATA: no regular file, -EMFILE: more than CORE_OBJECTS_MAX. The same path again
 * gives the same; known: nothing else is opened any more (-ENOENT). */
int core_open_named(struct core *core, const char *path, bool is_executable, bool known);

/* Copies memory. False: not all of it is to be had. */
bool core_read(const struct core *core, uint64_t addr, void *buf, size_t len);

/* The threads. -ENOMEM. The caller owns *out (lwp_list_deinit). */
int core_lwps(const struct core *core, struct lwp_list *out);
/* What is mapped. -ENOMEM. The caller owns *out (maps_deinit), whose paths are the core's. */
int core_maps(const struct core *core, struct maps *out);
const struct core_thread *core_thread(const struct core *core, pid_t tid);
/* The thread whose pthread_t that is; NULL: none. */
const struct core_thread *core_thread_of(const struct core *core, uint64_t thread_id);

/* A descriptor, for the caller to close, of the file that is mapped at start, which is the one that
 * was mapped. -ENOENT: it isn't read. */
int core_open_file(const struct core *core, uint64_t start);

/* core_open_file() of the program's own file. */
int core_open_executable(const struct core *core);
/* Whether the program's file is what is mapped at start. */
bool core_is_executable(const struct core *core, uint64_t start);

/* What proc_command() gives of a living process; and what its environ has: the bytes, with a NUL
 * behind them. At most cap - 1 bytes; 0: it isn't there. */
ssize_t core_command(const struct core *core, char *line, size_t cap);
ssize_t core_environment(const struct core *core, char *block, size_t cap);

/* Names the programs and libraries that were mapped and can't be read, and why; their number. */
size_t core_missing(const struct core *core, struct text *out);
/* "SIGSEGV at 0x10 (nothing is mapped there)". */
void core_add_signal(const struct core *core, struct text *out);
