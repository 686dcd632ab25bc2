// tree CALLS PASSES: hundreds of thousands of distinct stacks, as a compiler makes them.
//
// 64 functions call one another along a pseudo-random call tree of CALLS calls
// that is the same in every pass; each call allocates one block, which lives
// for the next 4,096 allocations. Each call makes two new stack nodes in the
// first pass: its own frame and that of its call of malloc.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEPT 4096

static void *kept[KEPT];
static unsigned long next;
static long left;

typedef void step(unsigned long seed, int depth);
static step *const steps[64];

static inline unsigned long mix(unsigned long x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdul;
    x ^= x >> 33;
    return x;
}

// Every function has its own code, so that each has its own return addresses.
#define STEP(n)                                                                                              \
    __attribute__((noinline, noclone)) static void step_##n(unsigned long seed, int depth) {                 \
        if (left <= 0) return;                                                                               \
        left--;                                                                                              \
        unsigned long slot = next++ % KEPT;                                                                  \
        free(kept[slot]);                                                                                    \
        kept[slot] = malloc(24 + (seed >> 40) % (100 + n));                                                  \
        unsigned children = depth < 12 ? 2 : depth < 45 ? (seed >> 20) % 3 : 0;                              \
        for (unsigned i = 0; i < children; i++) {                                                            \
            unsigned long child = mix(seed + i + 0x9e3779b97f4a7c15ul * (n + 1));                            \
            steps[child % 64](child, depth + 1);                                                             \
        }                                                                                                    \
        __asm__ volatile("");                                                                                \
    }
#define STEPS(t)                                                                                             \
    STEP(t##0) STEP(t##1) STEP(t##2) STEP(t##3) STEP(t##4) STEP(t##5) STEP(t##6) STEP(t##7)
STEPS(1) STEPS(2) STEPS(3) STEPS(4) STEPS(5) STEPS(6) STEPS(7) STEPS(8)
#define NAMES(t)                                                                                             \
    step_##t##0, step_##t##1, step_##t##2, step_##t##3, step_##t##4, step_##t##5, step_##t##6, step_##t##7
static step *const steps[64] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7), NAMES(8)};

int main(int count, char **words) {
    if (count < 3) return 2;
    long calls = atol(words[1]);
    int passes = atoi(words[2]);
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int pass = 0; pass < passes; pass++) {
        left = calls;
        for (unsigned long root = 1; left > 0; root++) steps[root % 64](mix(root), 0);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    long events = 2 * (long)next - KEPT;
    printf("loop %ld %ld\n", (to.tv_sec - from.tv_sec) * 1000000000L + (to.tv_nsec - from.tv_nsec), events);
    return 0;
}
