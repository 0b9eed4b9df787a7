#include "agent/base/lock.h"

pthread_mutex_t agent_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t agent_changed = PTHREAD_COND_INITIALIZER;
pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

void lock_forget(void)
{
    pthread_mutex_init(&agent_lock, NULL);
    pthread_cond_init(&agent_changed, NULL);
    pthread_mutex_init(&fork_lock, NULL);
}
