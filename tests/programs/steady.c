/* Works in rounds: makes blocks at four places, gives most of them back, resizes one,
 * and loses a few now and then; ends without tidying up. argv: N rounds. */
#include <stdlib.h>

static void *volatile seen;

static void *keep(void *p)
{
    seen = p;
    return p;
}

static void *lost[1 << 12];

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 0;
    void *queue[64] = {0}, *table = NULL;
    for (long i = 0; i < n; i++) {
        void *scratch = keep(malloc(100 + i % 50));
        void **place = &queue[i % 64];
        free(*place);
        *place = keep(malloc(24 + i % 7 * 8));
        if (i % 97 == 0)
            table = realloc(table, 64 + i / 10);
        if (i % 1009 == 0)
            lost[i / 1009 % (1 << 12)] = keep(malloc(40));
        free(scratch);
    }
    return 0;
}
