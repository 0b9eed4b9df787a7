/* Private directories (files.h) that nobody will remove any more: the daemon was killed
 * before the process was told of its directory, or the process ended before it looked. */
#pragma once

#include <sys/types.h>

/* Removes those of this user that lie in an open directory and belong to processes which have
 * ended. One that holds anything else than the files of files.h is left alone, and so is what is
 * mounted there. With the rights of the calling thread, which are to be the user's. */
void script_sweep(int parent, uid_t uid);
