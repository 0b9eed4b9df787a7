/* The file `events`, told to the client. */
#pragma once

struct session;

/* Hears what has happened since the file was opened, and goes on, in a thread of its own; tells
 * first of the threads that are held already. -errno. */
int events_begin(struct session *session);
