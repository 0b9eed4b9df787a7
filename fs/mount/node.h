/* The nodes of the tree that the kernel knows: what FUSE calls inodes.
 *
 * A node is a place: an entry of the layout at a certain process, thread and frame. Asking for
 * the same place twice gives the same node as long as the kernel remembers it. A recycled pid, or
 * a process that executed another program, is another struct process and so another node.
 *
 * A command file's node is a new one each time: the kernel lets only one write(2) at an inode wait
 * for its answer, and those who wait for their turn can't be interrupted. */
#pragma once

#include "fs/mount/draft.h"
#include "fs/process/registry.h"
#include "fs/tree/layout.h"

struct place {
    const struct entry *entry;
    struct process *process; /* NULL outside a <pid>/ directory */
    pid_t tid;
    unsigned depth, rank;
    char word[NAME_MAX + 1]; /* "": none */
    char part[NAME_MAX + 1]; /* below profile/: which one; "": none */
};

/* The place of the number `value`, or of a word of at most NAME_MAX bytes, below a directory. */
void place_set(struct place *place, enum number_kind kind, unsigned value, const char *word);

struct node {
    struct place place;  /* holds a reference to its process */
    uint64_t number;     /* st_ino: the same for the same place, also after it was forgotten */
    uint64_t generation; /* no two nodes have the same */
    uint64_t lookups;    /* how often the kernel was told of it */
    unsigned opened;     /* open files */
    size_t size;         /* bytes that the last open rendered; 0 when none is open */
    struct credentials *opener; /* whose that was; a reference, NULL when none is open */
    struct node *next;
};

struct nodes;

/* -ENOMEM. The root is there from the start and never forgotten. */
int nodes_new(struct nodes **out);
void nodes_free(struct nodes *nodes);
struct node *nodes_root(struct nodes *nodes);

/* The node of a place, made if needed; counts as one lookup. Takes its own reference to the
 * process. -ENOMEM. */
int nodes_get(struct nodes *nodes, const struct place *place, struct node **out);
/* The kernel forgets n lookups; with the last one the node is gone. */
void nodes_forget(struct nodes *nodes, struct node *node, uint64_t n);

/* A file at the node was opened, with so many bytes of content, by whom; closed. */
void nodes_opened(struct nodes *nodes, struct node *node, size_t size, struct credentials *opener);
void nodes_closed(struct nodes *nodes, struct node *node);
/* Whether it is open, by anybody. */
bool nodes_is_open(struct nodes *nodes, const struct node *node);
/* The size of what was rendered when somebody with these credentials opened it last. False: it
 * isn't open, or others did so since. */
bool nodes_content(struct nodes *nodes, const struct node *node, const struct credentials *who,
                   size_t *size);
/* nodes_content() for the thread that opened it last, by its number and ids alone: a fraction of
 * the cost. Whether it has lost other rights since isn't asked; the content was its own. */
bool nodes_content_of_opener(struct nodes *nodes, const struct node *node,
                             const struct caller *caller, size_t *size);

/* st_ino of a place. */
uint64_t place_number(const struct place *place);
/* The path of a place below <pid>/ or exited/<pid>/ with the numbers filled in
 * ("threads/12/locals"), cut to cap. */
void place_path(const struct place *place, char *buf, size_t cap);
