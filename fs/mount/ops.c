#include "fs/mount/place_work.h"

#include "agent/base/cleanup.h"
#include "fs/process/exited.h"
#include "fs/tree/pids.h"

#include <errno.h>
#include <sys/statvfs.h>

/* Steps from a directory to a name in it. */
static int step(struct call *call, const struct place *from, const char *name, struct place *to)
{
    struct process *process = NULL;
    unsigned value;

    int r = call_may_enter(call, from);
    if (r < 0)
        return r;
    const struct entry *entry = layout_find(from->entry, name, &value);
    if (!entry)
        return -ENOENT;
    r = entry->is_there ? place_has(call, from, entry) : 0;
    if (r < 0)
        return r == -ESRCH ? -ENOENT : r;
    if (entry->naming) {
        r = place_find(call, from, entry, value, name, &process);
    } else {
        r = call_there(call, from);
        process = from->process && r == 0 ? process_ref(from->process) : NULL;
    }
    if (r < 0) {
        process_unref(process);
        return r == -ESRCH ? -ENOENT : r;
    }
    if (process != from->process && !call_sees(call, process)) {
        process_unref(process);
        return -ENOENT;
    }
    *to = *from;
    to->entry = entry;
    to->process = process;
    if (entry->naming)
        place_set(to, entry->naming->kind, value, name);
    return 0;
}

/* Renders a file whose size is asked for before it is opened, unless that was just done. Why it
 * can't be is said when it is opened. */
static void make_draft(struct call *call, const struct node *node)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    const struct place *place = &node->place;
    size_t size;

    if (call_credentials(call, &who) < 0 ||
        drafts_find(&call->mount->drafts, node->number, who, &size) ||
        (place->process && call_may_look(call, place->process) < 0))
        return;
    if (place_render(call, place, who, &text, &why) == 0 &&
        (!place->process || call_may_look(call, place->process) == 0))
        drafts_put(&call->mount->drafts, node->number, who, &text);
}

/* Finds what a directory has by that name; false: it is answered why not. */
static bool begin_at(struct call *call, fuse_req_t req, fuse_ino_t parent, const char *name,
                     struct place *out)
{
    call_begin(call, req);
    int r = step(call, &call_node(call, parent)->place, name, out);
    if (r < 0)
        call_fail(call, r);
    return r == 0;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param param = {0};
    struct place place;
    struct node *node;
    struct call call;

    if (!begin_at(&call, req, parent, name, &place))
        return;
    int r = nodes_get(call.mount->nodes, &place, &node);
    process_unref(place.process);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    param.ino = (fuse_ino_t)(uintptr_t)node;
    param.generation = node->generation;
    if (node->place.entry->sized)
        make_draft(&call, node);
    node_attributes(&call, node, &param.attr);
    call_end(&call);
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

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    if (!call_exists(&call, &node->place) && !nodes_is_open(call.mount->nodes, node)) {
        call_fail(&call, -ESRCH);
        return;
    }
    node_attributes(&call, node, &attr);
    call_end(&call);
    fuse_reply_attr(req, &attr, 0);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    int r = place_render(&call, &node->place, NULL, &text, &why);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    call_end(&call);
    fuse_reply_readlink(req, text.data);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct listing *listing;
    struct handle *handle;
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    int r = call_may_enter(&call, &node->place);
    if (r == 0)
        r = place_list(&call, &node->place, &listing);
    if (r == 0)
        r = handle_open_directory(&call.mount->handles, listing, &handle);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)handle;
    call_end(&call);
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
        size_t needs =
            fuse_add_direntry(req, buf + used, size - used, item->name, &attr, (off_t)i + 1);
        if (needs > size - used)
            break;
        used += needs;
    }
    call_end(&call);
    fuse_reply_buf(req, buf, used);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    handle_unref(opened(fi));
    fuse_reply_err(req, 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255};
    fuse_reply_statfs(req, &st);
}

/* The tree is what it is: nothing in it can be made, renamed or changed. */
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

/* Only what a process left can be removed. */
static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct place place;
    struct call call;

    if (!begin_at(&call, req, parent, name, &place))
        return;
    int r = place.entry->naming == &exited_pids ? call_may_drop(&call, place.process) : -EPERM;
    if (r == 0 && !exited_drop(registry_exited(call.mount->registry), place.process))
        r = -ENOENT;
    process_unref(place.process);
    call_fail(&call, r); /* 0 is success */
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
                      const char *to, unsigned flags)
{
    refuse(req);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    refuse(req);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct mount *mount = userdata;

    conn->want |= conn->capable & FUSE_CAP_ATOMIC_O_TRUNC; /* `>` and `>>` are told apart at open */
    /* a write is waited for, also one of io_submit(2): who asks stays who it is until it is
     * answered */
    conn->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
    conn->want |= conn->capable & FUSE_CAP_PARALLEL_DIROPS;
    /* which libfuse before 3.17 forgets: see mount_look_up_in_parallel() */
    mount->agreeing = conn->capable & FUSE_CAP_PARALLEL_DIROPS;
    conn->max_write = WRITE_MAX;
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
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .access = op_access,
    .poll = op_poll,
    .statfs = op_statfs,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .unlink = op_remove,
    .rmdir = op_rmdir,
    .rename = op_rename,
    .link = op_link,
    .setattr = op_setattr,
};
