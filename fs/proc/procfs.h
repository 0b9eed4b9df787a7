/* What /proc says of a process, parsed. Source: proc(5), the kernel's fs/proc/array.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Fields of /proc/PID/stat. */
struct proc_stat {
    char state;     /* 'Z' and 'X': dead */
    unsigned flags; /* PROC_EXITING and others, include/linux/sched.h */
    pid_t ppid;
    pid_t session;
    unsigned threads;
    uint64_t utime, stime;            /* clock ticks on a processor, in user and in kernel mode */
    uint64_t start_time;              /* clock ticks since boot */
    uint64_t vsize;                   /* bytes */
    uint64_t rss;                     /* pages */
    uint64_t start_code, start_stack; /* new with each exec; 0 or 1 where the daemon may not look */
    int processor;                    /* that it ran on last; -1: not said */
};

/* Parses the text of a stat file; comm may hold anything, brackets and spaces too. */
bool proc_stat_parse(const char *text, struct proc_stat *out);
/* -ESRCH: no such process; -EACCES. */
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* Bits of a task's flags: it is in exit(2), with a signal that killed it or without. */
#define PROC_EXITING 0x4u
#define PROC_SIGNALED 0x400u

/* Whether a process is at its end: it has been killed, or ends, or has ended. Its threads lose
 * their memory one after the other, and only after that is its end to be seen by others. */
bool proc_ending(pid_t pid);

/* Whether an error is for want of descriptors, memory or time of the daemon's: it says nothing of
 * the process. */
bool proc_lacks_means(int error);
/* Reads /proc/PID/FILE, at most cap - 1 bytes, and ends it with a NUL. Returns the number of
 * bytes; -ESRCH: no such process; -EACCES, -EPERM. */
ssize_t proc_read(pid_t pid, const char *file, char *buf, size_t cap);
/* Reads /proc/PID/task/TID/FILE in that way. */
ssize_t proc_read_task(pid_t pid, pid_t tid, const char *file, char *buf, size_t cap);

/* The command line, its words separated by spaces, with a NUL at its end; one that doesn't fit ends
 * in "...". Returns the number of bytes, 0 for none; or what proc_read() returns. */
ssize_t proc_command(pid_t pid, char *line, size_t cap);
/* Makes that of n bytes as /proc/PID/cmdline has them, of which at most cap - 1 were read; n below
 * 1 is returned as it is. */
ssize_t command_words(char *line, ssize_t n, size_t cap);
/* Reads where /proc/PID/NAME points to, without a NUL. The number of bytes; -ESRCH, -EACCES. */
ssize_t proc_link(pid_t pid, const char *name, char *path, size_t cap);
/* When a process was started, in seconds since 1970, and for how long it has been there.
 * start_time: of its stat file. */
void proc_started(uint64_t start_time, double *started, double *uptime);

/* Calls each() for the threads of a process, in no order; tasks: a descriptor of /proc/PID/task,
 * which stays ours. What it returns, if not 0, ends the walk and is returned. -ESRCH, -EACCES,
 * -EMFILE. */
int proc_each_task(pid_t pid, int (*each)(void *arg, int tasks, pid_t tid), void *arg);

/* The number in a file below /proc/sys; -1: it can't be read, or has none. */
int proc_sys_number(const char *path);

/* The text behind "Name:\t" in a status file, up to the line's end; NULL if there is none. */
const char *proc_status_field(const char *status, const char *name);
/* The same of a set of signals: bit N - 1 is signal N. 0 if there is none. */
uint64_t proc_status_signals(const char *status, const char *name);
/* Whether a thread is one of that process. */
bool proc_has_thread(pid_t pid, pid_t tid);
/* Which thread traces another; 0: none, or that one is gone. */
pid_t proc_tracer(pid_t tid);
/* The line "Uid" or "Gid": real, effective, saved, and that of file accesses. */
bool proc_status_ids(const char *status, const char *name, unsigned ids[4]);
/* The supplementary groups. How many; -E2BIG: more than max, or the text ends before its line does;
 * -ENOENT: it has no such line. */
ssize_t proc_status_groups(const char *status, gid_t *groups, size_t max);

/* Fields of /proc/PID/statm, in pages: all 0 for a zombie or a kernel thread. */
struct proc_statm {
    uint64_t size; /* of the address space */
    uint64_t text; /* of the executable's code: changes with most execs */
};

/* A descriptor to read it from again and again, owned by the caller. It stays with the process: a
 * successor under the same pid is not read from it. -ESRCH, -EMFILE. */
int proc_statm_open(pid_t pid);
/* -ESRCH: the process is gone. A sixth of the price of proc_stat_read(). */
int proc_statm_read(int fd, struct proc_statm *out);

/* Whether fd may be kept open for long: descriptors enough are left for reading. */
#define DESCRIPTORS_LEFT 256
bool descriptor_spare(int fd);

/* Parses a decimal number as /proc spells its names: no sign, no leading zero, at most 2^31 - 1. */
bool number_parse(const char *s, unsigned *out);
