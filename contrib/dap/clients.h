/* Clients that connect, instead of standard input and output. */
#pragma once

/* Listens on a port of 127.0.0.1, or, if there is a / in it, on a Unix socket, and prints which;
 * serves each client in a process of its own. Only programs of this user are served: whoever is may
 * run code with this user's rights. Returns what main() is to return, once it can't go on; it has
 * said why. */
int clients_serve(const char *where, const char *mount);
