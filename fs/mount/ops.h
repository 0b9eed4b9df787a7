/* What the kernel asks of the mount, answered from the layout: libfuse's low-level operations.
 *
 * Nothing is cached by the kernel (all timeouts are 0): a name may stand for another process, or
 * be hidden from the next caller, at any moment. So each path walk asks anew and each call is
 * checked with the credentials of the thread that makes it. */
#pragma once

#define FUSE_USE_VERSION 314

#include "fs/access/access.h"
#include "fs/events/events.h"
#include "fs/history/history.h"
#include "fs/mount/command.h"
#include "fs/mount/draft.h"
#include "fs/mount/handle.h"
#include "fs/owner/owners.h"

#include <fuse_lowlevel.h>

/* The userdata of the FUSE session. */
struct mount {
    struct registry *registry;
    struct owners *owners; /* who read processes; NULL: this process does */
    struct nodes *nodes;
    struct events *events;
    struct history *history; /* NULL: none is kept */
    struct handles handles;
    struct drafts drafts;
    struct replies replies; /* to what was written to command files outside of processes */
    struct commands commands;
    struct access access;
    struct timespec began;
    void (*serves)(void *arg); /* called once the kernel and the daemon have agreed */
    void *serves_arg;
    atomic_bool agreeing; /* the next that is sent says what the daemon wants of the kernel */
};

extern const struct fuse_lowlevel_ops mount_ops;

/* Has the kernel look names of one directory up side by side, in a session that is mounted, so that
 * one look-up that takes its time holds up no other. 0 or -errno. */
int mount_look_up_in_parallel(struct fuse_session *session);
