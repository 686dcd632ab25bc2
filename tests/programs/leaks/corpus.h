/* What the programs of the corpus share: a random sequence that is the same in
 * every run, and a workload beside the leak: requests that free all they make,
 * and sessions that live for a while. */
#ifndef CORPUS_H
#define CORPUS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

static uint32_t seed = 12345;

static inline uint32_t dice(uint32_t sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % sides;
}

/* Hides a pointer's later fate from the compiler. */
static void *volatile sink;

/* Overwrites what calls left on the stack: a stale pointer there would make a
 * lost block look reachable. */
APART static void wipe(void)
{
    volatile char junk[4096];
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = 0;
    sink = NULL;
}

#define SESSIONS 64
static char *sessions[SESSIONS];

/* One request: temporary blocks, and now and then another session. */
APART static void work(void)
{
    char *parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = (char *)malloc(16 + dice(200));
    for (int i = 0; i < 4; i++)
        free(parts[i]);
    if (dice(4) == 0) {
        uint32_t at = dice(SESSIONS);
        free(sessions[at]);
        sessions[at] = (char *)malloc(100 + dice(400));
    }
}

APART static void end_work(void)
{
    for (int i = 0; i < SESSIONS; i++) {
        free(sessions[i]);
        sessions[i] = NULL;
    }
}

struct scenario {
    const char *name;
    void (*run)(void);
};

static inline int run_scenario(const struct scenario *all, const char *name)
{
    for (; all->name; all++)
        if (strcmp(all->name, name) == 0) {
            all->run();
            end_work();
            wipe();
            return 0;
        }
    fprintf(stderr, "no scenario %s\n", name);
    return 2;
}

#endif
