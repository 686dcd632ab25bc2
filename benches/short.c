// short THREADS: threads that do next to nothing, one after the other.
//
// Each makes two blocks and gives one back; the main thread frees the other.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *left;

static void *work(void *data) {
    void *block = malloc(100 + (size_t)data % 50);
    left = malloc(200);
    __asm__ volatile("" ::: "memory");
    free(block);
    return NULL;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    long threads = atol(words[1]);
    for (long i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, work, (void *)i)) return 3;
        pthread_join(id, NULL);
        free(left);
    }
    return 0;
}
