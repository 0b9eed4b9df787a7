#include "fs/ops.h"

#include "fs/cleanup.h"
#include "fs/requests.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/statvfs.h>

/* One request being answered. */
struct call {
    fuse_req_t req;
    struct mount *mount;
    struct caller caller;
    struct access_caller who; /* read when first needed */
    bool who_known;
    struct request request;
};

static void call_begin(struct call *call, fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    *call = (struct call){
        .req = req,
        .mount = fuse_req_userdata(req),
        .caller = {.pid = ctx->pid, .uid = ctx->uid, .gid = ctx->gid},
    };
    request_begin(&call->request, ctx->pid);
}

static void call_fail(struct call *call, int error)
{
    request_end(&call->request);
    fuse_reply_err(call->req, -error);
}

static struct handle *opened(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

static struct node *call_node(const struct call *call, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? nodes_root(call->mount->nodes) : (struct node *)(uintptr_t)ino;
}

/* Whether the caller may look at the process. */
static int call_may_look(struct call *call, const struct process *process)
{
    if (!call->who_known) {
        access_read_caller(&call->caller, &call->who);
        call->who_known = true;
    }
    return access_look(&call->mount->access, &call->who, process->pid);
}

/* Whether the caller may know that the process is there. */
static bool call_sees(struct call *call, const struct process *process)
{
    return call->mount->access.hidepid != HIDEPID_INVISIBLE || call_may_look(call, process) == 0;
}

/* Whether the caller may use the names in a directory. */
static int call_may_enter(struct call *call, const struct place *place)
{
    if (!place->process)
        return 0;
    if (call->mount->access.hidepid == HIDEPID_NONE && !place->tid)
        return 0;
    int r = call_may_look(call, place->process);
    return r < 0 && call->mount->access.hidepid == HIDEPID_INVISIBLE ? -ENOENT : r;
}

static bool thread_exists(pid_t pid, pid_t tid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d", pid, tid);
    return access(path, F_OK) == 0;
}

/* The context of a place for the layout's functions. -ESRCH: its process or thread has ended. */
static int context_init(struct file_context *context, struct call *call, const struct place *place)
{
    *context = (struct file_context){
        .registry = call->mount->registry,
        .caller = &call->caller,
        .tid = place->tid,
        .depth = place->depth,
        .rank = place->rank,
    };
    if (!place->process)
        return 0;
    context->process = process_ref(place->process);
    context->target = process_target(place->process);
    if (!context->target || (place->tid && !thread_exists(place->process->pid, place->tid)))
        return -ESRCH;
    return target_alive(context->target) ? 0 : -ESRCH;
}

static void context_deinit(struct file_context *context)
{
    target_unref(context->target);
    process_unref(context->process);
    text_deinit(&context->why);
}

#define _cleanup_context_ _cleanup_(context_deinit)

static void fill_attr(struct mount *mount, const struct node *node, struct stat *attr)
{
    const struct place *place = &node->place;
    struct stat of_process;
    char path[32];
    size_t size;

    *attr = (struct stat){
        .st_ino = node->number,
        .st_mode = place->entry->mode,
        .st_nlink = S_ISDIR(place->entry->mode) ? 2 : 1,
        .st_blksize = 4096,
    };
    /* a content is always of now */
    clock_gettime(CLOCK_REALTIME, &attr->st_mtim);
    attr->st_atim = attr->st_ctim = attr->st_mtim;
    if (S_ISREG(attr->st_mode) && nodes_is_open(mount->nodes, node, &size)) {
        attr->st_size = (off_t)size;
        attr->st_blocks = (blkcnt_t)((size + 511) / 512);
    }
    if (!place->process)
        return;
    snprintf(path, sizeof path, "/proc/%d", place->process->pid);
    if (stat(path, &of_process) == 0) { /* belongs to the effective ids */
        attr->st_uid = of_process.st_uid;
        attr->st_gid = of_process.st_gid;
    }
}

/* Steps from a directory to a name in it. */
static int step(struct call *call, const struct place *from, const char *name, struct place *to)
{
    _cleanup_context_ struct file_context context = {0};
    unsigned value;

    int r = call_may_enter(call, from);
    if (r < 0)
        return r;
    r = context_init(&context, call, from);
    if (r < 0)
        return -ENOENT;
    const struct entry *entry = layout_find(from->entry, name, &value);
    if (!entry)
        return -ENOENT;
    if (entry->naming) {
        r = entry->naming->find(&context, value);
        if (r < 0)
            return r == -ESRCH ? -ENOENT : r;
    }
    if (context.process != from->process && !call_sees(call, context.process))
        return -ENOENT;
    *to = *from;
    to->entry = entry;
    to->process = steal_pointer(context.process);
    if (entry->naming)
        place_set(to, entry->naming->kind, value);
    return 0;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param param = {0};
    struct place place;
    struct node *node;
    struct call call;

    call_begin(&call, req);
    int r = step(&call, &call_node(&call, parent)->place, name, &place);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    r = nodes_get(call.mount->nodes, &place, &node);
    process_unref(place.process);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    param.ino = (fuse_ino_t)(uintptr_t)node;
    param.generation = node->generation;
    fill_attr(call.mount, node, &param.attr);
    request_end(&call.request);
    if (fuse_reply_entry(req, &param) == -ENOENT) /* interrupted: the kernel never heard of it */
        nodes_forget(call.mount->nodes, node, 1);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
    struct mount *mount = fuse_req_userdata(req);

    if (ino != FUSE_ROOT_ID)
        nodes_forget(mount->nodes, (struct node *)(uintptr_t)ino, n);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets)
{
    struct mount *mount = fuse_req_userdata(req);

    for (size_t i = 0; i < n; i++)
        if (forgets[i].ino != FUSE_ROOT_ID)
            nodes_forget(mount->nodes, (struct node *)(uintptr_t)forgets[i].ino,
                         forgets[i].nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat attr;
    struct call call;
    size_t size;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    if (node->place.process && !process_alive(node->place.process) &&
        !nodes_is_open(call.mount->nodes, node, &size)) {
        call_fail(&call, -ESRCH);
        return;
    }
    fill_attr(call.mount, node, &attr);
    request_end(&call.request);
    fuse_reply_attr(req, &attr, 0);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    _cleanup_context_ struct file_context context = {0};
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    int r = context_init(&context, &call, &node->place);
    if (r == 0)
        r = node->place.entry->render(&context, &text);
    if (r == 0)
        r = text_finish(&text);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    request_end(&call.request);
    fuse_reply_readlink(req, text.data);
}

static bool sees(void *arg, const struct process *process) { return call_sees(arg, process); }

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    _cleanup_context_ struct file_context context = {0};
    struct listing *listing;
    struct handle *handle;
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    int r = call_may_enter(&call, &node->place);
    if (r == 0)
        r = context_init(&context, &call, &node->place);
    if (r == 0)
        r = listing_new(&node->place, &context, sees, &call, &listing);
    if (r == 0)
        r = handle_open_directory(&call.mount->handles, listing, &handle);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    request_end(&call.request);
    if (fuse_reply_open(req, fi) == -ENOENT) /* interrupted: no release will follow */
        handle_unref(handle);
}

/* The offset of a name is its place in the listing, counted from 1; 0 is the start. */
static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    const struct listing *listing = opened(fi)->listing;
    struct call call;
    size_t used = 0;

    call_begin(&call, req);
    _cleanup_free_ char *buf = malloc(size);
    if (!buf) {
        call_fail(&call, -ENOMEM);
        return;
    }
    for (size_t i = offset < 0 ? listing->n : (size_t)offset; i < listing->n; i++) {
        const struct listing_name *item = &listing->names[i];
        struct stat attr = {.st_ino = item->number, .st_mode = item->mode};
        size_t needs = fuse_add_direntry(req, buf + used, size - used, item->name, &attr,
                                         (off_t)i + 1);
        if (needs > size - used)
            break;
        used += needs;
    }
    request_end(&call.request);
    fuse_reply_buf(req, buf, used);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    handle_unref(opened(fi));
    fuse_reply_err(req, 0);
}

/* Renders for open. The check is made again afterwards: what was read meanwhile may be of a
 * program with more rights that the process has just executed. */
static int open_file(struct call *call, const struct place *place, struct handle **out)
{
    _cleanup_context_ struct file_context context = {0};
    struct handle *handle = NULL;
    char path[64];

    int r = place->process ? call_may_look(call, place->process) : 0;
    if (r < 0)
        return r;
    r = context_init(&context, call, place);
    if (r == 0)
        r = handle_open_file(&call->mount->handles, place->entry, &context, &handle);
    if (r == 0 && place->process)
        r = call_may_look(call, place->process);
    if (r < 0) {
        handle_unref(handle);
        if (place->process) {
            place_path(place, path, sizeof path);
            error_ring_add(&place->process->errors, path, r, context.why.data);
        }
        return r;
    }
    *out = handle;
    return 0;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct handle *handle;
    struct call call;

    call_begin(&call, req);
    struct node *node = call_node(&call, ino);
    int r = (fi->flags & O_ACCMODE) == O_RDONLY ? 0 : -EACCES;
    if (r == 0)
        r = open_file(&call, &node->place, &handle);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    fi->direct_io = 1;
    nodes_opened(call.mount->nodes, node, handle->text.size);
    request_end(&call.request);
    if (fuse_reply_open(req, fi) == -ENOENT) {
        nodes_closed(call.mount->nodes, node);
        handle_unref(handle);
    }
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    /* once the reader has its answer it may close the file, before the reply's call has returned */
    struct handle *handle = handle_ref(opened(fi));
    const char *bytes = NULL;

    size_t n = handle_read(handle, (uint64_t)offset, size, &bytes);
    fuse_reply_buf(req, bytes, n);
    handle_unref(handle);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *mount = fuse_req_userdata(req);

    nodes_closed(mount->nodes, (struct node *)(uintptr_t)ino);
    handle_unref(opened(fi));
    fuse_reply_err(req, 0);
}

/* access(2) and chdir(2). */
static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
    struct call call;
    int r = 0;

    call_begin(&call, req);
    const struct place *place = &call_node(&call, ino)->place;
    if (mask & W_OK || (mask & X_OK && !S_ISDIR(place->entry->mode)))
        r = -EACCES;
    else if (S_ISDIR(place->entry->mode))
        r = call_may_enter(&call, place);
    else if (place->process && mask & R_OK)
        r = call_may_look(&call, place->process);
    call_fail(&call, r); /* 0 is success */
}

/* Files that never block are always ready. An answer of ENOSYS, which is libfuse's own, would
 * turn poll off for the whole mount. */
static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
                    struct fuse_pollhandle *handle)
{
    if (handle)
        fuse_pollhandle_destroy(handle);
    fuse_reply_poll(req, POLLIN | POLLRDNORM);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255};
    fuse_reply_statfs(req, &st);
}

/* The tree is what it is: nothing in it can be made, removed, renamed or changed. */
static void refuse(fuse_req_t req) { fuse_reply_err(req, EPERM); }

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    refuse(req);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    refuse(req);
}

static void op_symlink(fuse_req_t req, const char *to, fuse_ino_t parent, const char *name)
{
    refuse(req);
}

static void op_remove(fuse_req_t req, fuse_ino_t parent, const char *name) { refuse(req); }

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
                      const char *to, unsigned flags)
{
    refuse(req);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    refuse(req);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int which,
                       struct fuse_file_info *fi)
{
    refuse(req);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct mount *mount = userdata;

    if (mount->serves)
        mount->serves(mount->serves_arg);
}

/* No readdirplus: attributes may not be cached, so what it brings would be asked again. */
const struct fuse_lowlevel_ops mount_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .readlink = op_readlink,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .access = op_access,
    .poll = op_poll,
    .statfs = op_statfs,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .unlink = op_remove,
    .rmdir = op_remove,
    .rename = op_rename,
    .link = op_link,
    .setattr = op_setattr,
};
