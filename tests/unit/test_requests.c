#include "fs/trace/callers.h"
#include "tests/unit/check.h"

#include <pthread.h>

#define THREADS 8
#define ROUNDS 20000

/* Each thread is in the set exactly while its request is. */
static void *churn(void *arg)
{
    pid_t tid = 1000 + (pid_t)(size_t)arg;
    struct request outer, inner;

    for (int i = 0; i < ROUNDS; i++) {
        request_begin(&outer, tid);
        request_begin(&inner, tid); /* a thread of another mount's namespace may look the same */
        CHECK(requests_waiting(tid));
        request_end(&outer);
        CHECK(requests_waiting(tid));
        request_end(&inner);
        CHECK(!requests_waiting(tid));
    }
    return NULL;
}

int main(void)
{
    struct request a, b, c, unseen;
    pthread_t threads[THREADS];

    CHECK(!requests_waiting(1));
    request_begin(&a, 1);
    request_begin(&b, 2);
    request_begin(&c, 3);
    request_end(&b);
    CHECK(requests_waiting(1) && !requests_waiting(2) && requests_waiting(3));
    request_end(&b); /* twice is once */
    request_end(&c);
    CHECK(requests_waiting(1) && !requests_waiting(3));
    request_end(&a);
    CHECK(!requests_waiting(1));

    request_begin(&unseen, 0);
    CHECK(!requests_waiting(0));
    request_end(&unseen);

    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
