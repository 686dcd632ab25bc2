/* Programs that leak nothing, one a scenario: what they keep is used again, has
 * a bound, or was made once. What is kept and never looked at is volatile:
 * else the compiler keeps no pointer, and it is a leak. */
#include "corpus.h"

#include <locale.h>
#include <pthread.h>
#include <time.h>

#define STEPS 1500

static void all_freed(void)
{
    for (int i = 0; i < STEPS; i++)
        work();
}

/* A cache that fills up to its capacity in the first third, and stays. */
#define CAPACITY 400
static char *volatile cache[CAPACITY];

static void cache_fills(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i < CAPACITY)
            cache[i] = malloc(100);
        work();
    }
}

/* Filled by chance: ever more slowly. */
static char *volatile table[256];

static void lazy_table(void)
{
    for (int i = 0; i < STEPS; i++) {
        uint32_t at = dice(256);
        if (!table[at])
            table[at] = malloc(64);
        work();
    }
}

static char *newest_first[200];

static void lru(void)
{
    for (int i = 0; i < STEPS; i++) {
        char *hit = malloc(150);
        free(newest_first[199]);
        memmove(newest_first + 1, newest_first, 199 * sizeof *newest_first);
        newest_first[0] = hit;
        work();
    }
}

struct item {
    struct item *next;
    char space[56];
};

static struct item *free_items;

APART static struct item *take(void)
{
    struct item *item = free_items;
    if (item)
        free_items = item->next;
    else
        item = malloc(sizeof *item);
    return item;
}

APART static void give(struct item *item)
{
    item->next = free_items;
    free_items = item;
}

static void pool(void)
{
    struct item *used[64];
    for (int i = 0; i < STEPS; i++) {
        uint32_t count = 1 + dice(63);
        for (uint32_t k = 0; k < count; k++)
            used[k] = take();
        for (uint32_t k = 0; k < count; k++)
            give(used[k]);
        work();
    }
}

/* An arena: chunks are kept, everything in them is reset after each request. */
static char *chunks[32];
static size_t chunk, offset;

APART static void *arena_get(size_t size)
{
    if (!chunks[chunk] || offset + size > 8192) {
        if (chunks[chunk])
            chunk++;
        offset = 0;
        if (!chunks[chunk])
            chunks[chunk] = malloc(8192);
    }
    void *place = chunks[chunk] + offset;
    offset += size;
    return place;
}

static void arena(void)
{
    for (int i = 0; i < STEPS; i++) {
        uint32_t count = dice(300);
        for (uint32_t k = 0; k < count; k++)
            memset(arena_get(64), 0, 64);
        chunk = offset = 0;
        work();
    }
}

static char *volatile only;

static void singleton(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i > STEPS / 3 && !only)
            only = malloc(5000);
        work();
    }
}

static char *volatile tables[300];

static void start_up_tables(void)
{
    for (int i = 0; i < 300; i++)
        tables[i] = malloc(200 + (size_t)i);
    for (int i = 0; i < STEPS; i++)
        work();
}

/* Blocks of all ages that replace each other: the heap is a sieve. */
static char *sieve[300];

static void fragmentation(void)
{
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 3; k++) {
            uint32_t at = dice(300);
            at = at * at / 300;
            free(sieve[at]);
            sieve[at] = malloc(16 + dice(2000));
        }
        work();
    }
}

static char *pipe_slots[64];
static unsigned put_at, get_at;
static pthread_mutex_t pipe_lock = PTHREAD_MUTEX_INITIALIZER;

static void *consume(void *unused)
{
    (void)unused;
    for (int taken = 0; taken < STEPS;) {
        pthread_mutex_lock(&pipe_lock);
        char *item = NULL;
        if (get_at != put_at)
            item = pipe_slots[get_at++ % 64];
        pthread_mutex_unlock(&pipe_lock);
        if (item) {
            free(item);
            taken++;
        }
    }
    return NULL;
}

static void producer_consumer(void)
{
    pthread_t consumer;
    if (pthread_create(&consumer, NULL, consume, NULL) != 0)
        abort();
    for (int i = 0; i < STEPS;) {
        pthread_mutex_lock(&pipe_lock);
        if (put_at - get_at < 64) {
            pipe_slots[put_at++ % 64] = malloc(80);
            i++;
        }
        pthread_mutex_unlock(&pipe_lock);
        work();
    }
    pthread_join(consumer, NULL);
}

static char *batch[400];

static void sawtooth(void)
{
    for (int i = 0; i < STEPS; i++) {
        batch[i % 400] = malloc(120);
        if (i % 400 == 399 || i == STEPS - 1)
            for (int k = 0; k < 400; k++) {
                free(batch[k]);
                batch[k] = NULL;
            }
        work();
    }
}

static char *sawtooth_open[400];

/* Ends in the middle of a tooth; what is there is still pointed to. */
static void sawtooth_open_end(void)
{
    for (int i = 0; i < STEPS; i++) {
        sawtooth_open[i % 400] = malloc(120);
        if (i % 400 == 399)
            for (int k = 0; k < 400; k++) {
                free(sawtooth_open[k]);
                sawtooth_open[k] = NULL;
            }
        work();
    }
}

static char *volatile parts[100];
static char *volatile config;

static void free_all(void)
{
    for (int i = 0; i < 100; i++)
        free(parts[i]);
    free(config);
}

static void shutdown_order(void)
{
    atexit(free_all);
    config = strdup("key = value");
    for (int i = 0; i < 100; i++)
        parts[i] = malloc(1000);
    for (int i = 0; i < STEPS; i++)
        work();
}

static char *history[250];

static void ring_of_history(void)
{
    for (int i = 0; i < STEPS; i++) {
        free(history[i % 250]);
        history[i % 250] = malloc(70);
        work();
    }
}

/* A hash table that doubles while it fills with 600 keys of a known set. */
static char **slots;
static size_t slot_count = 8, used;

static void hash_resize(void)
{
    slots = calloc(slot_count, sizeof *slots);
    for (int i = 0; i < STEPS; i++) {
        if (used < 600) {
            if (2 * used >= slot_count) {
                slots = realloc(slots, 2 * slot_count * sizeof *slots);
                memset(slots + slot_count, 0, slot_count * sizeof *slots);
                slot_count *= 2;
            }
            slots[used++] = malloc(32);
        }
        work();
    }
}

/* Words of a limited vocabulary, some of them rare. */
static char *volatile words[120];

static void intern(void)
{
    for (int i = 0; i < STEPS; i++) {
        uint32_t word = dice(120) * dice(120) / 120;
        if (!words[word])
            words[word] = strdup("a word");
        work();
    }
}

/* Sessions whose lifetimes differ a thousandfold. */
static char *long_sessions[150];
static int ends[150];

static void heavy_tail(void)
{
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 150; k++)
            if (long_sessions[k] && ends[k] <= i) {
                free(long_sessions[k]);
                long_sessions[k] = NULL;
            }
        uint32_t at = dice(150);
        if (!long_sessions[at]) {
            long_sessions[at] = malloc(500);
            ends[at] = i + (int)(1000 / (1 + dice(200)));
        }
        work();
    }
}

static void breathing_buffer(void)
{
    char *buffer = NULL;
    for (int i = 0; i < STEPS; i++) {
        buffer = realloc(buffer, 1000 + dice(9000));
        work();
    }
    free(buffer);
}

static pthread_key_t key;

static void *use_key(void *unused)
{
    (void)unused;
    pthread_setspecific(key, malloc(700));
    return NULL;
}

static void thread_specific(void)
{
    pthread_key_create(&key, free);
    for (int i = 0; i < STEPS; i++) {
        if (i % 50 == 0) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, use_key, NULL) == 0)
                pthread_join(thread, NULL);
        }
        work();
    }
}

static char *volatile levels[3];

static void phases(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 500 == 250)
            levels[i / 500] = malloc(100000);
        work();
    }
}

static void runtime_residues(void)
{
    setlocale(LC_ALL, "");
    setenv("CORPUS", "some value", 1);
    time_t now = 0;
    sink = localtime(&now);
    for (int i = 0; i < STEPS; i++) {
        if (i % 100 == 0)
            printf("step %d\n", i);
        work();
    }
}

/* As an interpreter starts: each of its parts sets itself up, once and on a way of its
 * own, through the same few functions. Nothing is done again. */
static void *volatile objects[700];
static size_t object_count;

APART static void new_object(size_t size)
{
    objects[object_count++] = malloc(size);
}

#define PART(n)                                                                                  \
    APART static void set_up_##n(void)                                                           \
    {                                                                                            \
        for (int i = 0; i < 6; i++) {                                                            \
            new_object(24 + n % 7);                                                              \
            work();                                                                              \
        }                                                                                        \
    }
#define TEN(with, n) with(n##0) with(n##1) with(n##2) with(n##3) with(n##4) with(n##5) with(n##6) with(n##7) with(n##8) with(n##9)
#define HUNDRED(with)                                                                            \
    TEN(with, 1) TEN(with, 2) TEN(with, 3) TEN(with, 4) TEN(with, 5)                             \
    TEN(with, 6) TEN(with, 7) TEN(with, 8) TEN(with, 9) TEN(with, 10)
HUNDRED(PART)

#define NAME(n) set_up_##n,
static void (*const set_up[])(void) = {HUNDRED(NAME)};

static void only_starts(void)
{
    for (size_t i = 0; i < sizeof set_up / sizeof *set_up; i++)
        set_up[i]();
}

static const struct scenario all[] = {
    {"all_freed", all_freed},
    {"cache_fills", cache_fills},
    {"lazy_table", lazy_table},
    {"lru", lru},
    {"pool", pool},
    {"arena", arena},
    {"singleton", singleton},
    {"start_up_tables", start_up_tables},
    {"fragmentation", fragmentation},
    {"producer_consumer", producer_consumer},
    {"sawtooth", sawtooth},
    {"sawtooth_open_end", sawtooth_open_end},
    {"shutdown_order", shutdown_order},
    {"ring_of_history", ring_of_history},
    {"hash_resize", hash_resize},
    {"intern", intern},
    {"heavy_tail", heavy_tail},
    {"breathing_buffer", breathing_buffer},
    {"thread_specific", thread_specific},
    {"phases", phases},
    {"runtime_residues", runtime_residues},
    {"only_starts", only_starts},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return argc > 1 ? run_scenario(all, argv[1]) : 2;
}
