/* What a process tells that samples another one (sampling.h): a stream of what its store would
 * keep, in messages of whole items.
 *
 * Who is told believes nothing of it: numbers are held against limits, names lose their control
 * characters, and whatever is said is about the one store that the process was begun for. */
#pragma once

#include "fs/sampler/sampler.h"

#include "fs/profile/store.h"

#define SAMPLED_PIECE 61440u     /* bytes of one message */
#define SAMPLED_NAME_MAX 16384u  /* bytes of a function's or a file's name; more are cut off */
#define SAMPLED_FRAMES_MAX 4096u /* of a stack; more than a store keeps */
#define SAMPLED_WEIGHT_MAX (1ull << 56) /* of all samples together: so sums of it stay numbers */

/* Items: each begins so, and is followed by its own struct, and then by what that counts. */
enum item_kind {
    ITEM_FRAME = 1,
    ITEM_SAMPLE,
    ITEM_LOST,
    ITEM_NAME,
    ITEM_BEGUN,
    ITEM_FIGURES,
    ITEM_COLLECTED
};
struct item {
    uint32_t kind; /* enum item_kind */
    uint32_t size; /* bytes, these included; a multiple of 8 */
};
struct item_frame {
    uint32_t kind; /* enum profile_frame_kind */
    int32_t first_line, line;
    uint32_t func, file; /* bytes that follow */
};
struct item_sample {
    uint64_t when, count;
    int64_t weight;
    int32_t tid;
    uint32_t kind, gil, torn, n, unused; /* n: frames that follow, uint32_t each */
};
struct item_name {
    int32_t tid;
    uint32_t size; /* bytes that follow */
};
struct item_begun {
    int32_t error;
    uint32_t size; /* bytes of words that follow */
};
struct item_figures {
    uint64_t target_ns, daemon_ns;
    uint32_t native, missing, over;
    char note[sizeof(((struct sampler_figures *)NULL)->note)];
};

/* ---- who tells ---- */

struct sampled_writer {
    pthread_mutex_t lock; /* guards what follows */
    int fd;
    bool failed; /* nobody is there any more */
    size_t size;
    char *bytes; /* SAMPLED_PIECE of them, owned */
    struct store_relay relay;
};

/* Has a store tell what it is told. -ENOMEM. */
int sampled_writer_init(struct sampled_writer *writer, int fd, struct store *store);
/* Whether it has begun: 0, or -errno and words; the first thing to be told but for frames. */
void sampled_write_begun(struct sampled_writer *writer, int error, const struct text *why);
void sampled_write_figures(struct sampled_writer *writer, const struct sampler_figures *figures,
                           bool over);
/* That all is told which was asked for by that number. */
void sampled_write_collected(struct sampled_writer *writer, uint32_t number);
/* Sends what is there. False: nobody is there any more. */
bool sampled_flush(struct sampled_writer *writer);

/* ---- who is told ---- */

struct sampled {
    struct store *store; /* borrowed */
    uint64_t since;      /* no sample is older: CLOCK_MONOTONIC, ns */
    unsigned modes;      /* that are sampled */
    uint32_t *ids;       /* by the other's numbers of frames, from the first that is new */
    size_t n, alloc;
    uint64_t weight; /* of all samples, so far */
    bool begun;
    int error; /* what it has said as it began */
    struct text why;
    struct sampler_figures figures;
    uint32_t collected;
    bool over; /* it has ended by itself */
};

/* Takes in one message. -EPROTO: nothing says that which samples a process; -ENOMEM. */
int sampled_take(struct sampled *sampled, const char *message, size_t size);
void sampled_deinit(struct sampled *sampled);
