#include "contrib/dap/paths.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/member.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

void paths_init(struct paths *paths)
{
    *paths = (struct paths){.roots = json_array(), .asked = json_array()};
    pthread_mutex_init(&paths->lock, NULL);
}

/* A new text: without / at its end, and . for the directory of the process. */
static json_t *tidy(const struct paths *paths, const char *root)
{
    size_t n = strlen(root);

    if ((!strcmp(root, ".") || !strcmp(root, "./")) && paths->cwd)
        return json_string(paths->cwd);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return json_stringn(root, n);
}

void paths_set(struct paths *paths, pid_t pid, const char *cwd, const char *os,
               const json_t *mappings)
{
    const char *slash = os ? strrchr(os, '/') : NULL;
    json_t *mapping;
    size_t i;

    paths->pid = pid;
    paths->cwd = cwd ? strdup(cwd) : NULL;
    paths->library = slash ? strndup(os, (size_t)(slash + 1 - os)) : NULL;
    json_array_clear(paths->roots);
    json_array_foreach(mappings, i, mapping)
    {
        const char *local = member_text(mapping, "localRoot"),
                   *remote = member_text(mapping, "remoteRoot");
        if (local && remote && *local && *remote)
            json_array_append_new(paths->roots,
                                  json_pack("[oo]", tidy(paths, local), tidy(paths, remote)));
    }
}

/* What `from` has in front of a path, `to` instead; NULL: the path isn't below it. */
static char *exchange(const char *path, const char *from, const char *to)
{
    size_t size = strcmp(from, "/") ? strlen(from) : 0;
    char *out;

    if (strncmp(path, from, size) != 0 || (path[size] && path[size] != '/'))
        return NULL;
    return asprintf(&out, "%s%s", strcmp(to, "/") ? to : "", path + size) < 0 ? NULL : out;
}

/* Maps a path by the first mapping that fits; NULL: none does. from, to: which of the two is
 * which. */
static char *map(const struct paths *paths, const char *path, size_t from, size_t to)
{
    json_t *roots;
    size_t i;

    json_array_foreach(paths->roots, i, roots)
    {
        char *mapped = exchange(path, json_string_value(json_array_get(roots, from)),
                                json_string_value(json_array_get(roots, to)));
        if (mapped)
            return mapped;
    }
    return NULL;
}

char *paths_remote(struct paths *paths, const json_t *source)
{
    const char *path = member_text(source, "path");
    char *name = paths_numbered(paths, member_number(source, "sourceReference"));

    if (name || !path)
        return name;
    char *mapped = map(paths, path, 0, 1);
    return mapped ? mapped : strdup(path);
}

char *paths_whole(const struct paths *paths, const char *name)
{
    char *whole;

    if (!*name || *name == '<' || *name == '/' || !paths->cwd)
        return strdup(name);
    return asprintf(&whole, "%s/%s", paths->cwd, name) < 0 ? NULL : whole;
}

bool paths_are_same(struct paths *paths, const char *a, const char *b)
{
    _cleanup_free_ char *first = a ? paths_whole(paths, a) : NULL;
    _cleanup_free_ char *second = b ? paths_whole(paths, b) : NULL;

    return first && second && !strcmp(first, second);
}

bool paths_is_own(const struct paths *paths, const char *name)
{
    return strncmp(name, "<frozen", 7) != 0 && !strstr(name, "/site-packages/") &&
           !strstr(name, "/dist-packages/") &&
           !(paths->library && !strncmp(name, paths->library, strlen(paths->library)));
}

static int64_t number(struct paths *paths, const char *name)
{
    _guard_mutex_(&paths->lock);
    json_t *known;
    size_t i;

    json_array_foreach(paths->asked, i,
                       known) if (!strcmp(json_string_value(known), name)) return (int64_t)i +
        1;
    return json_array_append_new(paths->asked, text_of(name, strlen(name))) < 0
               ? 0
               : (int64_t)json_array_size(paths->asked);
}

/* Whether the client, which is on this machine, finds by this name what the process does. */
static bool is_here(const struct paths *paths, const char *name)
{
    char theirs[PATH_MAX];
    struct stat here, there;

    if (stat(name, &here) < 0 || access(name, R_OK) < 0)
        return false;
    snprintf(theirs, sizeof theirs, "/proc/%d/root%s", (int)paths->pid, name);
    return stat(theirs, &there) < 0 || (here.st_dev == there.st_dev && here.st_ino == there.st_ino);
}

json_t *paths_source(struct paths *paths, const char *name)
{
    _cleanup_free_ char *remote = paths_whole(paths, name);
    bool is_file = *name && *name != '<';
    _cleanup_free_ char *mapped = remote && is_file ? map(paths, remote, 1, 0) : NULL;
    const char *path = mapped ? mapped : remote ? remote : name;
    const char *slash = is_file ? strrchr(path, '/') : NULL, *end = slash ? slash + 1 : path;
    json_t *source = json_object();
    int64_t reference = 0;

    json_object_set_new(source, "name", text_of(end, strlen(end)));
    if (is_file)
        json_object_set_new(source, "path", text_of(path, strlen(path)));
    if (!mapped && !(is_file && is_here(paths, path)))
        reference = number(paths, path);
    json_object_set_new(source, "sourceReference", json_integer(reference));
    return source;
}

char *paths_numbered(struct paths *paths, int64_t number)
{
    _guard_mutex_(&paths->lock);
    const char *name =
        number > 0 ? json_string_value(json_array_get(paths->asked, (size_t)number - 1)) : NULL;

    return name ? strdup(name) : NULL;
}
