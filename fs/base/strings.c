#include "fs/base/strings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE 16384

struct strings {
    struct block {
        struct block *next;
        size_t used, size;
        char data[];
    } * blocks;
    size_t bytes;
};

int strings_new(struct strings **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -ENOMEM;
}

void strings_free(struct strings *strings)
{
    if (!strings)
        return;
    for (struct block *b = strings->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(strings);
}

const char *strings_add(struct strings *strings, const char *s)
{
    size_t size = strlen(s) + 1;
    struct block *b = strings->blocks;

    if (size > STRINGS_MAX - strings->bytes)
        return "...";
    strings->bytes += size;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        b = malloc(sizeof *b + room);
        if (!b)
            return NULL;
        b->used = 0;
        b->size = room;
        b->next = strings->blocks;
        strings->blocks = b;
    }
    char *to = b->data + b->used;
    memcpy(to, s, size);
    b->used += size;
    return to;
}
