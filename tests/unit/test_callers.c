#include "fs/trace/callers.h"
#include "tests/unit/check.h"

#include <pthread.h>

#define THREADS 8
#define ROUNDS 20000

/* Each thread is in the set exactly while its request is. */
static void *churn(void *arg)
{
    pid_t tid = 1000 + (pid_t)(size_t)arg;
    struct callers_entry outer, inner;

    for (int i = 0; i < ROUNDS; i++) {
        callers_add(&outer, tid);
        callers_add(&inner, tid); /* a thread of another mount's namespace may look the same */
        CHECK(callers_has(tid));
        callers_remove(&outer);
        CHECK(callers_has(tid));
        callers_remove(&inner);
        CHECK(!callers_has(tid));
    }
    return NULL;
}

int main(void)
{
    struct callers_entry a, b, c, unseen;
    pthread_t threads[THREADS];

    CHECK(!callers_has(1));
    callers_add(&a, 1);
    callers_add(&b, 2);
    callers_add(&c, 3);
    callers_remove(&b);
    CHECK(callers_has(1) && !callers_has(2) && callers_has(3));
    callers_remove(&b); /* twice is once */
    callers_remove(&c);
    CHECK(callers_has(1) && !callers_has(3));
    callers_remove(&a);
    CHECK(!callers_has(1));

    callers_add(&unseen, 0);
    CHECK(!callers_has(0));
    callers_remove(&unseen);

    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
