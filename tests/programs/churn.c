/* Many short threads, one after the other; each makes two blocks and gives
 * back one, main gives back the other. argv: counts N. */
#include "known.h"
#include <pthread.h>
#include <stdlib.h>

static void *left;
static int working;

static void *work(void *argument)
{
    size_t size = 1 + (size_t)(long)argument % 300;
    if (working) {
        void *p = keep(malloc(size));
        known_alloc(size);
        left = keep(malloc(2 * size));
        known_alloc(2 * size);
        known_free(size);
        free(p);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    long n = atol(argv[2]);
    working = n > 1;
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i))
            return 3;
        pthread_join(thread, NULL);
        if (working) {
            known_free(2 * (1 + (size_t)i % 300));
            free(left);
        }
    }
    known_write(argv[1]);
    return 0;
}
