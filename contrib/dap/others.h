/* Other processes, of which the client is to have a session each. */
#pragma once

#include <jansson.h>

struct session;

/* Asks the client for one of each other rank of its job that this machine has. attach: what this
 * one was begun with. Whether it wants that is for the caller to see. */
void others_of_job(struct session *session, const json_t *attach);
