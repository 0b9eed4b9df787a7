#include "fs/remote/heap/marks.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/budget.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static struct budget budget = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .bytes = {.all = MARKS_BYTES_MAX, .each = MARKS_BYTES_EACH, .kept = MARKS_BYTES_KEPT},
};

struct marks {
    struct target_kept kept;
    pthread_mutex_t lock;
    struct mark *items[MARKS_MAX];
    size_t n;
};

bool mark_is_name(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_')
            return false;
    return size && size < MARK_NAME_MAX &&
           (size != strlen(MARK_NOW) || memcmp(name, MARK_NOW, size));
}

/* ---- one ---- */

static void mark_free(struct mark *mark)
{
    budget_give(&budget, mark->uid, mark->bytes);
    census_deinit(&mark->census);
    free(mark);
}

void mark_unref(struct mark *mark)
{
    if (mark && __atomic_sub_fetch(&mark->refs, 1, __ATOMIC_ACQ_REL) == 0)
        mark_free(mark);
}

/* Makes one of all types but the largest. */
static int shorten(struct census *census)
{
    char *name = census->n > MARK_TYPES_MAX ? strdup(MARK_OTHERS) : NULL;

    if (census->n <= MARK_TYPES_MAX)
        return 0;
    if (!name)
        return -ENOMEM;
    struct census_type others = {.name = name};
    for (size_t i = MARK_TYPES_MAX - 1; i < census->n; i++) {
        others.count += census->types[i].count;
        others.bytes += census->types[i].bytes;
        free(census->types[i].name);
    }
    census->types[MARK_TYPES_MAX - 1] = others;
    census->n = MARK_TYPES_MAX;
    return 0;
}

static size_t size_of(const struct census *census)
{
    size_t bytes = sizeof(struct mark) + (census->n + 1) * sizeof *census->types;

    for (size_t i = 0; i < census->n; i++)
        bytes += strlen(census->types[i].name) + 1;
    return bytes;
}

static int mark_new(const char *name, uid_t uid, struct census *census, struct mark **out)
{
    struct mark *mark = calloc(1, sizeof *mark);

    if (!mark || shorten(census) < 0) {
        free(mark);
        return -ENOMEM;
    }
    size_t bytes = size_of(census);
    if (!budget_take(&budget, uid, bytes)) {
        free(mark);
        return -EDQUOT;
    }
    strncpy(mark->name, name, sizeof mark->name - 1);
    clock_gettime(CLOCK_REALTIME, &mark->when);
    scan_deinit(&census->scan);
    mark->census = *census;
    mark->refs = 1;
    mark->uid = uid;
    mark->bytes = bytes;
    *census = (struct census){0};
    *out = mark;
    return 0;
}

/* ---- those of a process ---- */

static void marks_free(struct target_kept *kept)
{
    struct marks *marks = (struct marks *)kept;

    for (size_t i = 0; i < marks->n; i++)
        mark_unref(marks->items[i]);
    pthread_mutex_destroy(&marks->lock);
    free(marks);
}

static struct marks *marks_of(struct target *target)
{
    return (struct marks *)atomic_load(&target->kept[KEPT_BY_HEAP]);
}

static struct marks *marks_make(struct target *target)
{
    struct marks *marks = marks_of(target);

    if (marks)
        return marks;
    marks = calloc(1, sizeof *marks);
    if (!marks)
        return NULL;
    marks->kept.free = marks_free;
    pthread_mutex_init(&marks->lock, NULL);
    struct target_kept *kept = target_keep(target, KEPT_BY_HEAP, &marks->kept);
    if (kept != &marks->kept)
        marks_free(&marks->kept);
    return (struct marks *)kept;
}

/* Takes one out. With the lock. */
static struct mark *take(struct marks *marks, const char *name)
{
    for (size_t i = 0; i < marks->n; i++) {
        struct mark *mark = marks->items[i];
        if (strcmp(mark->name, name) != 0)
            continue;
        memmove(&marks->items[i], &marks->items[i + 1], (--marks->n - i) * sizeof(struct mark *));
        return mark;
    }
    return NULL;
}

int marks_add(struct target *target, const char *name, uid_t uid, struct census *census)
{
    struct marks *marks = marks_make(target);
    struct mark *mark = NULL, *old = NULL;

    int r = marks ? mark_new(name, uid, census, &mark) : -ENOMEM;
    census_deinit(census);
    if (r < 0)
        return r;
    {
        _guard_mutex_(&marks->lock);
        old = take(marks, name);
        if (marks->n < MARKS_MAX)
            marks->items[marks->n++] = steal_pointer(mark);
    }
    mark_unref(old);
    r = mark ? -EDQUOT : 0;
    mark_unref(mark);
    return r;
}

int marks_drop(struct target *target, const char *name)
{
    struct marks *marks = marks_of(target);
    struct mark *mark = NULL;

    if (marks) {
        _guard_mutex_(&marks->lock);
        mark = take(marks, name);
    }
    mark_unref(mark);
    return mark ? 0 : -ENOENT;
}

struct mark *marks_get(struct target *target, const char *name)
{
    struct marks *marks = marks_of(target);

    if (!marks)
        return NULL;
    _guard_mutex_(&marks->lock);
    for (size_t i = 0; i < marks->n; i++)
        if (!strcmp(marks->items[i]->name, name)) {
            __atomic_add_fetch(&marks->items[i]->refs, 1, __ATOMIC_RELAXED);
            return marks->items[i];
        }
    return NULL;
}

size_t marks_names(struct target *target, char names[MARKS_MAX][MARK_NAME_MAX])
{
    struct marks *marks = marks_of(target);

    if (!marks)
        return 0;
    _guard_mutex_(&marks->lock);
    for (size_t i = 0; i < marks->n; i++)
        memcpy(names[i], marks->items[i]->name, MARK_NAME_MAX);
    return marks->n;
}

/* ---- comparing ---- */

static int by_name(const void *a, const void *b)
{
    const struct census_change *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int by_growth(const void *a, const void *b)
{
    const struct census_change *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->name, y->name);
}

int census_compare(const struct census *from, const struct census *to, struct census_change **out,
                   size_t *n)
{
    size_t all = 0, left = 0;
    struct census_change *changes = calloc(from->n + to->n + 1, sizeof *changes);

    if (!changes)
        return -ENOMEM;
    for (size_t i = 0; i < from->n; i++, all++)
        changes[all] = (struct census_change){from->types[i].name, -(int64_t)from->types[i].count,
                                              -(int64_t)from->types[i].bytes};
    for (size_t i = 0; i < to->n; i++, all++)
        changes[all] = (struct census_change){to->types[i].name, (int64_t)to->types[i].count,
                                              (int64_t)to->types[i].bytes};
    array_sort(changes, all, sizeof *changes, by_name);
    for (size_t i = 0, same; i < all; i += same) {
        struct census_change sum = changes[i];
        for (same = 1; i + same < all && !strcmp(changes[i + same].name, sum.name); same++) {
            sum.count += changes[i + same].count;
            sum.bytes += changes[i + same].bytes;
        }
        if (sum.count || sum.bytes)
            changes[left++] = sum;
    }
    array_sort(changes, left, sizeof *changes, by_growth);
    *out = changes;
    *n = left;
    return 0;
}
