// Frees what no allocator gave out: pointers of garbage. The allocator's complaint is
// caught, so the program lives on and makes and frees a block after each.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static sigjmp_buf back;

static void caught(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void wild(void *volatile at) {
    if (sigsetjmp(back, 1) == 0) free(at);
    void *volatile block = malloc(100);
    free(block);
}

int main(void) {
    signal(SIGABRT, caught);
    signal(SIGSEGV, caught);
    void *volatile kept = malloc(10);
    wild((void *)0xdeadbeefdeadbeef);
    wild((void *)0xdeadbeefdeadbee8);
    wild((void *)0x6b6b6b6b6b6b6b6b);
    wild((void *)~7ul);
    free(kept);
    puts("lived on");
    return 0;
}
