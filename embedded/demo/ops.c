/*
 * Demo and test: does what a random number generator says with the heap, and
 * tells on the console what it did, one line an event:
 *
 *   A kind address size line       made
 *   F kind address size line       released
 *   V                              a realloc that failed: a number without an event
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "highwater_mdd.h"

void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *ptr, size_t size);
void *memalign(size_t align, size_t size);
void free(void *ptr);

#ifndef OPS
#define OPS 500
#endif
#ifndef QUIET
#define QUIET 0
#endif
#ifndef SLOTS
#define SLOTS 60
#endif
/* More than any heap of ours has. */
#ifndef TOO_MUCH
#define TOO_MUCH ((size_t)-1 / 4)
#endif

static struct {
    void *p;
    size_t size;
} slots[SLOTS];

static uint32_t seed = 12345;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static char *number(char *to, uintptr_t value, unsigned base)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    *to++ = ' ';
    while (n)
        *to++ = digits[--n];
    return to;
}

static void tell(const char *what, uintptr_t p, size_t size, int line)
{
    char text[80], *t = text;
    if (QUIET)
        return;
    while (*what)
        *t++ = *what++;
    t = number(t, p, 16);
    t = number(t, size, 10);
    t = number(t, (uintptr_t)line, 10);
    *t++ = '\n';
    *t = 0;
    board_say(text);
}

/* One line an operation: the test compares it with what the debug information says. */
__attribute__((noinline)) void operate(unsigned n, size_t size)
{
    void *p = slots[n].p, *q;
    uintptr_t was = (uintptr_t)p;
    size_t old = slots[n].size;
    if (!p) {
        slots[n].size = size;
        switch (random_below(4)) {
        case 0: p = malloc(size); tell("A malloc", (uintptr_t)p, size, __LINE__); break;
        case 1: p = calloc(1, size); tell("A calloc", (uintptr_t)p, size, __LINE__); break;
        case 2: p = realloc(NULL, size); tell("A realloc", (uintptr_t)p, size, __LINE__); break;
        default: p = memalign(8, size); tell("A memalign", (uintptr_t)p, size, __LINE__); break;
        }
        *(volatile char *)p = 1;
        slots[n].p = p;
        return;
    }
    switch (random_below(4)) {
    case 0:
        q = realloc(p, size); tell("F realloc", was, old, __LINE__); tell("A realloc", (uintptr_t)q, size, __LINE__);
        slots[n].p = q;
        slots[n].size = size;
        break;
    case 1:
        q = realloc(p, TOO_MUCH);
        if (!q)
            board_say("V\n");
        __asm__ volatile("" : : "r"(q));
        break;
    default:
        free(p); tell("F free", was, old, __LINE__);
        slots[n].p = NULL;
    }
}

__attribute__((noinline)) void churn(unsigned count)
{
    volatile uint32_t room[8]; /* a frame with something in it */
    unsigned i;
    for (i = 0; i < count; i++) {
        room[i % 8] = random_below(SLOTS);
        operate(room[i % 8], 1 + random_below(300));
    }
}

/* For breakpoints. */
__attribute__((noinline)) void finished(void) { __asm__ volatile("" : : : "memory"); }

#ifdef SEND
#include "highwater_mdd_send.h"
#include "semihosting.h"
static int to_console(void *context, const void *data, size_t bytes)
{
    const char *b = data;
    (void)context;
    while (bytes--)
        board_put(*b++);
    return 0;
}
#endif

int main(void)
{
    highwater_mdd_heap(board_heap_start, board_heap_end, "heap");
#if HIGHWATER_MDD_STACKS
    highwater_mdd_stack(0, board_stack_low, board_stack_high);
#endif
#if !HIGHWATER_MDD_STATIC_POOL
    static uint64_t memory[8192];
    highwater_mdd_region(memory, sizeof(memory));
#endif
    churn(OPS);
#ifdef FAIL
    {
        void *volatile p = malloc(TOO_MUCH);
        (void)p;
    }
#endif
#ifdef OVERRUN
    {
        char *volatile p = malloc(10);
        p[10] = 7;
        free(p);
    }
#endif
    finished();
#ifdef SEND
    if (highwater_mdd_send_frames(to_console, NULL) || highwater_mdd_semihost("semihosted.mddout"))
        return 1;
#endif
#ifdef DUMP
    return highwater_mdd_posix_dump(DUMP);
#endif
    return 0;
}
