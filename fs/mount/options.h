/* The command line: probefs [-f] [-o OPTIONS] [SOURCE] MOUNTPOINT, or probefs --check. */
#pragma once

#define FUSE_USE_VERSION 314

#include "fs/access/access.h"
#include "fs/base/text.h"
#include "fs/history/history.h"
#include "fs/owner/owners.h"

#include "fs/sampler/request.h"

#include <fuse_opt.h>

/* core=FILE[:EXECUTABLE] */
struct core_option {
    char *path;
    char *executable; /* NULL: not given */
};

struct options {
    /* flags: libfuse's parser writes whole ints */
    int help, version, check;
    int foreground; /* -f, and implied by -d */
    int allow_other;
    int nonempty;         /* mount over a directory that holds something */
    unsigned hidepid;     /* an enum hidepid */
    char *contain_word;   /* as it was given; NULL: not; owned */
    enum contain contain; /* by that, or else by who may look */
    char *history;        /* a file that is appended to; NULL: none; owned */
    char *history_age, *history_size, *history_interval; /* as they were given; NULL: not; owned */
    char *profile;                                       /* as it was given; NULL: not; owned */
    struct profile_request profile_request;
    struct history_limits history_limits;
    char *source;     /* what the mount is to be called; NULL: not given; owned */
    char *mountpoint; /* NULL: not given; owned */
    struct core_option *cores;
    size_t ncores, cores_alloc;
    char *sysroot;         /* where the files lie that core files name; NULL: not given; owned */
    struct fuse_args fuse; /* what is libfuse's to understand; owned */
};

/* Parses argv. On -EINVAL `why` says what is wrong with it. */
int options_parse(int argc, char **argv, struct options *out, struct text *why);
void options_deinit(struct options *options);

/* What --help prints. */
void options_help(struct text *out);
