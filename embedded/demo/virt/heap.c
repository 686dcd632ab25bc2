/*
 * A first-fit heap for boards without a C library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>

#include "../board.h"

struct chunk {
    size_t size; /* bytes behind this header */
    size_t used;
};

static struct chunk *first;

static struct chunk *next(struct chunk *c) { return (struct chunk *)((char *)(c + 1) + c->size); }
static struct chunk *last(void) { return (struct chunk *)((uintptr_t)board_heap_end - sizeof(struct chunk)); }

static void *take(size_t size)
{
    struct chunk *c;
    if (!first) {
        first = (struct chunk *)board_heap_start;
        first->size = (size_t)(board_heap_end - board_heap_start) - 2 * sizeof(struct chunk);
        first->used = 0;
        last()->size = 0;
        last()->used = 1;
    }
    if (size > (size_t)(board_heap_end - board_heap_start))
        return NULL;
    size = (size + 15) & ~(size_t)15;
    for (c = first; c < last(); c = next(c)) {
        while (!c->used && next(c) < last() && !next(c)->used)
            c->size += sizeof(struct chunk) + next(c)->size;
        if (c->used || c->size < size)
            continue;
        if (c->size >= size + 2 * sizeof(struct chunk)) {
            size_t rest = c->size - size - sizeof(struct chunk);
            c->size = size;
            next(c)->size = rest;
            next(c)->used = 0;
        }
        c->used = 1;
        return c + 1;
    }
    return NULL;
}

void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *ptr, size_t size);
void free(void *ptr);
void *memalign(size_t align, size_t size);
size_t malloc_usable_size(void *ptr);

size_t malloc_usable_size(void *ptr) { return ((struct chunk *)ptr - 1)->size; }
void *malloc(size_t size) { return take(size); }
void free(void *ptr)
{
    if (ptr)
        ((struct chunk *)ptr - 1)->used = 0;
}

void *calloc(size_t n, size_t size)
{
    char *p = take(n * size);
    size_t i;
    for (i = 0; p && i < n * size; i++)
        ((volatile char *)p)[i] = 0;
    return p;
}

void *realloc(void *ptr, size_t size)
{
    char *fresh = take(size);
    size_t i, old;
    if (!fresh)
        return NULL;
    old = malloc_usable_size(ptr);
    for (i = 0; i < old && i < size; i++)
        ((volatile char *)fresh)[i] = ((char *)ptr)[i];
    ((struct chunk *)ptr - 1)->used = 0;
    return fresh;
}

/* enough for alignments that every chunk has */
void *memalign(size_t align, size_t size) { return align <= 8 ? take(size) : NULL; }
