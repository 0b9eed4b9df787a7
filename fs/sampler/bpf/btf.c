#include "fs/sampler/bpf/btf.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NESTED_MAX 8 /* unnamed structures in each other */

struct btf {
    char *data;
    const char *strings;
    size_t strings_size;
    const struct btf_type **types; /* by id; [0] is void */
    uint32_t n;
};

/* What follows a type: bytes. -EINVAL: a kind that isn't known. */
static int tail_size(const struct btf_type *type)
{
    uint32_t n = BTF_INFO_VLEN(type->info);

    switch (BTF_INFO_KIND(type->info)) {
    case BTF_KIND_INT:
    case BTF_KIND_VAR:
    case 17: /* BTF_KIND_DECL_TAG */ return 4;
    case BTF_KIND_ARRAY: return sizeof(struct btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION: return (int)(n * sizeof(struct btf_member));
    case BTF_KIND_ENUM:
    case BTF_KIND_FUNC_PROTO: return (int)n * 8;
    case BTF_KIND_DATASEC:
    case 19: /* BTF_KIND_ENUM64 */ return (int)n * 12;
    case BTF_KIND_PTR:
    case BTF_KIND_FWD:
    case BTF_KIND_TYPEDEF:
    case BTF_KIND_VOLATILE:
    case BTF_KIND_CONST:
    case BTF_KIND_RESTRICT:
    case BTF_KIND_FUNC:
    case BTF_KIND_FLOAT:
    case 18: /* BTF_KIND_TYPE_TAG */ return 0;
    default: return -EINVAL;
    }
}

static int index_types(struct btf *btf, size_t size)
{
    struct btf_header header;

    if (size < sizeof header)
        return -EINVAL;
    memcpy(&header, btf->data, sizeof header);
    uint64_t types = (uint64_t)header.hdr_len + header.type_off, end = types + header.type_len;
    uint64_t strings = (uint64_t)header.hdr_len + header.str_off;
    if (header.magic != BTF_MAGIC || end > size || strings + header.str_len > size ||
        !header.str_len || btf->data[strings + header.str_len - 1])
        return -EINVAL;
    btf->strings = btf->data + strings;
    btf->strings_size = header.str_len;
    btf->types = calloc(header.type_len / sizeof(struct btf_type) + 1, sizeof(void *));
    if (!btf->types)
        return -ENOMEM;
    for (btf->n = 1; types + sizeof(struct btf_type) <= end; btf->n++) {
        const struct btf_type *type = (const void *)(btf->data + types);
        int tail = tail_size(type);
        if (tail < 0 || types + sizeof *type + (uint64_t)tail > end)
            return -EINVAL;
        btf->types[btf->n] = type;
        types += sizeof *type + (uint64_t)tail;
    }
    return 0;
}

static int read_file(const char *path, char **out, size_t *size)
{
    struct stat st;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= 0 || st.st_size > BTF_BYTES_MAX)
        return st.st_size <= 0 ? -EINVAL : -E2BIG;
    _cleanup_free_ char *data = malloc((size_t)st.st_size);
    if (!data)
        return -ENOMEM;
    for (*size = 0; *size < (size_t)st.st_size;) {
        ssize_t n = read(fd, data + *size, (size_t)st.st_size - *size);
        if (n <= 0)
            return n < 0 ? -errno : -EINVAL;
        *size += (size_t)n;
    }
    *out = steal_pointer(data);
    return 0;
}

int btf_read(const char *path, struct btf **out)
{
    struct btf *btf = calloc(1, sizeof *btf);
    size_t size = 0;

    if (!btf)
        return -ENOMEM;
    int r = read_file(path, &btf->data, &size);
    if (r == 0)
        r = index_types(btf, size);
    if (r < 0) {
        btf_free(btf);
        return r;
    }
    *out = btf;
    return 0;
}

void btf_free(struct btf *btf)
{
    if (!btf)
        return;
    free(btf->types);
    free(btf->data);
    free(btf);
}

static bool is_named(const struct btf *btf, uint32_t name, const char *wanted, size_t length)
{
    const char *s = name < btf->strings_size ? btf->strings + name : "";

    return strncmp(s, wanted, length) == 0 && !s[length];
}

static const struct btf_type *find_structure(const struct btf *btf, const char *name)
{
    for (uint32_t i = 1; i < btf->n; i++)
        if (BTF_INFO_KIND(btf->types[i]->info) == BTF_KIND_STRUCT &&
            is_named(btf, btf->types[i]->name_off, name, strlen(name)))
            return btf->types[i];
    return NULL;
}

/* What a type is behind its names and qualifiers, if that has members; else NULL. */
static const struct btf_type *with_members(const struct btf *btf, uint32_t id)
{
    for (int i = 0; i < NESTED_MAX && id && id < btf->n; i++) {
        const struct btf_type *type = btf->types[id];
        switch (BTF_INFO_KIND(type->info)) {
        case BTF_KIND_STRUCT:
        case BTF_KIND_UNION: return type;
        case BTF_KIND_TYPEDEF:
        case BTF_KIND_CONST:
        case BTF_KIND_VOLATILE: id = type->type; break;
        default: return NULL;
        }
    }
    return NULL;
}

/* Offset in bits; -ENOENT. */
static int64_t find_field(const struct btf *btf, const struct btf_type *type, const char *field,
                          int nested)
{
    const struct btf_member *members = (const void *)(type + 1);
    size_t length = strcspn(field, ".");

    for (uint32_t i = 0; i < BTF_INFO_VLEN(type->info); i++) {
        const struct btf_member *m = &members[i];
        int64_t at = BTF_INFO_KFLAG(type->info) ? BTF_MEMBER_BIT_OFFSET(m->offset) : m->offset;
        const struct btf_type *inner = with_members(btf, m->type);
        bool found = is_named(btf, m->name_off, field, length);
        if (found && !field[length])
            return at;
        if (!inner || nested >= NESTED_MAX || !(found || is_named(btf, m->name_off, "", 0)))
            continue;
        int64_t more = find_field(btf, inner, found ? field + length + 1 : field, nested + 1);
        if (more >= 0)
            return at + more;
    }
    return -ENOENT;
}

int btf_field(const struct btf *btf, const char *structure, const char *field)
{
    const struct btf_type *type = find_structure(btf, structure);
    int64_t bits = type ? find_field(btf, type, field, 0) : -ENOENT;

    return bits < 0 ? (int)bits : (int)(bits / 8);
}

int btf_size(const struct btf *btf, const char *structure)
{
    const struct btf_type *type = find_structure(btf, structure);

    return type ? (int)type->size : -ENOENT;
}
