/*
 * Test: threads of a host program at work on C++'s heap at once. Each leaves
 * KEEP blocks, whose size says whose they are. Writes threads.mddout itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "highwater_mdd.h"

namespace {

const int THREADS = 4, KEEP = 50, ROUNDS = 2000;
char *kept[THREADS][KEEP];

void *work(void *argument)
{
    int n = (int)(intptr_t)argument;
    char name[16];
    snprintf(name, sizeof(name), "worker%d", n);
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < ROUNDS; i++) {
        char *&slot = kept[n][i % KEEP];
        delete[] slot;
        slot = new char[(unsigned)(n + 1) * 100];
        __asm__ volatile("" : : "r"(slot) : "memory");
    }
    return nullptr;
}

}

int main()
{
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        pthread_create(&threads[n], nullptr, work, (void *)(intptr_t)n);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], nullptr);
    return highwater_mdd_posix_dump("threads.mddout");
}
