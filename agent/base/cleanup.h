/* Scope guards: what a block acquires is released however the block is left. */
#pragma once

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free(void *p) { free(*(void **)p); }
static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
static inline void cleanup_closedir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
static inline void cleanup_unlock(pthread_mutex_t **lock)
{
    if (*lock)
        pthread_mutex_unlock(*lock);
}
static inline pthread_mutex_t *lock_and_return(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

/* Frees a heap pointer at the end of the scope. */
#define _cleanup_free_ _cleanup_(cleanup_free)
/* Closes a file descriptor at the end of the scope; negative ones are left alone. */
#define _cleanup_close_ _cleanup_(cleanup_close)
/* Closes a directory at the end of the scope. */
#define _cleanup_closedir_ _cleanup_(cleanup_closedir)
/* clang-format off */
/* Holds a mutex for the rest of the scope. */
#define _guard_mutex_(lock) \
    __attribute__((unused)) _cleanup_(cleanup_unlock) \
        pthread_mutex_t *guard_ = lock_and_return(lock)
/* Hands a pointer on and disarms its guard. */
#define steal_pointer(p) ({ __auto_type stolen_ = (p); (p) = NULL; stolen_; })
/* Hands a file descriptor on and disarms its guard. */
#define steal_fd(fd) ({ int stolen_ = (fd); (fd) = -1; stolen_; })
/* clang-format on */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
