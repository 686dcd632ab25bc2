/* Two plugins of the same shape from one source; NAME is its function. */
#include <stdlib.h>
#define GLUE(a, b) a##b
#define FUNCTION(name) GLUE(work_of_, name)

__attribute__((noinline)) void *FUNCTION(NAME)(void)
{
    void *p = malloc(SIZE);
    __asm__ volatile("" : "+r"(p));
    return p;
}

void *plugin(void)
{
    void *p = FUNCTION(NAME)();
    __asm__ volatile("" : "+r"(p));
    return p;
}
