/* Runs until it is told to end. Two threads resize a table again and again, from
 * which alone their entries can be reached: in the middle of a realloc as well, an
 * entry is not lost. A word a line on stdin:
 *
 *   lose   forgets ten blocks of 100 bytes
 *   end    ends
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 64 };

static atomic_int over;
static void **tables[2];

static void *resize(void *which)
{
    void ***table = &tables[(long)which];
    *table = malloc(ENTRIES * sizeof **table);
    for (int i = 0; i < ENTRIES; i++)
        (*table)[i] = malloc(333); /* ENTRY */
    for (size_t n = 1; !over; n = n % 64 + 1) {
        *table = realloc(*table, ENTRIES * n * sizeof **table);
        if (n == 64)
            usleep(500);
    }
    return NULL;
}

__attribute__((noinline)) static void lose(void)
{
    static void *volatile last;
    for (int i = 0; i < 10; i++)
        last = malloc(100); /* LOST */
    last = NULL;
}

/* What calls have left behind on the stack. */
__attribute__((noinline)) static void forget(void)
{
    volatile char room[8192];
    memset((void *)room, 0, sizeof room);
}

int main(void)
{
    char word[64];
    pthread_t threads[2];
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    for (long i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, resize, (void *)i))
            abort();
    puts("ready");
    while (fgets(word, sizeof word, stdin) && strcmp(word, "end\n")) {
        if (!strcmp(word, "lose\n")) {
            lose();
            forget();
        }
        printf("done %s", word);
    }
    over = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        for (int k = 0; k < ENTRIES; k++)
            free(tables[i][k]);
        free(tables[i]);
    }
    return 3;
}
