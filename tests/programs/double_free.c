/* A double free that glibc detects: it aborts, as it does without us. */
#include <stdlib.h>

__attribute__((noinline)) static void give_back(void *p)
{
    free(p);
    __asm__ volatile("");
}

int main(void)
{
    void *volatile p = malloc(100);
    give_back(p);
    give_back(p);
    return 0;
}
