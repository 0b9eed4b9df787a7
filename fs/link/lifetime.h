/* What lives as long as an open file: breakpoints, steps, pauses and orders of on-crash with `here`
 * in front. Each agent that was asked for such a thing is told once the file is closed, and takes
 * it back; it does that by itself where this daemon goes. So a debugger that dies leaves nothing
 * behind. Any thread. */
#pragma once

#include "fs/link/session.h"

struct lifetime;

/* number: of the open file, as of PROTO_RELEASE. NULL: no memory. The caller owns one reference. */
struct lifetime *lifetime_new(uint64_t number);
struct lifetime *lifetime_ref(struct lifetime *lifetime);
void lifetime_unref(struct lifetime *lifetime); /* NULL is fine; with the last one it ends */
uint64_t lifetime_number(const struct lifetime *lifetime);

/* Something that lives as long is asked for next by this session. -ECANCELED: the file is closed;
 * -ENOMEM. */
int lifetime_begin(struct lifetime *lifetime, struct session *session);
/* What lifetime_begin() announced has been answered, or was in vain: if the file was closed
 * meanwhile, it is taken back. */
void lifetime_asked(struct lifetime *lifetime, struct session *session);

/* The file is closed. Doesn't wait. Again: nothing is done. */
void lifetime_end(struct lifetime *lifetime);
