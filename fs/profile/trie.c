#include "fs/profile/trie.h"

#include "fs/base/array.h"

#include <errno.h>

static uint64_t hash_node(uint32_t parent, uint32_t frame)
{
    return hash_add(hash_add(0, parent + 1), frame);
}

static uint64_t hash_frame(const struct trie_frame *frame)
{
    uint64_t hash = hash_add(frame->kind + 1, (uint64_t)frame->func << 32 | frame->file);

    return hash_add(hash, (uint64_t)(uint32_t)frame->first_line << 32 | (uint32_t)frame->line);
}

static bool same_frame(const struct trie_frame *a, const struct trie_frame *b)
{
    return a->kind == b->kind && a->func == b->func && a->file == b->file &&
           a->first_line == b->first_line && a->line == b->line;
}

static int add_root(struct trie *trie)
{
    if (ARRAY_GROW(trie->nodes, trie->nodes_alloc, 1) < 0)
        return -ENOMEM;
    trie->nodes[0] = (struct trie_node){0};
    trie->nnodes = 1;
    return 0;
}

int trie_init(struct trie *trie, size_t max_nodes, size_t max_frames)
{
    *trie = (struct trie){.max_nodes = max_nodes, .max_frames = max_frames};
    return add_root(trie);
}

void trie_deinit(struct trie *trie)
{
    for (size_t i = 0; i < trie->nnames; i++)
        free(trie->names[i]);
    free(trie->names);
    free(trie->frames);
    free(trie->nodes);
    index_clear(&trie->by_node);
    index_clear(&trie->by_frame);
    index_clear(&trie->by_name);
    *trie = (struct trie){0};
}

static int name_number(struct trie *trie, const char *name, bool make, uint32_t *out)
{
    char cut[TRIE_NAME_MAX + 1];
    size_t step = 0, size = strnlen(name, TRIE_NAME_MAX);

    memcpy(cut, name, size);
    while (size && ((unsigned char)name[size] & 0xc0) == 0x80)
        size--; /* not within a character */
    cut[size] = 0;
    uint64_t hash = hash_text(cut);
    while (index_next(&trie->by_name, hash, &step, out))
        if (!strcmp(trie->names[*out], cut))
            return 0;
    if (!make || (trie->max_names && trie->names_bytes >= trie->max_names))
        return -ENOSPC;
    if (ARRAY_GROW(trie->names, trie->names_alloc, trie->nnames + 1) < 0)
        return -ENOMEM;
    char *copy = strdup(cut);
    if (!copy || index_add(&trie->by_name, hash, (uint32_t)trie->nnames) < 0) {
        free(copy);
        return -ENOMEM;
    }
    trie->names[trie->nnames] = copy;
    *out = (uint32_t)trie->nnames++;
    trie->names_bytes += size + 16;
    return 0;
}

int trie_frame(struct trie *trie, const struct profile_frame *frame, uint32_t *id)
{
    struct trie_frame want = {.kind = frame->kind,
                              .first_line = frame->first_line,
                              .line = frame->line};
    size_t step = 0;

    bool make = !trie->max_frames || trie->nframes < trie->max_frames;
    int error = name_number(trie, frame->func ? frame->func : "", make, &want.func);
    if (!error)
        error = name_number(trie, frame->file ? frame->file : "", make, &want.file);
    if (error)
        return error;
    uint64_t hash = hash_frame(&want);
    while (index_next(&trie->by_frame, hash, &step, id))
        if (same_frame(&trie->frames[*id], &want))
            return 0;
    if (!make)
        return -ENOSPC;
    if (ARRAY_GROW(trie->frames, trie->frames_alloc, trie->nframes + 1) < 0 ||
        index_add(&trie->by_frame, hash, (uint32_t)trie->nframes) < 0)
        return -ENOMEM;
    trie->frames[trie->nframes] = want;
    *id = (uint32_t)trie->nframes++;
    return 0;
}

struct profile_frame trie_frame_of(const struct trie *trie, uint32_t id)
{
    const struct trie_frame *frame = &trie->frames[id];

    return (struct profile_frame){.kind = frame->kind,
                                  .func = trie->names[frame->func],
                                  .file = trie->names[frame->file],
                                  .first_line = frame->first_line,
                                  .line = frame->line};
}

bool trie_find(const struct trie *trie, uint32_t parent, uint32_t frame, uint32_t *node)
{
    size_t step = 0;

    while (index_next(&trie->by_node, hash_node(parent, frame), &step, node))
        if (trie->nodes[*node].parent == parent && trie->nodes[*node].frame == frame)
            return true;
    return false;
}

int trie_child(struct trie *trie, uint32_t parent, uint32_t frame, uint32_t *node)
{
    if (trie_find(trie, parent, frame, node))
        return 0;
    if (trie->max_nodes && trie->nnodes >= trie->max_nodes)
        return -ENOSPC;
    if (ARRAY_GROW(trie->nodes, trie->nodes_alloc, trie->nnodes + 1) < 0 ||
        index_add(&trie->by_node, hash_node(parent, frame), (uint32_t)trie->nnodes) < 0)
        return -ENOMEM;
    trie->nodes[trie->nnodes] = (struct trie_node){parent, frame};
    *node = (uint32_t)trie->nnodes++;
    return 0;
}

int trie_keep(struct trie *trie, uint32_t *used)
{
    struct index kept = {0};
    uint32_t n = 1;

    used[TRIE_ROOT] = 1;
    for (size_t i = trie->nnodes; --i > 0;)
        if (used[i])
            used[trie->nodes[i].parent] = 1;
    for (size_t i = 1; i < trie->nnodes; i++) {
        if (!used[i])
            continue;
        uint32_t parent = used[trie->nodes[i].parent] - 1;
        if (index_add(&kept, hash_node(parent, trie->nodes[i].frame), n) < 0) {
            index_clear(&kept);
            return -ENOMEM;
        }
        used[i] = ++n; /* one more than the number, until all are counted */
    }
    for (size_t i = 1; i < trie->nnodes; i++) {
        if (!used[i])
            continue;
        uint32_t parent = used[trie->nodes[i].parent] - 1;
        trie->nodes[used[i] - 1] = (struct trie_node){parent, trie->nodes[i].frame};
    }
    for (size_t i = 0; i < trie->nnodes; i++)
        used[i] -= used[i] > 0;
    index_clear(&trie->by_node);
    trie->by_node = kept;
    trie->nnodes = n;
    return 0;
}

int trie_clear(struct trie *trie)
{
    free(trie->nodes);
    trie->nodes = NULL;
    trie->nodes_alloc = 0;
    index_clear(&trie->by_node);
    return add_root(trie);
}

size_t trie_bytes(const struct trie *trie)
{
    return trie->nodes_alloc * sizeof *trie->nodes + trie->frames_alloc * sizeof *trie->frames +
           trie->names_alloc * sizeof *trie->names + trie->names_bytes +
           index_bytes(&trie->by_node) + index_bytes(&trie->by_frame) + index_bytes(&trie->by_name);
}
