/* Stacks that share their outer frames: a node is a frame below another node. Frames and their
 * names are kept once. Nothing is taken out but by trie_keep(). Not thread-safe. */
#pragma once

#include "fs/profile/frame.h"
#include "fs/profile/index.h"

/* Longer names are cut. */
#define TRIE_NAME_MAX 1024
/* The node that stands for no stack: the parent of outermost frames. */
#define TRIE_ROOT 0

struct trie {
    size_t max_nodes, max_frames, max_names; /* 0: no limit; the last one in bytes */
    struct trie_node {
        uint32_t parent, frame; /* a parent's number is smaller than its children's */
    } * nodes;
    size_t nnodes, nodes_alloc;
    struct trie_frame {
        enum profile_frame_kind kind;
        uint32_t func, file;
        int first_line, line;
    } * frames;
    size_t nframes, frames_alloc;
    char **names;
    size_t nnames, names_alloc, names_bytes;
    struct index by_node, by_frame, by_name;
};

/* Makes a trie with its root. -ENOMEM. */
int trie_init(struct trie *trie, size_t max_nodes, size_t max_frames);
void trie_deinit(struct trie *trie);

/* The number of a frame, new if needed. -ENOSPC: too many; -ENOMEM. */
int trie_frame(struct trie *trie, const struct profile_frame *frame, uint32_t *id);
/* The frame with a number; its names belong to the trie. */
struct profile_frame trie_frame_of(const struct trie *trie, uint32_t id);
/* The node of a frame below a parent, new if needed. -ENOSPC: too many; -ENOMEM. */
int trie_child(struct trie *trie, uint32_t parent, uint32_t frame, uint32_t *node);
/* trie_child() if it is there. */
bool trie_find(const struct trie *trie, uint32_t parent, uint32_t frame, uint32_t *node);
/* Keeps the nodes that used[] names, and what is outside of them; used[node] becomes the new
 * number, and means nothing where the node has gone. Frames stay. -ENOMEM: nothing changed. */
int trie_keep(struct trie *trie, uint32_t *used);
/* Forgets all nodes but the root; frames stay. -ENOMEM. */
int trie_clear(struct trie *trie);
/* Bytes of memory that it takes, near enough. */
size_t trie_bytes(const struct trie *trie);
