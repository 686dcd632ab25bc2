/* Asks the kernel for address space in each way there is, and keeps some of it
 * resident for a while. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    char *a = mmap(0, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED)
        return 1;
    memset(a, 1, 3 << 20);
    a = mremap(a, 3 << 20, 5 << 20, MREMAP_MAYMOVE);
    if (a == MAP_FAILED)
        return 2;
    memset(a, 2, 5 << 20);
    if (sbrk(64 << 10) == (void *)-1)
        return 3;
    usleep(400000);
    return munmap(a, 5 << 20) != 0;
}
