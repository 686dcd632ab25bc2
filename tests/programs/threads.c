/* Four threads, N blocks each. All blocks are alive at the barrier: the peak is
 * known whatever the order. Then each thread gives back its neighbour's blocks,
 * all but every tenth. argv: counts N ("0": the threads alone). */
#include "known.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4 };

static long n;
static void **blocks[THREADS];
static struct known counted[THREADS];
static pthread_barrier_t barrier;

static size_t size_of(int thread, long i) { return (size_t)(16 + (i * 7 + thread) % 500); }

static void *work(void *argument)
{
    int me = (int)(long)argument;
    struct known *k = &counted[me];
    for (long i = 0; i < n; i++) {
        size_t size = size_of(me, i);
        blocks[me][i] = keep(malloc(size));
        known_alloc_in(k, size);
        if (i % 5 == 0) { /* churn that does not change the peak: smaller, given back at once */
            known_free_in(k, size);
            free(blocks[me][i]);
            blocks[me][i] = keep(malloc(size));
            known_alloc_in(k, size);
        }
    }
    pthread_barrier_wait(&barrier);
    int other = (me + 1) % THREADS;
    for (long i = 0; i < n; i++) {
        if (i % 10 == 0)
            continue;
        known_free_in(k, size_of(other, i));
        free(blocks[other][i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    n = atol(argv[2]);
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    static void *storage[THREADS][150001];
    if (n > 150000)
        return 3;
    for (int t = 0; t < THREADS; t++)
        blocks[t] = storage[t];
    for (long t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, work, (void *)t))
            return 4;
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
        known_add(&counted[t]);
    for (int t = 0; t < THREADS; t++)
        for (long i = 0; i < n; i++)
            known.peak += (long)size_of(t, i);
    known_write(argv[1]);
    return 0;
}
