/* A program that tells LeakSanitizer which of its leaks are meant. */
#include <stdlib.h>

const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "# meant\nleak:keep_table\nleak:^keep_name$\n";
}

static void *volatile last;

__attribute__((noinline)) static void keep_table(void)
{
    last = malloc(1000);
}

__attribute__((noinline)) static void keep_name(void)
{
    last = malloc(30);
}

__attribute__((noinline)) static void leak(void)
{
    last = malloc(77); /* LEAK */
}

__attribute__((noinline)) static void other(void)
{
    last = malloc(5); /* OTHER */
}

int main(void)
{
    keep_table();
    keep_name();
    leak();
    other();
    return 0;
}
