/* Four threads exchange blocks through a small table as fast as they can: each
 * makes one, swaps it for another's and frees that. An address is made and freed
 * by different threads within some hundred nanoseconds.
 *
 * exchange COUNT */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PLACES 64

static _Atomic(void *) table[PLACES];
static long count;

static void *run(void *seed)
{
    unsigned state = (unsigned)(size_t)seed;
    for (long i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        void *block = malloc(16 + (state >> 24) % 64);
        free(atomic_exchange(&table[(state >> 8) % PLACES], block));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    count = atol(argv[1]);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(i + 1)))
            return 3;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < PLACES; i++)
        free(table[i]);
    return 0;
}
