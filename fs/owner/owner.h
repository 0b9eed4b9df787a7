/* An owner process: reads the processes that have the same rights as itself, and nothing else, or
 * one core file (core_file.h), and answers the mount's process, which started it (owners.h). It is
 * to its targets what an ordinary user's own mount is today: what is wrong with one of them, or
 * attacks whoever reads it, gets no further than their user could anyway.
 *
 * It ends with its control connection, or when nobody has asked it for a while. */
#pragma once

#define OWNER_PROCESS_NAME "probefs-owner" /* the argv[0] that makes the program one */
#define OWNER_IDLE_MS 60000

/* What such a process does. The exit status. */
int owner_main(void);
