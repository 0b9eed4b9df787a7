/* Messages of the Debug Adapter Protocol: JSON behind a head of lines as HTTP has them.
 * https://microsoft.github.io/debug-adapter-protocol/overview#base-protocol */
#pragma once

#include <jansson.h>
#include <stdio.h>

#define MESSAGE_MAX (16u << 20) /* bytes of one that is read */

/* Reads the next message; the caller owns *out. 0; -EPIPE: there is no more; -EPROTO: that is no
 * message, and where the next one begins isn't known; -EBADMSG: it is no JSON object, the next one
 * can be read; -ENOMEM.
 *
 * A head with any line but those of the protocol is -EPROTO: a page in the user's browser can have
 * that send a request of HTTP to a port of this machine, whose body would else be a message. */
int message_read(FILE *in, json_t **out);
/* Writes a message; -errno. */
int message_write(int out, const json_t *message);
