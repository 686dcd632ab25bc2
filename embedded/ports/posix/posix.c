/* See highwater_mdd_posix.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE /* pthread_getattr_np, pthread_getname_np */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "highwater_mdd_posix.h"
#include "highwater_mdd.h"
#include "highwater_mdd_send.h"

#if HIGHWATER_MDD

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned depth;
static __thread sigset_t before;
static __thread uintptr_t end_of_stack;
static __thread char name[16];

void highwater_mdd_posix_lock(void)
{
    if (depth++ == 0) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        pthread_mutex_lock(&mutex);
    }
}

void highwater_mdd_posix_unlock(void)
{
    if (--depth == 0) {
        pthread_mutex_unlock(&mutex);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
}

uint64_t highwater_mdd_posix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)(t.tv_nsec / 1000000);
}

uintptr_t highwater_mdd_posix_thread(void) { return (uintptr_t)pthread_self(); }

const char *highwater_mdd_posix_thread_name(void)
{
    if (pthread_getname_np(pthread_self(), name, sizeof(name)))
        name[0] = 0;
    return name;
}

uint32_t highwater_mdd_posix_run_id(void)
{
    struct timespec t;
    uint32_t id;
    clock_gettime(CLOCK_REALTIME, &t);
    id = (uint32_t)t.tv_sec * 1000003u ^ (uint32_t)t.tv_nsec ^ (uint32_t)getpid() << 16;
    return id ? id : 1;
}

uintptr_t highwater_mdd_posix_stack_end(uintptr_t sp)
{
    (void)sp;
    if (!end_of_stack) {
        /* pthread_getattr_np may allocate: the first call of a thread goes without,
         * by the value that says "nowhere" while it runs */
        pthread_attr_t attr;
        void *low;
        size_t bytes;
        end_of_stack = 1;
        if (!pthread_getattr_np(pthread_self(), &attr)) {
            if (!pthread_attr_getstack(&attr, &low, &bytes))
                end_of_stack = (uintptr_t)low + bytes;
            pthread_attr_destroy(&attr);
        }
    }
    return end_of_stack;
}

static int put(void *context, const void *data, size_t bytes)
{
    const char *b = data;
    while (bytes) {
        ssize_t n = write(*(int *)context, b, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return errno ? errno : EIO;
        b += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int highwater_mdd_posix_dump(const char *file)
{
    int failed, fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    failed = highwater_mdd_send(put, &fd);
    if (close(fd) && !failed)
        failed = errno;
    return failed;
}

#else

typedef int highwater_mdd_posix_is_off;

#endif
