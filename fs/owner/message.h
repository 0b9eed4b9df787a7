/* How an owner process is asked: over pairs of SOCK_SEQPACKET sockets, one request at a time and
 * then its reply, which comes in pieces. Both ends are one binary.
 *
 * Who asks believes nothing of a reply: sizes are held against limits, names against the directory
 * that was asked for, and control characters never get to a terminal. */
#pragma once

#include "fs/owner/acting.h"
#include "fs/owner/child.h"
#include "fs/owner/class.h"
#include "fs/owner/sampling.h"
#include "fs/owner/serve.h"
#include "fs/process/examiner.h"

#include "schema/rows.h"

#include <assert.h>

#define OWNER_CONTROL CHILD_CONTROL   /* descriptors: where connections come from ... */
#define OWNER_CALLERS CHILD_SHARED    /* ... and the file of trace/callers.h */
#define OWNER_PIECE 61440u            /* bytes of one message */
#define OWNER_WHY_MAX 65536u          /* bytes of words */
#define OWNER_NAMES_MAX 65536u        /* in one directory ... */
#define OWNER_NAMES_BYTES (16u << 20) /* ... and so many bytes of them */

/* The first message of a process, with the descriptor of a namespace where the class has one. */
struct owner_start {
    struct owner_class class;
    int32_t tries;        /* 0, or a process: it says whether it may read that one, and ends ... */
    struct acting acting; /* ... unless it is to do something to it first, ... */
    struct sampling sampling; /* ... or to sample it */
};

/* The first message that comes back, and that of each connection: the thread at its other end. */
struct owner_hello {
    int32_t error; /* -errno: it can't be used */
    int32_t tid;
};

struct owner_request {
    struct owner_call call;
    uint32_t reads;           /* a file, in the name of `who` */
    struct access_caller who; /* complete */
    uint32_t more;            /* bytes that follow in the message (rows.h) */
    /* Rings that come with it, of the tables that are asked for. Each side has its own descriptors
     * here, and closes them. */
    uint32_t nrings;
    struct owner_ring {
        uint32_t table; /* enum recorded */
        int32_t fd;
    } rings[RECORDED_TABLES];
};
#define OWNER_MORE_MAX (OWNER_PIECE - sizeof(struct owner_request))
static_assert(sizeof(struct owner_request) < OWNER_PIECE / 4, "one message");

/* Followed by the words, the names and the text, in this order. */
struct owner_reply {
    int32_t error, noted;
    uint32_t why, nnames, names; /* bytes, but for nnames */
    uint64_t text;
};

/* Sends one message, and a descriptor with it; -1: none. Doesn't wait. -errno. */
int owner_send(int fd, const void *message, size_t size, int passed);
/* Receives one of exactly that size, and the descriptor that came with it, the caller's; -1: none.
 * -EPROTO, -EIO: nobody is there any more. */
int owner_receive(int fd, void *message, size_t size, int *passed);

/* Sends a request with its rings; doesn't wait. -errno. */
int owner_request_send(int fd, const struct owner_request *request);
/* Receives one, and waits for it. out: of OWNER_PIECE bytes. False: there is nobody any more, or it
 * is no such request; it has no rings then. */
bool owner_request_receive(int fd, struct owner_request *out);
void owner_request_close(struct owner_request *request);

/* Makes '?' of all that could drive a terminal; tabs and newlines are left alone, and `spared`; -1:
 * nothing more. */
void owner_drop_controls(struct text *text, int spared);

/* Sends the reply. -errno: nobody is there to have it. */
int owner_reply_send(int fd, const struct owner_answer *answer);

/* A reply that is being received. */
struct owner_receipt {
    const struct owner_call *call;
    struct owner_reply reply;
    bool begun;
    struct text why, names, text;
};

/* Reads the answer to OWNER_EXAMINE. -EPROTO: it is none, or no process is that. */
int owner_examined_read(const struct owner_answer *answer, struct examined *out);

/* Takes in one message. 1: there are more to come; 0: that was all of it; -EPROTO: no owner process
 * says that. -ENOMEM. */
int owner_receipt_take(struct owner_receipt *receipt, const char *message, size_t size);
/* Makes an answer of one that is complete. -EPROTO, -ENOMEM. */
int owner_receipt_answer(struct owner_receipt *receipt, struct owner_answer *answer);
void owner_receipt_deinit(struct owner_receipt *receipt);
