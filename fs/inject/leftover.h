/* An injection that goes on although its daemon is gone.
 *
 * Killing a daemon does not stop the thread that it had started in the target: that
 * does what it was told, which may be to close the agent's library. Nobody may call
 * into that library before it has. */
#pragma once

#include "fs/base/interrupt.h"

#include <sys/types.h>

/* Waits until no such thread is left; for a second at most, since one that got stuck stays for
 * ever. -EINTR, -ESRCH, -EACCES, -ENOMEM. */
int leftover_wait(pid_t pid, const struct interrupt *interrupt);
