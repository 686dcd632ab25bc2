/*
 * Demo: four tasks that eat memory in every way that C++ has, and give most of
 * it back. What eCos's manual shows of its own `consume` looks like this one's.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "highwater_mdd.h"
extern "C" {
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *ptr, size_t size);
void free(void *ptr);
void finished(void);
}
#include "tasks.h"

namespace std {
struct nothrow_t {};
extern const nothrow_t nothrow;
const nothrow_t nothrow = nothrow_t();
}
void *operator new(size_t size, const std::nothrow_t &) noexcept;
void *operator new[](size_t size, const std::nothrow_t &) noexcept;

namespace {

struct Small { char bytes[16]; };
struct Medium { char bytes[128]; };
struct Large { char bytes[1024]; };

enum Kind { NONE, C, SMALL, MEDIUM, LARGE, SMALLV };

struct Alloc {
    Kind kind;
    union {
        void *c;
        Small *small;
        Medium *medium;
        Large *large;
        Small *smallv;
    } data;
};

const int COUNT = 40;
Alloc allocs[TASKS][COUNT];
uint32_t seed = 4711;

uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

void release(Alloc &a)
{
    switch (a.kind) {
    case C: free(a.data.c); break;
    case SMALL: delete a.data.small; break;
    case MEDIUM: delete a.data.medium; break;
    case LARGE: delete a.data.large; break;
    case SMALLV: delete[] a.data.smallv; break;
    case NONE: break;
    }
    a.kind = NONE;
}

__attribute__((noinline)) void worker1(int task)
{
    for (int i = 0; i < 300; i++) {
        Alloc &a = allocs[task][random_below(COUNT)];
        release(a);
        a.kind = (Kind)random_below(6);
        switch (a.kind) {
        case C: a.data.c = malloc(1 + random_below(400)); break;
        case SMALL: a.data.small = new (std::nothrow) Small; break;
        case MEDIUM: a.data.medium = new (std::nothrow) Medium; break;
        case LARGE: a.data.large = new (std::nothrow) Large; break;
        case SMALLV: a.data.smallv = new (std::nothrow) Small[1 + random_below(20)]; break;
        case NONE: break;
        }
        task_yield();
    }
}

__attribute__((noinline)) void worker2(int task)
{
    for (int i = 0; i < 300; i++) {
        Alloc &a = allocs[task][random_below(COUNT)];
        release(a);
        a.kind = (Kind)random_below(5);
        switch (a.kind) {
        case C: a.data.c = random_below(2) ? calloc(3, 1 + random_below(50)) : realloc(nullptr, 1 + random_below(90)); break;
        case SMALL: a.data.small = new Small; break;
        case MEDIUM: a.data.medium = new Medium; break;
        case LARGE: a.data.large = new (std::nothrow) Large; break;
        default: a.kind = NONE; break;
        }
        task_yield();
    }
}

void run(void *argument)
{
    int task = (int)(intptr_t)argument;
    if (task % 2)
        worker1(task);
    else
        worker2(task);
}

void *volatile buffer;
void *volatile spare;

}

extern "C" __attribute__((noinline)) void finished(void) { __asm__ volatile("" : : : "memory"); }

int main()
{
    static const char *const names[TASKS] = {"thread_0", "thread_1", "thread_2", "thread_3"};
    highwater_mdd_heap(board_heap_start, board_heap_end, "heap");
    buffer = malloc(256);
    for (int n = 0; n < TASKS; n++)
        task_start((unsigned)n, names[n], run, (void *)(intptr_t)n);
    tasks_run();
    spare = malloc(128 * 1024);
    highwater_mdd_stacks_measure();
    finished();
    free(spare);
    finished();
    return 0;
}
