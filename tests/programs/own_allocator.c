/* A program whose allocator is its own, as with a static jemalloc or mimalloc:
 * malloc and free are defined here and take memory by mmap. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static char *at, *end;

void *malloc(size_t size)
{
    size = (size + 31) & ~(size_t)15;
    if (!at || (size_t)(end - at) < size) {
        size_t chunk = size > (1 << 20) ? size : 1 << 20;
        at = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return at = NULL;
        end = at + chunk;
    }
    char *p = at;
    at += size;
    *(size_t *)p = size - 16;
    return p + 16;
}

void free(void *p) { (void)p; }

void *calloc(size_t count, size_t size)
{
    return malloc(count * size); /* fresh mappings are zero */
}

void *realloc(void *p, size_t size)
{
    void *q = malloc(size);
    if (p && q) {
        size_t old = ((size_t *)p)[-2];
        memcpy(q, p, old < size ? old : size);
    }
    return q;
}

int main(void)
{
    for (int i = 0; i < 20000; i++)
        memset(malloc(1000), 1, 1000);
    puts("done");
    return 0;
}
