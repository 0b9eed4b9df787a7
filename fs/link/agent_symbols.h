/* The agent's library for a program that exports none of Python's functions, but says in the
 * .symtab of its file where they are. */
#pragma once

#include "fs/inject/inject.h"
#include "fs/remote/moment/target.h"

/* A copy of an image that refers to the functions and variables of this program's Python by their
 * addresses, so that the dynamic loader looks none of them up: it is for this program as it runs
 * now, and for no other. Opens its file. -EOPNOTSUPP: .symtab lacks some that an agent needs, or
 * has several of a name, or there is none (why says so, with what to do); -ESRCH, -EPERM, -ENOMEM,
 * or -errno of reading. The caller owns *out, of image->size bytes. */
int agent_symbols_link(const struct target *target, const struct inject_image *image, char **out,
                       struct text *why);
