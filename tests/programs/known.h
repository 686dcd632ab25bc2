/* A program's own count of what it does with the heap.
 *
 * The program calls known_alloc() after each block that it got and known_free()
 * before each that it gives back; known_write() leaves the totals as JSON with
 * the keys of `highwater stats --json`. Nothing here uses the heap. */
#ifndef KNOWN_H
#define KNOWN_H

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct known {
    long allocations, frees, bytes_allocated, bytes_freed, reallocations, peak;
};

static struct known known;

static inline void known_alloc_in(struct known *k, size_t size)
{
    k->allocations++;
    k->bytes_allocated += (long)size;
    long live = k->bytes_allocated - k->bytes_freed;
    if (live > k->peak)
        k->peak = live;
}

static inline void known_free_in(struct known *k, size_t size)
{
    k->frees++;
    k->bytes_freed += (long)size;
}

static inline void known_alloc(size_t size) { known_alloc_in(&known, size); }
static inline void known_free(size_t size) { known_free_in(&known, size); }

/* A realloc that moved or resized a block: a free and an alloc. */
static inline void known_realloc(size_t from, size_t to)
{
    known_free(from);
    known_alloc(to);
    known.reallocations++;
}

/* Adds the work of a thread. The peak of several threads is what the program
 * knows it to be by construction; it is set apart. */
static inline void known_add(const struct known *k)
{
    known.allocations += k->allocations;
    known.frees += k->frees;
    known.bytes_allocated += k->bytes_allocated;
    known.bytes_freed += k->bytes_freed;
    known.reallocations += k->reallocations;
}

static inline void known_write(const char *path)
{
    char text[512];
    int length = snprintf(text, sizeof text,
        "{\"allocations\":%ld,\"frees\":%ld,\"bytes_allocated\":%ld,\"bytes_freed\":%ld,"
        "\"reallocations\":%ld,\"peak_bytes\":%ld,\"live_blocks\":%ld,\"live_bytes\":%ld}\n",
        known.allocations, known.frees, known.bytes_allocated, known.bytes_freed, known.reallocations,
        known.peak, known.allocations - known.frees, known.bytes_allocated - known.bytes_freed);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        _exit(99);
    close(fd);
}

/* The compiler must believe that the block is used. */
static inline void *keep(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

#endif
