// turns ROUNDS: blocks made and freed from many places in turns, under the same
// callers: through a wrapper that all of them share, and directly.
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

NOINLINE static void *wrapped(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" ::: "memory");
    return block;
}

#define PLACE(n)                                                                                              \
    NOINLINE static void place_##n(size_t size) {                                                            \
        void *a = wrapped(size);                                                                             \
        void *b = malloc(size + n);                                                                          \
        free(a);                                                                                             \
        free(b);                                                                                             \
        __asm__ volatile("" ::: "memory");                                                                   \
    }
PLACE(0) PLACE(1) PLACE(2) PLACE(3) PLACE(4) PLACE(5) PLACE(6) PLACE(7)
static void (*const places[8])(size_t) = {place_0, place_1, place_2, place_3,
                                          place_4, place_5, place_6, place_7};

NOINLINE static void under(int depth, long rounds) {
    if (depth > 0) {
        under(depth - 1, rounds);
    } else {
        unsigned random = 1;
        for (long i = 0; i < rounds; i++) {
            random = random * 1664525u + 1013904223u;
            places[random >> 16 & 7](16 + (i & 63));
        }
    }
    __asm__ volatile("");
}

int main(int count, char **words) {
    if (count < 2) return 2;
    under(20, atol(words[1]));
    puts("done");
    return 0;
}
