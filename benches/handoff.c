// handoff BLOCKS: one thread allocates, another frees: every block crosses a queue.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 4096

static void *queue[QUEUE];
static _Alignas(64) atomic_long put;
static _Alignas(64) atomic_long taken;
static long blocks;

static void *consume(void *unused) {
    (void)unused;
    for (long i = 0; i < blocks; i++) {
        while (atomic_load_explicit(&put, memory_order_acquire) <= i) sched_yield();
        free(queue[i % QUEUE]);
        atomic_store_explicit(&taken, i + 1, memory_order_release);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    blocks = atol(words[1]);
    pthread_t id;
    unsigned random = 3;
    if (pthread_create(&id, NULL, consume, NULL)) return 1;
    for (long i = 0; i < blocks; i++) {
        random = random * 1664525u + 1013904223u;
        size_t size = 24 + (random >> 16) % 400;
        char *message = malloc(size);
        memset(message, 1, 24);
        while (i - atomic_load_explicit(&taken, memory_order_acquire) >= QUEUE) sched_yield();
        queue[i % QUEUE] = message;
        atomic_store_explicit(&put, i + 1, memory_order_release);
    }
    pthread_join(id, NULL);
    return 0;
}
