/* What is open: a file's content as rendered by open, which every read slices; what is written to a
 * command file; a place in a stream of events; or a directory's names as they were at opendir. */
#pragma once

#include "fs/mount/listing.h"
#include "fs/mount/writer.h"

struct event_reader;

/* The limits of open files and replies together: whoever may read could otherwise fill the daemon's
 * memory. */
#define HANDLES_BYTES_MAX (512u << 20)  /* of all users ... */
#define HANDLES_BYTES_EACH (128u << 20) /* ... of one user, and ... */
#define HANDLES_BYTES_KEPT (128u << 20) /* ... for root alone */

struct handle {
    struct credentials *opener;  /* a reference; NULL of a directory */
    struct text text;            /* of a file ... */
    uid_t uid;                   /* ... whose bytes it has */
    struct listing *listing;     /* of a directory, else NULL */
    struct event_reader *events; /* of a file that streams, else NULL */
    struct writer *writer;       /* of a command file that is open for writing, else NULL */
    atomic_uint refs;            /* the kernel's, and one for each answer that isn't sent yet */
    struct handles *handles;
    struct handle *previous, *next;
};

/* All that is open, so that an end while files are open leaves nothing behind. */
struct handles {
    pthread_mutex_t lock;
    struct handle *first;
    uint64_t numbered; /* the last that was opened for writing */
    struct budget budget;
};

void handles_init(struct handles *handles);
/* Frees those that were never released: nobody can ask for them any more. The budget is left to
 * the caller: replies have their bytes out of it. */
void handles_deinit(struct handles *handles);

/* Opens a file with a content that was rendered; takes it over, also on failure. The caller owns
 * one reference of *out. uid: whose share of the limits above its bytes are of. -ENFILE: there are
 * no more of them, and why says so; -ENOMEM. */
int handle_open_text(struct handles *handles, uid_t uid, struct text *text, struct text *why,
                     struct handle **out);
/* Opens a command file for writing: nothing is rendered. flags are those of open(2); clears:
 * see tree/layout.h. -ENOMEM. */
int handle_open_writer(struct handles *handles, int flags, bool clears, const struct reply_key *key,
                       struct handle **out);
/* Takes over a reader of events, also on failure: -ENOMEM. */
int handle_open_events(struct handles *handles, struct event_reader *events, struct handle **out);
/* Takes over a listing, also on failure: -ENOMEM. */
int handle_open_directory(struct handles *handles, struct listing *listing, struct handle **out);
struct handle *handle_ref(struct handle *handle);
void handle_unref(struct handle *handle);

/* The bytes of a file at offset, at most size of them; 0 at the end. *out points
 * into the handle. */
size_t handle_read(const struct handle *handle, uint64_t offset, size_t size, const char **out);
