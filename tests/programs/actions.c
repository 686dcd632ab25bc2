/* Does what it is told, a word a line on stdin, and says on stdout when it is
 * done:
 *
 *   act      an action: makes a session, a scratch block (given back at once) and
 *            gives the session of the action before back; the first one also
 *            fills a table
 *   bad      the same, and forgets a block of 100 bytes from each of two threads
 *   grow     resizes a kept buffer, made before, by 64 bytes
 *   burst    a thousand short-lived blocks
 *   race     four threads take blocks from each other, for some tenth of a second
 *   end      ends
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *session, *table;
static void *volatile forgotten;
static char *buffer;
static size_t buffer_size = 64;

__attribute__((noinline)) static void *forget(void *unused)
{
    forgotten = malloc(100); /* FORGET */
    return unused;
}

__attribute__((noinline)) static void open_session(void)
{
    void *last = session;
    session = calloc(1, 48); /* SESSION */
    free(last);
    free(malloc(1000));
    if (!table)
        table = malloc(5000); /* TABLE */
}

__attribute__((noinline)) static void grow(void)
{
    buffer_size += 64;
    buffer = realloc(buffer, buffer_size); /* GROW */
}

static _Atomic(void *) places[16];

static void *exchange(void *seed)
{
    unsigned state = (unsigned)(size_t)seed;
    for (int i = 0; i < 5000; i++) {
        if (i % 50 == 0)
            usleep(1000);
        state = state * 1664525u + 1013904223u;
        void *block = malloc(16 + (state >> 24) % 64);
        free(atomic_exchange(&places[(state >> 8) % 16], block));
    }
    return NULL;
}

static void race(void)
{
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)) != 0)
            abort();
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    char word[64];
    /* stdio's own buffers are made before anything is counted. */
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    buffer = malloc(buffer_size); /* BUFFER */
    puts("ready");
    while (fgets(word, sizeof word, stdin)) {
        word[strcspn(word, "\n")] = 0;
        if (!strcmp(word, "end"))
            break;
        if (!strcmp(word, "act") || !strcmp(word, "bad"))
            open_session();
        if (!strcmp(word, "bad")) {
            pthread_t thread;
            forget(NULL);
            if (pthread_create(&thread, NULL, forget, NULL) == 0)
                pthread_join(thread, NULL);
        }
        if (!strcmp(word, "grow"))
            grow();
        if (!strcmp(word, "race"))
            race();
        if (!strcmp(word, "burst"))
            for (int i = 0; i < 1000; i++)
                free(malloc(i));
        printf("done %s\n", word);
    }
    puts("end");
    return 3;
}
