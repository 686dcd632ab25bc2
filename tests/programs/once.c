/* A long run that loses one block in its middle, and keeps one in a global. */
#include <stdlib.h>

static void *volatile sink;
void *volatile kept;

static void work(int i)
{
    sink = malloc(16 + i % 100);
    free(sink);
    sink = NULL;
}

static void lose(void)
{
    sink = malloc(333); /* lost */
    sink = NULL;
}

static void keep(void)
{
    kept = malloc(444); /* kept */
}

int main(void)
{
    for (int i = 0; i < 20000; i++) {
        work(i);
        if (i == 9000)
            lose();
        if (i == 9500)
            keep();
    }
    return 0;
}
