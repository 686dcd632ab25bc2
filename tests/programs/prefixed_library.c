/* A library that exports allocators under the prefixes of well-known ones. Its
 * blocks come from a mapping of its own, never from malloc. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *at;
static size_t left;

static void *take(size_t size)
{
    size = (size + 31) & ~(size_t)15;
    if (left < size) {
        left = 8 << 20;
        at = mmap(NULL, left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
    }
    char *p = at;
    at += size;
    left -= size;
    *(size_t *)p = size - 16;
    return p + 16;
}

#define ALLOCATOR(prefix)                                              \
    void *prefix##malloc(size_t size) { return take(size); }           \
    void *prefix##calloc(size_t n, size_t size) { return take(n * size); } \
    void prefix##free(void *p) { (void)p; }                            \
    void *prefix##realloc(void *p, size_t size)                        \
    {                                                                  \
        void *q = take(size);                                          \
        if (p && q) {                                                  \
            size_t old = ((size_t *)p)[-2];                            \
            memcpy(q, p, old < size ? old : size);                     \
        }                                                              \
        return q;                                                      \
    }

ALLOCATOR(je_)
ALLOCATOR(_rjem_)
ALLOCATOR(mi_)
ALLOCATOR(tc_)
