/* The targets that are looked at once a second, for as long as somebody asks. The list belongs to
 * the daemon, as the threads of proc/may_hang.h do. */
#pragma once

struct target;

/* Somebody has asked about it: it is looked at from now on, by since_look(). */
void looks_ask(struct target *target);
