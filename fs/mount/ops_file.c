/* What is done with files: a plain one is rendered when it is opened, one that streams has reads
 * that wait (events/events.h), and what is written to a command file is run on a thread of its own
 * (command.h), which sends the answer. */
#include "fs/mount/place_work.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/proc/closing.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/signals.h"
#include "fs/tree/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>

/* So long a command may take that nobody can interrupt: who wrote it is exiting, or gone. */
#define UNATTENDED_NS 10000000000u

/* Something written, or the close after it, that waits for its answer. */
struct job {
    struct command command;
    struct may_hang work;
    fuse_req_t req; /* NULL: nobody waits */
    struct callers_entry request;
    struct mount *mount;
    pid_t tid;                  /* of who waits */
    struct credentials *acting; /* a reference; NULL: nobody acts any more */
    struct place place;         /* with a reference to its process */
    struct handle *handle;      /* a reference */
    struct server server;
    struct owner_call at; /* that place, of who asks */
    struct file_context context;
    bool last;
    int error;       /* that it ended with ... */
    struct text why; /* ... and why */
    size_t size;
    char data[];
};

static void note_error(const struct place *place, struct credentials *whose, int error,
                       const struct text *why)
{
    char path[64 + NAME_MAX];

    if (!place->process)
        return;
    place_path(place, path, sizeof path);
    error_ring_add(&place->process->errors, whose, path, error, why->data);
}

/* Answers a write that no command was begun for. */
static int refuse(struct mount *mount, struct handle *handle, const struct place *place, int error,
                  const struct text *why)
{
    int r = writer_fail(handle->writer, error, why, place_replies(mount, place));
    note_error(place, handle->opener, error, why);
    return r;
}

static struct job *job_of(struct may_hang *work)
{
    return (struct job *)((char *)work - offsetof(struct job, work));
}

/* The file_run of all files: their own, once all in whose name it runs were asked for. They are
 * asked at this moment, since it may have waited long for the command before it. */
static int run_allowed(struct file_context *context, const struct input *input, struct text *said,
                       struct outcome *outcome)
{
    const struct job *job = (struct job *)((char *)context - offsetof(struct job, context));

    int r = principals_may_write(job->mount, &job->place, context->principals, &context->why);
    if ((r == -EPERM || r == -EACCES) && !context->why.size)
        text_puts(&context->why, "who opened this file, or who wrote to it, may not look at the "
                                 "process (any more): each of them must be allowed to");
    return r < 0 ? r : job->place.entry->run(context, input, said, outcome);
}

static void job_release(struct job *job)
{
    process_unref(steal_pointer(job->place.process));
    credentials_unref(steal_pointer(job->acting));
    handle_unref(steal_pointer(job->handle));
}

static void job_free(struct may_hang *work)
{
    struct job *job = job_of(work);

    command_deinit(&job->command);
    job_release(job);
    text_deinit(&job->why);
    free(job);
}

static void job_done(struct command *command) { may_hang_unref(&((struct job *)command)->work); }

static void job_write(struct may_hang *work)
{
    struct job *job = job_of(work);
    struct input input = {.text = job->data, .size = job->size, .last = job->last};
    struct file_context *context = &job->context;

    job->server.asks = job->mount->owners && entry_asks(job->place.entry);
    int r = context_init(context, &job->server, job->place.process, &job->at);
    context->interrupt = &job->command.interrupt;
    context->flags = job->handle->writer->flags;
    context->lifetime = job->handle->writer->lifetime;
    if (r == 0) {
        context_refresh(context);
        r = writer_run(job->handle->writer, run_allowed, context, job->acting, &input,
                       place_replies(job->mount, &job->place));
    } else {
        text_puts(&context->why, "the process or the thread has ended");
        r = writer_fail(job->handle->writer, r, &context->why,
                        place_replies(job->mount, &job->place));
    }
    job->error = r;
    job->why = context->why;
    context->why = TEXT_INIT;
    context_deinit(context);
}

/* On the command's thread. */
static void job_run(struct command *command)
{
    struct job *job = (struct job *)command;
    _cleanup_(text_deinit) struct text hangs = TEXT_INIT;

    int r = may_hang_run(&job->work, &command->interrupt);
    if (r < 0) {
        may_hang_explain(r, &hangs);
        note_error(&job->place, job->handle->opener, r, &hangs);
    } else {
        r = job->error;
        if (r < 0)
            note_error(&job->place, job->handle->opener, r, &job->why);
        job_release(job); /* the mount may end when the command has */
    }
    if (!job->req)
        return;
    fuse_req_interrupt_func(job->req, NULL, NULL);
    callers_remove(&job->request);
    if (r == 0 && !job->last)
        fuse_reply_write(job->req, job->size);
    else
        fuse_reply_err(job->req, -r);
}

static bool job_unwanted(struct command *command)
{
    return signals_urgent(((struct job *)command)->tid);
}

/* The writer got a signal while it waits. The kernel says so for the first one only. */
static void job_interrupt(fuse_req_t req, void *job)
{
    command_watch(&((struct job *)job)->command);
}

enum attendance {
    ATTENDED, /* its writer waits, and can be interrupted */
    EXITING,  /* its writer waits, and can't */
    FORSAKEN, /* nobody is to be told */
};

static int job_new(struct call *call, const struct place *place, struct handle *handle,
                   struct credentials *acting, const struct input *input,
                   enum attendance attendance, struct job **out)
{
    struct job *job = malloc(sizeof *job + input->size);
    if (!job)
        return -ENOMEM;
    *job = (struct job){
        .req = attendance == FORSAKEN ? NULL : call->req,
        .mount = call->mount,
        .tid = call->caller.pid,
        .acting = acting ? credentials_ref(acting) : NULL,
        .place = *place,
        .server = place_server(call->mount, place),
        .at = place_call(place, &call->caller),
        .handle = handle_ref(handle),
        .last = input->last,
        .size = input->size,
    };
    if (place->process)
        process_ref(place->process);
    if (input->size)
        memcpy(job->data, input->text, input->size);
    job->command.run = job_run;
    job->command.done = job_done;
    job->command.unwanted = job_unwanted;
    job->work = (struct may_hang){
        .pid = place->process && !entry_exited(place->entry) ? place->process->pid : 0,
        .run = job_write,
        .free = job_free,
    };
    may_hang_init(&job->work);
    if (attendance != ATTENDED)
        job->command.until_ns = monotonic_ns() + UNATTENDED_NS;
    command_init(&job->command, &call->mount->commands, call->caller.uid);
    if (job->req) {
        callers_add(&job->request, job->tid);
        fuse_req_interrupt_func(job->req, job_interrupt, job);
    }
    *out = job;
    return 0;
}

/* Drops a command that was never started. */
static void job_drop(struct job *job)
{
    if (job->req) {
        fuse_req_interrupt_func(job->req, NULL, NULL);
        callers_remove(&job->request);
    }
    may_hang_unref(&job->work);
}

/* Has input run for an open file. The request is answered, then or now, unless it is forsaken:
 * acting is NULL then, else who makes it. */
static void job_start(struct call *call, const struct place *place, struct handle *handle,
                      struct credentials *acting, const struct input *input,
                      enum attendance attendance)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct job *job;

    int r = job_new(call, place, handle, acting, input, attendance, &job);
    if (r == 0) {
        r = command_start(&job->command);
        if (r == 0) {
            call_leave(call);
            return;
        }
        job_drop(job);
    }
    if (r == -EAGAIN)
        text_printf(&why,
                    "%d commands run already, or all but the %d that root can have: try again once "
                    "some have ended",
                    COMMANDS_MAX, COMMANDS_KEPT);
    else if (r == -EDQUOT)
        text_printf(&why, "you run %d commands already: try again once some have ended",
                    COMMANDS_EACH);
    else if (r == -ENOMEM)
        text_puts(&why, "the daemon gets no more memory or threads: try again");
    r = refuse(call->mount, handle, place, r == -EDQUOT ? -EAGAIN : r, &why);
    if (attendance != FORSAKEN)
        call_fail(call, r);
}

static int open_events(struct call *call, const struct place *place, struct text *why,
                       struct handle **out)
{
    struct server server = place_server(call->mount, place);
    const struct owner_call at = place_call(place, &call->caller);
    _cleanup_context_ struct file_context context = {0};
    const enum feed_kind kind = place->entry->live ? FEED_LIVE : FEED_EVENTS;
    struct event_reader *events;
    char job[JOB_NAME_MAX];
    uid_t uid = 0;

    server.keeps = call->mount->owners;
    int r = context_init(&context, &server, place->process, &at);
    context_refresh(&context);
    bool of_job = r == 0 && context_job(&context);
    if (of_job)
        r = context_job_identity(&context, job, &uid);
    if (r == 0)
        r = place->process
                ? event_reader_new(call->mount->events, place->process, kind, call->caller.uid, why,
                                   &events)
                : event_reader_new_all(call->mount->events, &call->mount->access, call_who(call),
                                       kind, of_job ? job : NULL, uid, why, &events);
    return r < 0 ? r : handle_open_events(&call->mount->handles, events, out);
}

/* Renders for open. The check is made again afterwards: what was read meanwhile may be of a
 * program with more rights that the process has just executed. */
static int open_to_read(struct call *call, const struct place *place, struct credentials *who,
                        struct text *why, struct handle **out)
{
    struct handle *handle = NULL;
    struct text text;

    int r = place->process ? call_may_look(call, place->process) : 0;
    if (r < 0)
        return r;
    if (place->entry->streams) {
        r = open_events(call, place, why, &handle);
    } else if (place->entry->sized && call_exists(call, place) &&
               drafts_take(&call->mount->drafts, place_number(place), who, &text)) {
        r = handle_open_text(&call->mount->handles, call->caller.uid, &text, why, &handle);
    } else {
        r = place_render(call, place, who, &text, why);
        if (r == 0)
            r = handle_open_text(&call->mount->handles, call->caller.uid, &text, why, &handle);
    }
    if (r == 0 && place->process)
        r = call_may_look(call, place->process);
    if (r < 0) {
        handle_unref(handle);
        return r;
    }
    *out = handle;
    return 0;
}

/* Opens a file to write alone: nothing is rendered. Why it is refused is the reply, if the caller
 * may look. */
static int open_to_write(struct call *call, const struct place *place, int flags,
                         struct credentials *who, struct text *why, struct handle **out)
{
    const struct reply_key key = place_reply_key(place, who);
    struct handle *handle;

    if (!place->entry->run)
        return -EACCES;
    int r = place->process ? call_may_look(call, place->process) : 0;
    if (r == 0 && !call_exists(call, place))
        r = -ESRCH;
    if (r < 0)
        return r;
    r = handle_open_writer(&call->mount->handles, flags, place->entry->clears, &key, &handle);
    if (r < 0)
        return r;
    r = call_may_write(call, place, why);
    if (r < 0) {
        writer_fail(handle->writer, r, why, place_replies(call->mount, place));
        handle_unref(handle);
        return r;
    }
    *out = handle;
    return 0;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
    struct handle *handle = NULL;
    struct call call;

    call_begin(&call, req);
    struct node *node = call_node(&call, ino);
    int r = call_credentials(&call, &who);
    if (r == 0)
        r = writes ? open_to_write(&call, &node->place, fi->flags, who, &why, &handle)
                   : open_to_read(&call, &node->place, who, &why, &handle);
    if (r < 0) {
        /* nobody's errors may crowd out those of who may read them */
        if (who && node->place.process && call_may_look(&call, node->place.process) == 0)
            note_error(&node->place, who, r, &why);
        call_fail(&call, r);
        return;
    }
    handle->opener = credentials_ref(who);
    fi->fh = (uint64_t)(uintptr_t)handle;
    fi->direct_io = 1;
    fi->noflush = !writes;
    fi->nonseekable = (fi->flags & O_ACCMODE) == O_RDWR || handle->events; /* read like a pipe */
    nodes_opened(call.mount->nodes, node, handle->text.size, who);
    call_end(&call);
    if (fuse_reply_open(req, fi) == -ENOENT) { /* interrupted: no release will follow */
        nodes_closed(call.mount->nodes, node);
        handle_unref(handle);
    }
}

static void read_reply(fuse_req_t req, struct writer *writer, size_t size)
{
    _cleanup_free_ char *buf = malloc(size);
    if (buf)
        fuse_reply_buf(req, buf, writer_read(writer, buf, size));
    else
        fuse_reply_err(req, ENOMEM);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    /* once the reader has its answer it may close the file, before the reply's call has returned */
    struct handle *handle = handle_ref(opened(fi));
    const char *bytes = NULL;

    if (handle->events) {
        event_reader_read(handle->events, req, size, fi->flags);
    } else if (handle->writer) {
        read_reply(req, handle->writer, size);
    } else {
        size_t n = handle_read(handle, (uint64_t)offset, size, &bytes);
        fuse_reply_buf(req, bytes, n);
    }
    handle_unref(handle);
}

/* The offset means nothing: what is written follows what was written before. */
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    const struct input input = {.text = data, .size = size};
    struct handle *handle = opened(fi);
    struct call call;

    call_begin(&call, req);
    const struct place *place = &call_node(&call, ino)->place;
    int r = writer_failed(handle->writer);
    if (r == 0)
        r = call_credentials(&call, &who);
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    r = call_may_write(&call, place, &why);
    if (r == 0)
        job_start(&call, place, handle, who, &input, ATTENDED);
    else
        call_fail(&call, refuse(call.mount, handle, place, r, &why));
}

/* A close(2): the end of the input, if no other descriptor of this open file is seen. */
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    _cleanup_credentials_ struct credentials *who = NULL;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    const struct input end = {.last = true};
    struct handle *handle = opened(fi);
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    const struct place *place = &node->place;
    if (handle->writer)
        writer_flushed(handle->writer);
    if (!handle->writer || !writer_pending(handle->writer) ||
        closing_held(call.caller.pid, node->number)) {
        call_fail(&call, 0);
        return;
    }
    enum closing kind = closing_kind(call.caller.pid);
    if (kind == CLOSING_KILLED) {
        writer_drop(handle->writer);
        call_fail(&call, 0);
        return;
    }
    int r = call_credentials(&call, &who);
    if (r == 0)
        r = call_may_write(&call, place, &why);
    if (r == 0)
        job_start(&call, place, handle, who, &end, kind == CLOSING_EXITED ? EXITING : ATTENDED);
    else
        call_fail(&call, refuse(call.mount, handle, place, r, &why));
}

/* The last descriptor is gone. What a close left, since another might have been there, is run now,
 * in the name of who opened the file and of who wrote it: of this request the kernel names no
 * caller. */
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct input end = {.last = true};
    struct handle *handle = opened(fi);
    struct call call;

    call_begin(&call, req);
    struct node *node = call_node(&call, ino);
    if (handle->writer && writer_pending(handle->writer))
        job_start(&call, &node->place, handle, NULL, &end, FORSAKEN);
    if (handle->writer)
        lifetime_end(handle->writer->lifetime);
    nodes_closed(call.mount->nodes, node);
    handle_unref(handle);
    call_fail(&call, 0);
}

/* access(2) and chdir(2). */
void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct call call;
    int r = 0;

    call_begin(&call, req);
    const struct place *place = &call_node(&call, ino)->place;
    if ((mask & W_OK && !place->entry->run) || (mask & X_OK && !S_ISDIR(place->entry->mode)))
        r = -EACCES;
    else if (S_ISDIR(place->entry->mode))
        r = call_may_enter(&call, place);
    else if (place->process && mask & (R_OK | W_OK))
        r = call_may_look(&call, place->process);
    if (r == 0 && mask & W_OK)
        r = call_may_write(&call, place, &why);
    call_fail(&call, r); /* 0 is success */
}

/* Files that never block are always ready. An answer of ENOSYS, which is libfuse's own, would
 * turn poll off for the whole mount. */
void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
             struct fuse_pollhandle *handle)
{
    if (opened(fi)->events) {
        event_reader_poll(opened(fi)->events, req, handle);
        return;
    }
    if (handle)
        fuse_pollhandle_destroy(handle);
    fuse_reply_poll(req, POLLIN | POLLRDNORM | (opened(fi)->writer ? POLLOUT | POLLWRNORM : 0));
}

/* Only a command file can be truncated, to nothing, which is what it holds, or will hold: `truncate
 * -s0` and programs that do as much before they write. */
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int which,
                struct fuse_file_info *fi)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    const int others = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
    struct stat now;
    struct call call;

    call_begin(&call, req);
    const struct node *node = call_node(&call, ino);
    if (!node->place.entry->run || !(which & FUSE_SET_ATTR_SIZE) || which & others ||
        attr->st_size) {
        call_fail(&call, -EPERM);
        return;
    }
    int r = call_may_write(&call, &node->place, &why);
    if (r == 0 && node->place.entry->clears && !fi)
        r = -EPERM; /* nothing would be done: there is no open file whose close could do it */
    if (r < 0) {
        call_fail(&call, r);
        return;
    }
    if (fi && opened(fi)->writer && node->place.entry->clears) {
        _cleanup_credentials_ struct credentials *who = NULL;
        r = call_credentials(&call, &who);
        if (r == 0)
            r = writer_truncate(opened(fi)->writer, who);
        if (r < 0) {
            call_fail(&call, r);
            return;
        }
    }
    node_attributes(&call, node, &now);
    call_end(&call);
    fuse_reply_attr(req, &now, 0);
}
