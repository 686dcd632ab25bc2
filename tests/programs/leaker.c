/* A demo that leaks on demand: leaker KIND [ROUNDS [MICROSECONDS]]. In each round
 * it works a little, leaks in its way, and sleeps. With all kinds but the last
 * three it exits with 0.
 *
 *   const      keeps what it made in the first round
 *   linear     the same in every round
 *   log        ever less: a table that fills by chance
 *   exp        ever more
 *   step       much, once, in the middle
 *   sawtooth   a batch that is given back when it is full
 *   lost       a list whose head is forgotten in every round
 *   growing    a buffer that is resized for ever
 *   double     frees a block twice
 *   invalid    frees the middle of a block
 *   mismatch   frees memory that no allocator gave out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct link {
    struct link *next;
    char data[48];
};

static struct link *volatile kept;
static char *volatile table[64];
static char *volatile buffer;
static size_t buffer_size;

__attribute__((noinline)) static void keep(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct link *link = malloc(sizeof *link); /* LEAKER */
        link->next = kept;
        kept = link;
    }
}

__attribute__((noinline)) static void give_back(void)
{
    while (kept) {
        struct link *next = kept->next;
        free(kept);
        kept = next;
    }
}

__attribute__((noinline)) static void work(int round)
{
    for (int i = 0; i < 8; i++) {
        char *text = malloc(32 + (size_t)(round + i) % 100);
        text[0] = 0;
        free(text);
    }
}

static unsigned dice(unsigned sides)
{
    static unsigned seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % sides;
}

static int leak(const char *kind, int round, int rounds)
{
    if (strcmp(kind, "const") == 0) {
        if (round == 0)
            keep(100);
    } else if (strcmp(kind, "linear") == 0) {
        keep(2);
    } else if (strcmp(kind, "log") == 0) {
        unsigned at = dice(64);
        if (!table[at])
            table[at] = malloc(500);
    } else if (strcmp(kind, "exp") == 0) {
        keep(1 + (size_t)round * (size_t)round / 4000);
    } else if (strcmp(kind, "step") == 0) {
        if (round == rounds / 2)
            keep(500);
    } else if (strcmp(kind, "sawtooth") == 0) {
        keep(3);
        if (round % 40 == 39)
            give_back();
    } else if (strcmp(kind, "lost") == 0) {
        keep(4);
        kept = NULL;
    } else if (strcmp(kind, "growing") == 0) {
        buffer_size += 256;
        buffer = realloc(buffer, buffer_size);
        memset(buffer, 0, buffer_size);
    } else if (strcmp(kind, "double") == 0) {
        char *volatile block = malloc(40);
        free(block);
        free(block);
    } else if (strcmp(kind, "invalid") == 0) {
        char *volatile block = malloc(40);
        free(block + 8);
    } else if (strcmp(kind, "mismatch") == 0) {
        static long words[16];
        char *volatile block = (char *)words;
        free(block);
    } else {
        fprintf(stderr, "leaker: no such kind: %s\n", kind);
        return 2;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: leaker KIND [ROUNDS [MICROSECONDS]]\n");
        return 2;
    }
    int rounds = argc > 2 ? atoi(argv[2]) : 400;
    long us = argc > 3 ? atol(argv[3]) : 0;
    for (int round = 0; round < rounds; round++) {
        work(round);
        int status = leak(argv[1], round, rounds);
        if (status != 0)
            return status;
        if (us > 0) {
            struct timespec wait = {us / 1000000, us % 1000000 * 1000};
            nanosleep(&wait, NULL);
        }
    }
    return 0;
}
