/* Counts its own heap operations in shared memory, for ever: argv[1] is a file
 * of three words: pid, allocs done, frees done. It is killed at any instant. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;
    if (fd < 0)
        return 2;
    atomic_ulong *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 3;
    close(fd);
    void *slots[64] = {0};
    atomic_store(&words[0], (unsigned long)getpid());
    for (unsigned long i = 0;; i++) {
        void **slot = &slots[(i * 2654435761u >> 7) % 64];
        if (*slot) {
            free(*slot);
            atomic_fetch_add(&words[2], 1);
        }
        *slot = malloc(1 + i % 1000);
        atomic_fetch_add(&words[1], 1);
    }
}
