#include "fs/remote/moment/caches.h"

#include "agent/base/cleanup.h"
#include "fs/remote/frames/code.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/native/native.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken after a target's own */
static struct target *newest, *oldest;
static size_t total;

static void unlist(struct target *target)
{
    struct target **from_newer = target->newer ? &target->newer->older : &newest,
                  **from_older = target->older ? &target->older->newer : &oldest;

    if (!target->newer && newest != target)
        return; /* it isn't listed */
    *from_newer = target->older;
    *from_older = target->newer;
    target->newer = target->older = NULL;
    total -= target->cached;
    target->cached = 0;
}

/* Unless it is being read just now. */
static void drop(struct target *target)
{
    if (pthread_mutex_trylock(&target->lock))
        return;
    native_forget(target->native);
    code_cache_clear(target->codes);
    imports_forget(target);
    view_reset(target->view);
    target->along = NULL;
    unlist(target);
    pthread_mutex_unlock(&target->lock);
}

static size_t count(struct target *target)
{
    return native_size(target->native) + code_cache_size(target->codes) + imports_size(target) +
           view_size(target->view);
}

static void rest(struct target *target)
{
    if (pthread_mutex_trylock(&target->lock))
        return;
    native_rest(target->native);
    view_rest(target->view);
    total -= target->cached;
    target->cached = count(target);
    total += target->cached;
    pthread_mutex_unlock(&target->lock);
}

void caches_rest(void)
{
    _guard_mutex_(&lock);
    for (struct target *target = newest; target; target = target->older)
        rest(target);
}

void caches_note(struct target *target)
{
    _guard_mutex_(&lock);
    unlist(target);
    target->cached = count(target);
    total += target->cached;
    target->older = newest;
    if (newest)
        newest->newer = target;
    else
        oldest = target;
    newest = target;
    for (struct target *old = oldest, *next; old != target && total > CACHES_BYTES_MAX;
         old = next) {
        next = old->newer;
        drop(old);
    }
}

void caches_leave(struct target *target)
{
    _guard_mutex_(&lock);
    unlist(target);
}

size_t caches_size(void)
{
    _guard_mutex_(&lock);
    return total;
}
