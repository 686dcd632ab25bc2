/* Uses allocators with prefixes, each a known number of times. argv[1]: counts. */
#include "known.h"

#define USE(prefix, n)                                   \
    do {                                                 \
        extern void *prefix##malloc(size_t);             \
        extern void *prefix##calloc(size_t, size_t);     \
        extern void *prefix##realloc(void *, size_t);    \
        extern void prefix##free(void *);                \
        for (int i = 0; i < n; i++) {                    \
            void *p = keep(prefix##malloc(100));         \
            known_alloc(100);                            \
            p = keep(prefix##realloc(p, 200));           \
            known_realloc(100, 200);                     \
            void *q = keep(prefix##calloc(3, 7));        \
            known_alloc(21);                             \
            known_free(200);                             \
            prefix##free(p);                             \
            if (i % 2) {                                 \
                known_free(21);                          \
                prefix##free(q);                         \
            }                                            \
        }                                                \
    } while (0)

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    USE(je_, 10);
    USE(_rjem_, 20);
    USE(mi_, 30);
    USE(tc_, 40);
    known_write(argv[1]);
    return 0;
}
