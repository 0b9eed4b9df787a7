/* What is kept of targets: who was read longest ago loses it, once all together are too much. */
#include "fs/remote/frames/code.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/caches.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/native/native.h"
#include "tests/unit/check.h"

#include <unistd.h>

#define PIECES 50 /* of 1 MiB: three targets have too many, two don't */

static uint8_t memory[PIECES << 20];

static struct target *make(void)
{
    struct target *target = calloc(1, sizeof *target);

    CHECK(target);
    target->memory.pid = getpid();
    pthread_mutex_init(&target->lock, NULL);
    CHECK_INT(view_new(&target->memory, &target->view), 0);
    CHECK_INT(code_cache_new(&target->codes), 0);
    CHECK_INT(native_new(&target->memory, &target->native), 0);
    return target;
}

static void end(struct target *target)
{
    caches_leave(target);
    native_free(target->native);
    code_cache_free(target->codes);
    view_free(target->view);
    free(target);
}

static void look(struct target *target)
{
    pthread_mutex_lock(&target->lock);
    for (int i = 0; i < PIECES; i++)
        CHECK(view_read(target->view, (uint64_t)(uintptr_t)memory + ((uint64_t)i << 20), 1 << 20));
    caches_note(target);
    pthread_mutex_unlock(&target->lock);
}

static bool kept(const struct target *target) { return view_size(target->view) > 0; }

int main(void)
{
    struct target *one = make(), *two = make(), *three = make();

    memset(memory, 1, sizeof memory);
    look(one);
    look(two);
    CHECK(kept(one) && kept(two));
    look(one);
    look(three); /* two was read longest ago */
    CHECK(kept(one) && !kept(two) && kept(three));
    CHECK(caches_size() <= CACHES_BYTES_MAX);

    pthread_mutex_lock(&one->lock); /* it is being read */
    look(two);
    CHECK(kept(one) && kept(two) && !kept(three));
    pthread_mutex_unlock(&one->lock);

    end(two);
    CHECK(kept(one));
    CHECK_INT(caches_size(), view_size(one->view));
    end(one);
    end(three);
    CHECK_INT(caches_size(), 0);
    return 0;
}
