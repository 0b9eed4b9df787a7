/* Private directories (files.h) that nobody will remove any more: the daemon was killed
 * before the process was told of its directory, or the process ended before it looked. */
#pragma once

/* Removes those that lie in an open directory and belong to processes which have ended. */
void remote_sweep(int parent);
