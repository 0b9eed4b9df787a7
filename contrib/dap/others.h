/* Other processes, of which the client is to have a session each, begun as this one was. */
#pragma once

#include <jansson.h>

struct session;

/* Asks the client for one of each other rank of its job that this machine has, if it wants those.
 */
void others_of_job(struct session *session);
/* Asks the client for one of a child, if it wants those. */
void others_child(struct session *session, json_int_t pid);
