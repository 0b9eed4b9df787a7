/* What the process has imported. */
#pragma once

#include "contrib/dap/request.h"

#include <jansson.h>

/* Those that a client knows. All of it is the looking thread's. */
struct modules {
    json_t *told; /* names, and files of sources */
    json_t *seen; /* files that came up in a stack, and are still to be told of */
};

void modules_init(struct modules *modules);

request_run modules_list, modules_sources;
/* A file came up in a stack. */
void modules_see(struct session *session, const char *file);
/* Tells of those modules that the client doesn't know. */
request_after modules_tell;
