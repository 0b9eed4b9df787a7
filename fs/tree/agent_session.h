/* The session of a command with its process's agent. */
#pragma once

#include "fs/link/attach.h"
#include "fs/tree/file.h"

/* agent_attach(), but not where that can't work: a process all of whose threads wait for the
 * answer to what they wrote gets -EDEADLK at once. context->why says what to do. */
int agent_session_attach(struct file_context *context, enum attach_way way, struct session **out);
/* The same by any way, for an order that needs an interpreter with a GIL: -EOPNOTSUPP with why,
 * before anything is touched, where it is free-threaded. */
int agent_session_order(struct file_context *context, struct session **out);
/* The session if an agent is there already: -ENOTCONN else. */
int agent_session_connect(struct file_context *context, struct session **out);

/* Before something is asked of the agent that is to live as long as the command's file is open;
 * lifetime_asked() follows once that is answered. -errno with why. */
int agent_session_here(struct file_context *context, struct session *session);

/* For how many nanoseconds what a command asks for waits for an interpreter's GIL: ten seconds, but
 * one where whoever has it sleeps and runs no Python, and so may keep it for ever. */
uint64_t agent_session_patience(struct file_context *context, int64_t interp);
/* Adds to context->why what such a wait, of so many seconds, was in vain for. lost: as below. */
void agent_session_say_waited(struct file_context *context, unsigned seconds, const char *lost);
/* The words for an error that a request ended in, after the agent's own, and its errno as write(2)
 * is to give it. lost: what didn't happen because the GIL was not to be had. */
int agent_session_explain(struct file_context *context, int error, const struct proto_done *done,
                          const char *lost);
/* The address of the switch interval of an interpreter's GIL, for the agent; 0: not known. */
uint64_t agent_session_gil_interval(struct file_context *context, int64_t interp);
