// micro DEPTH PAIRS THREADS: malloc and free in pairs from 50 call sites under DEPTH frames.
//
// The plainest load there is: nothing but the heap, so that the cost an event
// can be read directly. The last line of the output, `loop CPU_NS EVENTS`, is
// measured inside the program after a warm-up: start-up, first touches of
// fresh pages and the end of the recording are not in it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SITE(n)                                                                                              \
    __attribute__((noinline)) static void *site_##n(size_t size) {                                           \
        void *block = malloc(size);                                                                          \
        __asm__ volatile("" ::: "memory");                                                                   \
        return block;                                                                                        \
    }
#define SITES(t)                                                                                             \
    SITE(t##0) SITE(t##1) SITE(t##2) SITE(t##3) SITE(t##4) SITE(t##5) SITE(t##6) SITE(t##7) SITE(t##8) SITE(t##9)
SITES(1) SITES(2) SITES(3) SITES(4) SITES(5)
#define NAMES(t)                                                                                             \
    site_##t##0, site_##t##1, site_##t##2, site_##t##3, site_##t##4, site_##t##5, site_##t##6, site_##t##7,  \
        site_##t##8, site_##t##9
static void *(*const sites[50])(size_t) = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5)};

static long pairs;
static int depth;

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void churn(long count) {
    unsigned random = 1;
    for (long i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        void *block = sites[(random >> 16) % 50](32 + (i & 63));
        __asm__ volatile("" ::: "memory");
        free(block);
    }
}

// The warm-up and the loop run under the same frames.
__attribute__((noinline)) static long long under(int left) {
    long long spent;
    if (left > 0) {
        spent = under(left - 1);
    } else {
        churn(pairs / 20 + 1000);
        long long start = cpu_ns();
        churn(pairs);
        spent = cpu_ns() - start;
    }
    __asm__ volatile("");
    return spent;
}

static void *work(void *out) {
    *(long long *)out = under(depth);
    return NULL;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    depth = atoi(words[1]);
    pairs = atol(words[2]);
    int threads = atoi(words[3]);
    static long long spent[1000];
    static pthread_t ids[1000];
    long long all = 0;
    if (threads < 1 || threads > 1000) return 2;
    for (int i = 1; i < threads; i++) pthread_create(&ids[i], NULL, work, &spent[i]);
    work(&spent[0]);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) all += spent[i];
    printf("loop %lld %lld\n", all, 2LL * pairs * threads);
    return 0;
}
