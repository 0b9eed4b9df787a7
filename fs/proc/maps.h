/* /proc/PID/maps, parsed: what is mapped where. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* vm.max_map_count is 65,530 by default; beyond this the rest is not looked at. */
#define MAPS_MAX 131072

struct mapping {
    uint64_t start, end; /* [start, end) */
    uint64_t offset;     /* in the file, bytes */
    uint64_t inode;      /* 0: anonymous */
    uint32_t dev_major, dev_minor;
    bool readable, writable, executable;
    bool shared;      /* else a private copy: of a file, say, as a library's are */
    const char *path; /* "" if anonymous; may end in " (deleted)"; owned by struct maps */
};

struct maps {
    struct mapping *items; /* ascending */
    size_t n;
    char *text; /* what the paths point into */
    size_t text_size;
};

/* Reads the mappings of pid. -ESRCH: gone, or a zombie or kernel thread, which have none;
 * -EACCES: not allowed; -ENOMEM. On success the caller owns *out (maps_deinit). */
int maps_read(pid_t pid, struct maps *out);
/* Makes maps from text in the format of proc(5); takes ownership of the malloc'ed text. */
int maps_parse(char *text, size_t size, struct maps *out);
void maps_deinit(struct maps *maps);

/* The mapping that holds addr, or NULL. */
const struct mapping *maps_find(const struct maps *maps, uint64_t addr);
