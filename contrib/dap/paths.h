/* The places of a source: where the client has it, and where the process has it. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct paths {
    pid_t pid;
    char *cwd;     /* of the process; NULL: not known */
    char *library; /* directory of its standard library, with / at its end; NULL: not known */
    json_t *roots; /* pathMappings: an array of [local, remote], neither with / at its end */

    pthread_mutex_t lock; /* guards what follows */
    json_t *asked;        /* names that have numbers, for the session's life */
};

void paths_init(struct paths *paths);
/* From what `attach` has: localRoot and remoteRoot, where . is the process's directory. os: the
 * file of the process's module of that name; NULL: not known. */
void paths_set(struct paths *paths, pid_t pid, const char *cwd, const char *os,
               const json_t *mappings);

/* The name by which the process knows a source of the client's; NULL: it has none. The caller's. */
char *paths_remote(struct paths *paths, const json_t *source);
/* A name that the process has for a source as it is below the process's root; the caller's. */
char *paths_whole(const struct paths *paths, const char *name);
/* Whether two names that the process may have for a source are one; NULL is none. */
bool paths_are_same(struct paths *paths, const char *a, const char *b);
/* Whether code of that file is the program's own: not of the standard library, nor of an installed
 * one. The agent decides so too (agent/cpython/own_code.c). */
bool paths_is_own(const struct paths *paths, const char *name);
/* A new `Source` for a name that the process has: with a path, if the client can open it, else with
 * a number. */
json_t *paths_source(struct paths *paths, const char *name);
/* The name behind a number; NULL: there is none. The caller's. */
char *paths_numbered(struct paths *paths, int64_t number);
