#include "contrib/web/visits.h"

#include "agent/base/cleanup.h"
#include "contrib/web/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX 256 /* of one page: breakpoints, ctl, and those of threads that it has led */

struct visit {
    char name[VISIT_NAME_MAX + 1];
    unsigned uses; /* by its page, and by each request that has a file of it */
    unsigned nfiles;
    struct visit_file *files;
    struct visit *next;
};

/* With the lock. */
static struct visit *find(struct visits *visits, const char *name)
{
    struct visit *visit = visits->first;
    while (visit && strcmp(visit->name, name))
        visit = visit->next;
    return visit;
}

struct visit *visit_begin(struct visits *visits, const char *name)
{
    struct visit *visit = strlen(name) <= VISIT_NAME_MAX ? calloc(1, sizeof *visit) : NULL;

    if (!visit)
        return NULL;
    strcpy(visit->name, name);
    visit->uses = 1;
    pthread_mutex_lock(&visits->lock);
    bool is_there = find(visits, name);
    if (!is_there) {
        visit->next = visits->first;
        visits->first = visit;
    }
    pthread_mutex_unlock(&visits->lock);
    if (!is_there)
        return visit;
    free(visit);
    return NULL;
}

static void free_visit(struct visit *visit)
{
    for (struct visit_file *file = visit->files, *next; file; file = next) {
        next = file->next;
        close(file->fd);
        pthread_mutex_destroy(&file->lock);
        free(file->path);
        free(file);
    }
    free(visit);
}

static void unref(struct visits *visits, struct visit *visit)
{
    pthread_mutex_lock(&visits->lock);
    bool is_last = --visit->uses == 0;
    pthread_mutex_unlock(&visits->lock);
    if (is_last)
        free_visit(visit);
}

void visit_leave(struct visits *visits, struct visit *visit)
{
    pthread_mutex_lock(&visits->lock);
    struct visit **at = &visits->first;
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    pthread_mutex_unlock(&visits->lock);
    unref(visits, visit);
}

/* Adds a file to a visit that hasn't it yet. With the lock. */
static int add_file(struct visit *visit, const char *mount, const char *path,
                    struct visit_file **out)
{
    _cleanup_free_ struct visit_file *file = calloc(1, sizeof *file);
    _cleanup_free_ char *copy = strdup(path);

    if (!file || !copy)
        return -ENOMEM;
    if (visit->nfiles == FILES_MAX)
        return -EMFILE;
    int fd = files_open(mount, path, O_RDWR | O_APPEND);
    if (fd < 0)
        return fd;
    *file = (struct visit_file){.visit = visit,
                                .lock = PTHREAD_MUTEX_INITIALIZER,
                                .path = steal_pointer(copy),
                                .fd = fd,
                                .next = visit->files};
    visit->nfiles++;
    visit->files = *out = steal_pointer(file);
    return 0;
}

int visit_file(struct visits *visits, const char *name, const char *mount, const char *path,
               struct visit_file **out)
{
    int r = -ESTALE;

    pthread_mutex_lock(&visits->lock);
    struct visit *visit = find(visits, name);
    if (visit) {
        struct visit_file *file = visit->files;
        while (file && strcmp(file->path, path))
            file = file->next;
        *out = file;
        r = file ? 0 : add_file(visit, mount, path, out);
        if (r == 0)
            visit->uses++;
    }
    pthread_mutex_unlock(&visits->lock);
    if (r == 0)
        pthread_mutex_lock(&(*out)->lock);
    return r;
}

void visit_file_done(struct visits *visits, struct visit_file *file)
{
    struct visit *visit = file->visit;

    pthread_mutex_unlock(&file->lock);
    unref(visits, visit);
}
