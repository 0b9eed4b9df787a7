/* What is mapped at an address of a process at this moment, asked one at a time. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct vma {
    uint64_t start, end, offset, inode;
};

struct vmas;

/* The mappings of process pid, not looked for yet. -ENOMEM. */
int vmas_new(pid_t pid, struct vmas **out);
void vmas_free(struct vmas *vmas);
/* What was found may be old from now on. */
void vmas_forget(struct vmas *vmas);
/* The mapping that holds addr. -ENOENT: none; -ESRCH, -EACCES, -ENOMEM. Source: PROCMAP_QUERY of
 * proc(5), kernel 6.11; before that, all mappings are read once after each vmas_forget(). */
int vma_find(struct vmas *vmas, uint64_t addr, struct vma *out);
