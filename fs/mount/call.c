#include "fs/mount/call.h"

#include "fs/process/control.h"
#include "fs/process/exited.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void interrupt(fuse_req_t req, void *call)
{
    atomic_store(&((struct call *)call)->interrupt.raised, true);
}

void call_begin(struct call *call, fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    *call = (struct call){
        .req = req,
        .mount = fuse_req_userdata(req),
        .caller = {.pid = ctx->pid, .uid = ctx->uid, .gid = ctx->gid},
        .interrupt = {.fd = -1},
    };
    callers_add(&call->request, ctx->pid);
    fuse_req_interrupt_func(req, interrupt, call);
}

void call_end(struct call *call)
{
    fuse_req_interrupt_func(call->req, NULL, NULL);
    call_leave(call);
}

void call_leave(struct call *call)
{
    callers_remove(&call->request);
    credentials_unref(steal_pointer(call->credentials));
}

void call_fail(struct call *call, int error)
{
    call_end(call);
    fuse_reply_err(call->req, -error);
}

struct node *call_node(const struct call *call, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? nodes_root(call->mount->nodes) : (struct node *)(uintptr_t)ino;
}

struct access_caller *call_who(struct call *call)
{
    if (!call->who_known) {
        access_read_caller(&call->caller, &call->who);
        call->who_known = true;
    }
    return &call->who;
}

int call_credentials(struct call *call, struct credentials **out)
{
    if (!call->credentials) {
        int r = credentials_new(&call->mount->access, &call->caller, &call->credentials);
        if (r < 0)
            return r;
        call->who = call->credentials->who;
        call->who.lives = true;
        call->who_known = true;
    }
    *out = credentials_ref(call->credentials);
    return 0;
}

static bool exists(struct mount *mount, const struct place *place)
{
    if (!place->process)
        return true;
    return entry_exited(place->entry) ? exited_has(registry_exited(mount->registry), place->process)
                                      : process_alive(place->process);
}

bool call_exists(struct call *call, const struct place *place)
{
    return exists(call->mount, place);
}

int call_may_look(struct call *call, struct process *process)
{
    return look_may(&call->mount->access, call_who(call), process);
}

int call_may_drop(struct call *call, struct process *process)
{
    struct access_target left;

    if (!process_left(process, &left))
        return -EPERM;
    return access_control_ended(&call->mount->access, call_who(call), &left);
}

static int may_write(struct mount *mount, const struct place *place, struct access_caller *who,
                     struct text *why)
{
    if (!place->process) /* each process is asked for by itself */
        return 0;
    if (!exists(mount, place)) {
        text_puts(why, entry_exited(place->entry) ? "what this process left has been dropped"
                                                  : "the process has ended");
        return -ESRCH;
    }
    return place->entry->looks ? look_may(&mount->access, who, place->process)
                               : control_may(&mount->access, who, place->process, why);
}

int call_may_write(struct call *call, const struct place *place, struct text *why)
{
    return may_write(call->mount, place, call_who(call), why);
}

int principals_may_write(struct mount *mount, const struct place *place,
                         struct principals *principals, struct text *why)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < principals->n; i++)
        r = may_write(mount, place, &principals->items[i], why);
    return r;
}

struct reply_key place_reply_key(const struct place *place, struct credentials *who)
{
    return (struct reply_key){
        .file = place->entry->path,
        .tid = place->tid,
        .depth = place->depth,
        .word = place->word,
        .credentials = who,
    };
}

struct replies *place_replies(struct mount *mount, const struct place *place)
{
    return place->process ? &place->process->replies : &mount->replies;
}

bool call_sees(struct call *call, struct process *process)
{
    return call->mount->access.hidepid != HIDEPID_INVISIBLE || call_may_look(call, process) == 0;
}

/* Whether /proc doesn't tell everybody the names below it. */
static bool has_secret_names(const struct place *place)
{
    const struct entry *child = layout_next(place->entry, NULL);
    return place->tid || (child && child->naming && name_is_word(child->naming->kind));
}

int call_may_enter(struct call *call, const struct place *place)
{
    if (!place->process)
        return 0;
    if (call->mount->access.hidepid == HIDEPID_NONE && !has_secret_names(place))
        return 0;
    int r = call_may_look(call, place->process);
    return r < 0 && call->mount->access.hidepid == HIDEPID_INVISIBLE ? -ENOENT : r;
}

struct server place_server(struct mount *mount, const struct place *place)
{
    return (struct server){
        .registry = mount->registry,
        .history = mount->history,
        .replies = place_replies(mount, place),
        .access = &mount->access,
        .statements = mount->owners ? owners_statements(mount->owners) : NULL,
    };
}

struct owner_call place_call(const struct place *place, const struct caller *caller)
{
    struct owner_call call = {
        .entry = (uint32_t)(place->entry - layout),
        .tid = place->tid,
        .depth = place->depth,
        .rank = place->rank,
        .caller = *caller,
    };

    if (place->process) {
        call.pid = place->process->pid;
        call.start_time = place->process->start_time;
    }
    memcpy(call.word, place->word, sizeof call.word);
    memcpy(call.part, place->part, sizeof call.part);
    return call;
}

int call_there(struct call *call, const struct place *place)
{
    struct server server = place_server(call->mount, place);
    const struct owner_call at = place_call(place, &call->caller);
    _cleanup_context_ struct file_context context = {0};

    server.keeps = call->mount->owners;
    return context_init(&context, &server, place->process, &at);
}

/* The bytes that the caller has open of a file, or will have; 0: neither. */
static size_t content_size(struct call *call, const struct node *node)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    struct mount *mount = call->mount;
    size_t size = 0;

    if (!node->place.entry->sized &&
        (!nodes_is_open(mount->nodes, node) ||
         nodes_content_of_opener(mount->nodes, node, &call->caller, &size)))
        return size;
    if (call_credentials(call, &who) == 0 &&
        (!node->place.entry->sized || !drafts_find(&mount->drafts, node->number, who, &size)))
        nodes_content(mount->nodes, node, who, &size);
    return size;
}

/* When a file last changed, for programs that ask whether it did since they read it (editors, tar).
 * A content is of each open's own moment, so that only what lasts counts: the process, and what a
 * command file last answered this caller. */
static struct timespec last_change(struct call *call, const struct place *place)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    struct replies *replies = place_replies(call->mount, place);
    struct access_target left;
    struct timespec replied;

    if (place->entry->run && replies_any(replies) && call_credentials(call, &who) == 0) {
        const struct reply_key key = place_reply_key(place, who);
        if (replies_changed(replies, &key, &replied))
            return replied;
    }
    if (!place->process)
        return call->mount->began;
    return process_left(place->process, &left) ? place->process->ending.when
                                               : place->process->started;
}

/* Sets who owns the files of a process: its effective ids; of one that isn't dumpable root does. */
static void set_owner(struct process *process, struct stat *attr)
{
    struct access_target left;
    struct stat of_process;
    char path[32];

    if (process_left(process, &left)) {
        attr->st_uid = left.dumpable ? left.uid[1] : 0;
        attr->st_gid = left.dumpable ? left.gid[1] : 0;
        return;
    }
    snprintf(path, sizeof path, "/proc/%d", process->pid);
    if (stat(path, &of_process) == 0) {
        attr->st_uid = of_process.st_uid;
        attr->st_gid = of_process.st_gid;
    }
}

void node_attributes(struct call *call, const struct node *node, struct stat *attr)
{
    const struct place *place = &node->place;

    *attr = (struct stat){
        .st_ino = node->number,
        .st_mode = place->entry->mode,
        .st_nlink = S_ISDIR(place->entry->mode) ? 2 : 1,
        .st_blksize = 4096,
    };
    if (S_ISREG(attr->st_mode)) {
        attr->st_size = (off_t)content_size(call, node);
        attr->st_blocks = (attr->st_size + 511) / 512;
    }
    attr->st_atim = attr->st_mtim = attr->st_ctim = last_change(call, place);
    if (place->process)
        set_owner(place->process, attr);
}
