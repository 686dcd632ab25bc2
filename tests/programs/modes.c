/* Work for recordings that leave blocks out on purpose.
 *
 *   modes boundary ALL LARGE   sizes around 64 bytes, reallocs across it
 *   modes handed ALL           one thread makes blocks, another frees most of them
 *   modes young ALL            short-lived and long-lived blocks
 *
 * ALL and LARGE are files for the program's own count, of all blocks and of
 * those of 64 bytes and more. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "known.h"

#define LIMIT 64

static struct known large;

static void made(size_t size)
{
    known_alloc(size);
    if (size >= LIMIT)
        known_alloc_in(&large, size);
}

static void gone(size_t size)
{
    known_free(size);
    if (size >= LIMIT)
        known_free_in(&large, size);
}

static void *make(size_t size)
{
    void *p = keep(malloc(size));
    if (!p)
        _exit(98);
    made(size);
    return p;
}

static void give_back(void *p, size_t size)
{
    gone(size);
    free(p);
}

static void *resize(void *p, size_t from, size_t to)
{
    gone(from);
    p = keep(realloc(p, to));
    made(to);
    known.reallocations++;
    if (from >= LIMIT && to >= LIMIT)
        large.reallocations++;
    return p;
}

static void boundary(void)
{
    static void *kept[128];
    for (int round = 0; round < 200; round++) {
        for (size_t size = 1; size < 128; size++)
            kept[size] = make(size);
        for (size_t size = 1; size < 128; size++)
            give_back(kept[size], size);
    }
    /* Small to large begins a block, large to small ends one. */
    void *p = make(40);
    p = resize(p, 40, 2000);
    void *q = make(3000);
    q = resize(q, 3000, 16);
    q = resize(q, 16, 60);
    q = resize(q, 60, 90);
    q = resize(q, 90, 60);
    give_back(q, 60);
    /* A realloc that fails leaves the block and where it counts. */
    void *r = make(60);
    volatile size_t huge = SIZE_MAX / 4;
    if (keep(realloc(r, huge)))
        _exit(97);
    give_back(r, 60);
    void *s = make(100);
    if (keep(realloc(s, huge)))
        _exit(97);
    give_back(s, 100);
    /* What is live at the end: large p, and small and large others. */
    for (int i = 0; i < 10; i++) {
        make(10);
        make(64);
        make(63);
    }
    keep(p);
}

#define HANDED 200000
static void *queue[HANDED];
static size_t sizes[HANDED];
static volatile int ready;

static void *maker(void *unused)
{
    (void)unused;
    unsigned long random = 12345;
    for (int i = 0; i < HANDED; i++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        sizes[i] = (random >> 33) % 10 ? 16 + (random >> 40) % 400 : (random >> 40) % 20000;
        queue[i] = make(sizes[i]);
        __atomic_store_n(&ready, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void handed(void)
{
    pthread_t thread;
    struct known mine;
    memset(&mine, 0, sizeof mine);
    if (pthread_create(&thread, NULL, maker, NULL))
        _exit(96);
    for (int i = 0; i < HANDED; i++) {
        while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) <= i)
            ;
        /* One in three lives on. */
        if (i % 3) {
            known_free_in(&mine, sizes[i]);
            free(queue[i]);
        }
    }
    pthread_join(thread, NULL);
    known_add(&mine);
}

static void pause_ms(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

static __attribute__((noinline)) void churn(int n)
{
    for (int i = 0; i < n; i++) {
        void *p = make(100 + (size_t)i % 50);
        void *q = make(20);
        give_back(p, 100 + (size_t)i % 50);
        give_back(q, 20);
        give_back(make(30), 30); /* temporary */
    }
}

static __attribute__((noinline)) void *long_lived(size_t size) { return make(size); }

static void young(void)
{
    void *old[20];
    for (int i = 0; i < 20; i++)
        old[i] = long_lived(1000);
    churn(5000);
    void *grown = make(50);
    for (int i = 0; i < 100; i++)
        grown = resize(grown, 50 + (size_t)i, 51 + (size_t)i);
    pause_ms(400);
    churn(5000);
    /* Old blocks: their frees stay, half of them. */
    for (int i = 0; i < 10; i++)
        give_back(old[i], 1000);
    void *last = make(77);
    pause_ms(400);
    churn(10);
    /* Freed by its thread with nothing recorded between, and yet no temporary. */
    give_back(last, 77);
    keep(grown);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 95;
    if (!strcmp(argv[1], "boundary"))
        boundary();
    else if (!strcmp(argv[1], "handed"))
        handed();
    else if (!strcmp(argv[1], "young"))
        young();
    known_write(argv[2]);
    if (argc > 3) {
        known = large;
        known_write(argv[3]);
    }
    _exit(0);
}
