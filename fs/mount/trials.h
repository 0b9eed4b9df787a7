/* What the kernel lets this user do, found out by doing it: to a process made for that, and in
 * namespaces that end with it. */
#pragma once

/* What was tried: 0, or the -errno with which it was refused. */
struct trials {
    int mount;            /* mount(2) of FUSE, in a mount namespace of its own; for root */
    int read;             /* process_vm_readv(2) */
    int act;              /* ptrace(2): stopping a thread, writing into its memory */
    int perf;             /* perf_event_open(2) of another process's processor time */
    int registers_perf;   /* a debug register by perf_event_open(2), which sends SIGTRAP */
    int registers_ptrace; /* a debug register by ptrace(2) */
};

/* Takes some milliseconds; nothing of it is left. -errno: no process could be made. */
int trials_run(struct trials *out);
