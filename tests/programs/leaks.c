/* Three leaks whose lines and sizes are known, one cache, and output: what
 * stdio keeps for it is libc's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile last;

__attribute__((noinline)) static void leak_list(void)
{
    for (int i = 0; i < 10; i++)
        last = malloc(100); /* LIST */
}

__attribute__((noinline)) static void leak_name(void)
{
    last = strdup("a name of 23 characters"); /* NAME */
}

__attribute__((noinline)) static void fill_cache(void)
{
    last = calloc(4, 1024); /* CACHE */
}

int main(void)
{
    leak_list();
    leak_name();
    fill_cache();
    for (int i = 0; i < 50; i++)
        free(malloc(64));
    puts("done");
    return 0;
}
