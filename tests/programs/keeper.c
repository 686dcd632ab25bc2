/* A library to be loaded at run time: keeps a block in a global, and one in a
 * thread-local variable. */
#include <stdlib.h>

static void *volatile kept;
static __thread void *volatile kept_here;
/* So large that it gets a block of its own. */
static __thread char room[5000];

__attribute__((noinline)) void kept_by_library(void) { kept = malloc(321); }
__attribute__((noinline)) void kept_by_local(void) { kept_here = malloc(322); room[7] = 1; }

void keep(void) {
    kept_by_library();
    kept_by_local();
}
