/* The layout of the running kernel's structures: its type information (BTF), which it shows as a
 * file. Source: Documentation/bpf/btf.rst of Linux. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BTF_FILE "/sys/kernel/btf/vmlinux"
#define BTF_BYTES_MAX (64u << 20)
#define BTF_TYPES_MAX (1u << 21)

struct btf;

/* Reads it from a file as BTF_FILE. -ENOENT: the kernel was built without; -EINVAL: it makes no
 * sense; -E2BIG, -ENOMEM. The caller owns *out. */
int btf_read(const char *path, struct btf **out);
void btf_free(struct btf *btf);
/* The offset of a field in bytes: ("task_struct", "thread.fsbase"). Fields of unnamed structures in
 * it are found too. -ENOENT. */
int btf_field(const struct btf *btf, const char *structure, const char *field);
/* The size of a structure in bytes. -ENOENT. */
int btf_size(const struct btf *btf, const char *structure);
