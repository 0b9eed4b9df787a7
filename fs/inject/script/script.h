/* The other door into a process: a script that the interpreter itself runs at its next safe point
 * (PEP 768, CPython 3.14 and later; sys.remote_exec()).
 *
 * It needs neither a known libc nor new system calls, but files that the target can read, a
 * thread that comes back to the interpreter, and that remote debugging isn't disabled. The
 * library is loaded as the extension module that it also is (agent/probing/module.c).
 *
 * Where CPython's own sys.remote_exec() changes the thread state of a running thread, here that
 * thread and the main thread are stopped meanwhile, so that neither a signal nor a request for
 * the GIL is lost. A thread that sleeps in a system call which the interpreter itself made is
 * woken with EINTR, after which the interpreter goes on sleeping (PEP 475).
 *
 * Killing the daemon at any moment leaves nothing that could hurt: the script first tests whether
 * the daemon still waits for it, and removes its files itself. */
#pragma once

#include "fs/inject/inject.h"

/* Loads the agent's library and starts the agent. deadline_ns: from now. In *out `handle` is 0,
 * and `borrowed` is the thread that ran the script. On failure `why` says in words what failed
 * and what to do.
 *
 * -EOPNOTSUPP: older than 3.14, remote debugging is disabled, or no directory may hold the
 * library; -EBUSY: it is being traced; -EPERM: not allowed; -ETIMEDOUT: no thread came to a safe
 * point before the deadline, it is stopped by a signal, or the library did not load in time;
 * -EINTR: interrupted; -ESRCH: it ended or is ending; -ENOEXEC: the library could not be loaded
 * (its words in why); -ENOMEM. */
int script_load(struct target *target, const struct inject_image *image, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why);
