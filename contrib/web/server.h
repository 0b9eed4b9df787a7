/* HTTP over the files of a mount, and the page that shows them.
 *
 *   GET /                 the page; it holds no secret, and so wants no token
 *   GET /probe/PATH       what the file says; of a directory its names
 *   GET /probe/.../events as text/event-stream, for as long as the client listens
 *   GET /visit/NAME       says now and then that it is there, for as long as the client listens
 *   POST /probe/PATH      writes the body as `>` does (?append: as `>>`) and answers with what that
 * handle says; with ?visit=NAME, as `>>` and on a handle that stays open as long as that visit
 *
 * No file is known by its name but events: a new file is a new URL. Whatever is no page wants
 * `Authorization: Bearer TOKEN`, which no form, link, picture or other site's script can send. An
 * error of the file is a status (404 ENOENT, 410 ESRCH, 403 EACCES EPERM, 409 EBUSY, 413 EFBIG, 503
 * EAGAIN and no mount, 504 ETIMEDOUT, else 422), its name is in X-Probe-Errno, and the words are
 * the body. */
#pragma once

#include "contrib/web/visits.h"

#include <stdbool.h>

#define TOKEN_BYTES 24

struct server {
    const char *mount;
    bool is_local; /* it listens on a Unix socket: who connects must be this user, or root */
    char token[2 * TOKEN_BYTES + 1];
    struct visits visits;
};

struct MHD_Daemon;

/* Serves on a listening socket until the process ends, in threads of its own. Returns NULL if it
 * can't. */
struct MHD_Daemon *server_start(struct server *server, int listening);
