/*
 * Demo: four tasks that eat memory in every way that C++ has, and give most of
 * it back. What eCos's manual shows of its own `consume` looks like this one's.
 * With -DTELL it says what it does, as ops.c does.
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
    size_t size;
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

#ifdef TELL
char *number(char *to, uintptr_t value, unsigned base)
{
    char digits[12];
    int n = 0;
    do
        digits[n++] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    *to++ = ' ';
    while (n)
        *to++ = digits[--n];
    return to;
}

void tell(const char *what, uintptr_t p, size_t size, int line)
{
    char text[80], *t = text;
    while (*what)
        *t++ = *what++;
    t = number(t, p, 16);
    t = number(t, size, 10);
    t = number(t, (uintptr_t)line, 10);
    *t++ = '\n';
    *t = 0;
    board_say(text);
}
#define SAY(what, p, size) tell(what, (uintptr_t)(p), size, __LINE__)
#else
#define SAY(what, p, size) ((void)(p), (void)(size))
#endif

/* One line an operation: the test compares it with what the debug information says. */
void release(Alloc &a)
{
    uintptr_t was = (uintptr_t)a.data.c;
    switch (a.kind) {
    case C: free(a.data.c); SAY("F free", was, a.size); break;
    case SMALL: delete a.data.small; SAY("F delete", was, a.size); break;
    case MEDIUM: delete a.data.medium; SAY("F delete", was, a.size); break;
    case LARGE: delete a.data.large; SAY("F delete", was, a.size); break;
    case SMALLV: delete[] a.data.smallv; SAY("F delete[]", was, a.size); break;
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
        a.size = a.kind == C ? 1 + random_below(400) : a.kind == SMALLV ? sizeof(Small) * (1 + random_below(20)) : 0;
        switch (a.kind) {
        case C: a.data.c = malloc(a.size); SAY("A malloc", a.data.c, a.size); break;
        case SMALL: a.data.small = new (std::nothrow) Small; SAY("A new(nothrow)", a.data.small, a.size = sizeof(Small)); break;
        case MEDIUM: a.data.medium = new (std::nothrow) Medium; SAY("A new(nothrow)", a.data.medium, a.size = sizeof(Medium)); break;
        case LARGE: a.data.large = new (std::nothrow) Large; SAY("A new(nothrow)", a.data.large, a.size = sizeof(Large)); break;
        case SMALLV: a.data.smallv = new (std::nothrow) Small[a.size / sizeof(Small)]; SAY("A new(nothrow)[]", a.data.smallv, a.size); break;
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
        case C:
            if (random_below(2)) {
                a.size = 3 * (1 + random_below(50));
                a.data.c = calloc(3, a.size / 3); SAY("A calloc", a.data.c, a.size);
            } else {
                a.size = 1 + random_below(90);
                a.data.c = realloc(nullptr, a.size); SAY("A realloc", a.data.c, a.size);
            }
            break;
        case SMALL: a.data.small = new Small; SAY("A new", a.data.small, a.size = sizeof(Small)); break;
        case MEDIUM: a.data.medium = new Medium; SAY("A new", a.data.medium, a.size = sizeof(Medium)); break;
        case LARGE: a.data.large = new (std::nothrow) Large; SAY("A new(nothrow)", a.data.large, a.size = sizeof(Large)); break;
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
    buffer = malloc(256); SAY("A malloc", buffer, 256);
    for (int n = 0; n < TASKS; n++)
        task_start((unsigned)n, names[n], run, (void *)(intptr_t)n);
    tasks_run();
    spare = malloc(128 * 1024); SAY("A malloc", spare, 128 * 1024);
    highwater_mdd_stacks_measure();
    finished();
    SAY("F free", spare, 128 * 1024); free(spare);
    finished();
    return 0;
}
