// larson THREADS ROUNDS STEPS: blocks change hands between generations of threads.
//
// Each thread replaces random blocks of its array for STEPS steps; then a new
// thread takes the array over, so that blocks are freed by threads that did
// not allocate them, while both run. After the server simulation of Larson and
// Krishnan (ISMM 1998); written anew.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 2000

struct share {
    void *slots[SLOTS];
    unsigned random;
};

static int rounds;
static long steps;

static unsigned next_random(struct share *share) {
    share->random = share->random * 1664525u + 1013904223u;
    return share->random >> 8;
}

static void *generation(void *data) {
    struct share *share = data;
    for (long i = 0; i < steps; i++) {
        unsigned slot = next_random(share) % SLOTS;
        free(share->slots[slot]);
        share->slots[slot] = malloc(16 + next_random(share) % 500);
    }
    return NULL;
}

static void *lineage(void *data) {
    for (int i = 0; i < rounds; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, generation, data)) abort();
        pthread_join(id, NULL);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int threads = atoi(words[1]);
    rounds = atoi(words[2]);
    steps = atol(words[3]);
    if (threads < 1 || threads > 64) return 2;
    struct share *shares = calloc(threads, sizeof *shares);
    pthread_t ids[64];
    for (int i = 0; i < threads; i++) {
        shares[i].random = 17 + i;
        pthread_create(&ids[i], NULL, lineage, &shares[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++)
        for (int slot = 0; slot < SLOTS; slot++) free(shares[i].slots[slot]);
    free(shares);
    return 0;
}
