/* A library of which every call loses a block. */
#include <stdlib.h>
#include <string.h>

void leak_per_request(void)
{
    char *volatile lost = malloc(120);
    memset(lost, 1, 120);
}
