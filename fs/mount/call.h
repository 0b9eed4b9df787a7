/* A request of the kernel that is being answered: who makes it, what they may, and where. What all
 * operations of the mount share. */
#pragma once

#include "fs/mount/ops.h"
#include "fs/owner/serve.h"
#include "fs/trace/callers.h"

struct call {
    fuse_req_t req;
    struct mount *mount;
    struct caller caller;
    struct access_caller who; /* read when first needed */
    bool who_known;
    struct credentials *credentials; /* a reference; NULL: not taken yet */
    struct callers_entry request;
    struct interrupt interrupt; /* raised when its caller gets a signal */
};

/* Begins a call, which stays where it is until its end. */
void call_begin(struct call *call, fuse_req_t req);
/* Call it before the reply is sent. */
void call_end(struct call *call);
/* call_end() where a command will reply. */
void call_leave(struct call *call);
/* Ends it with an error, or with success (0). */
void call_fail(struct call *call, int error);

/* Who makes the request, as access/access.h wants to know it. */
struct access_caller *call_who(struct call *call);
/* Who makes the request, for what is kept; taken down once, and from then on it is judged by that.
 * The caller gets a reference of its own. -ENOMEM. */
int call_credentials(struct call *call, struct credentials **out);
struct node *call_node(const struct call *call, fuse_ino_t ino);
static inline struct handle *opened(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

/* Whether the process of a place is there: alive, or kept below exited/. True
 * also where there is none. */
bool call_exists(struct call *call, const struct place *place);
/* Whether the caller may look at the process, or at what it left. */
int call_may_look(struct call *call, struct process *process);
/* Whether the caller may know that the process is there. */
bool call_sees(struct call *call, struct process *process);
/* Whether the caller may have what a process left dropped. */
int call_may_drop(struct call *call, struct process *process);
/* Whether the caller may use the names in a directory. */
int call_may_enter(struct call *call, const struct place *place);

/* Whether the process of a command file is there and the caller may write to it; why says what
 * to do where not. */
int call_may_write(struct call *call, const struct place *place, struct text *why);
/* call_may_write() for all in whose name something is done. */
int principals_may_write(struct mount *mount, const struct place *place,
                         struct principals *principals, struct text *why);

/* The key of a reply of a command file at a place: whose it is. */
struct reply_key place_reply_key(const struct place *place, struct credentials *who);
/* The replies of command files at a place. */
struct replies *place_replies(struct mount *mount, const struct place *place);

/* Whether the process and the thread of a place are there: 0 or -ESRCH. */
int call_there(struct call *call, const struct place *place);

/* What answers are made from, at a place. */
struct server place_server(struct mount *mount, const struct place *place);
/* What is asked about a place, but for op; valid for itself. */
struct owner_call place_call(const struct place *place, const struct caller *caller);

/* The attributes of a node as they are now, for this caller. */
void node_attributes(struct call *call, const struct node *node, struct stat *attr);

/* The operations on files (ops_file.c); those on names and directories are in ops.c. */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_access(fuse_req_t req, fuse_ino_t ino, int mask);
void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
             struct fuse_pollhandle *handle);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int which,
                struct fuse_file_info *fi);
