/* Every C entry point of the heap, in a known order. argv[1]: the counts. */
#include "known.h"
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

static void *volatile slot[64];

static void must(int condition, int code)
{
    if (!condition)
        _exit(code);
}

static void make(int i, void *p, size_t size)
{
    must(p != NULL, 40 + i);
    slot[i] = keep(p);
    known_alloc(size);
}

static void drop(int i, size_t size)
{
    known_free(size);
    free(slot[i]);
    slot[i] = NULL;
}

int main(int argc, char **argv)
{
    must(argc > 1, 2);

    /* Each entry point once, its block alive until all are made. */
    make(0, malloc(100), 100);
    make(1, calloc(7, 11), 77);
    make(2, realloc(NULL, 300), 300); /* no block before: an alloc alone */
    make(3, reallocarray(NULL, 10, 50), 500);
    make(4, memalign(64, 640), 640);
    make(5, aligned_alloc(128, 1280), 1280);
    void *p = NULL;
    must(posix_memalign(&p, 4096, 123) == 0, 3);
    make(6, p, 123);
    make(7, valloc(1000), 1000);
    make(8, pvalloc(5000), 5000); /* requested, not rounded to pages */
    make(9, strdup("twelve bytes"), 13);
    make(10, strndup("twelve bytes", 6), 7);
    must((uintptr_t)slot[4] % 64 == 0 && (uintptr_t)slot[5] % 128 == 0 && (uintptr_t)slot[6] % 4096 == 0, 4);

    /* Nothing is not no block. */
    make(11, malloc(0), 0);
    make(12, calloc(0, 8), 0);

    /* Resized: smaller, larger, moved, by both entry points. */
    slot[0] = realloc(slot[0], 10);
    known_realloc(100, 10);
    slot[0] = realloc(slot[0], 100000);
    known_realloc(10, 100000);
    slot[1] = reallocarray(slot[1], 100, 100);
    known_realloc(77, 10000);
    slot[2] = realloc(slot[2], 300); /* same size is a realloc too */
    known_realloc(300, 300);

    volatile size_t huge = (size_t)1 << 40;
    /* What fails leaves everything as it was, and sets errno. */
    errno = 0;
    must(realloc(slot[3], (size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM, 5);
    errno = 0;
    must(reallocarray(slot[3], huge, huge) == NULL && errno == ENOMEM, 6);
    errno = 0;
    must(calloc(huge, huge) == NULL && errno == ENOMEM, 7);
    errno = 0;
    must(malloc((size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM, 8);
    p = (void *)0x5;
    must(posix_memalign(&p, 3, 8) == EINVAL && p == (void *)0x5, 9);

    /* realloc to nothing: glibc gives the block back and returns NULL. */
    void *volatile gone = malloc(7777);
    make(13, gone, 7777);
    size_t none = argc > 1000;
    known_free(7777);
    must(realloc(gone, none) == NULL, 10);
    slot[13] = NULL;

    free(NULL); /* no event */
    must(malloc_usable_size(slot[3]) >= 500, 11);
    must(malloc_usable_size(NULL) == 0, 12);

    /* A loop, so that sums are not small. */
    for (int i = 0; i < 1000; i++) {
        void *q = keep(malloc((size_t)i));
        known_alloc((size_t)i);
        known_free((size_t)i);
        free(q);
    }

    /* Some are given back; slots 1, 3, 5, 7, 9, 11 survive. */
    drop(0, 100000);
    drop(2, 300);
    drop(4, 640);
    drop(6, 123);
    drop(8, 5000);
    drop(10, 7);
    drop(12, 0);

    known_write(argv[1]);
    return 0;
}
