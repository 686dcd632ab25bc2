/* How much memory the program has, by the kernel: argv[1] pairs of malloc and
 * free, argv[2] blocks that stay. Prints resident and locked kilobytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    for (long i = atol(argv[1]); i > 0; i--) {
        void *volatile p = malloc((size_t)i % 500);
        free(p);
    }
    for (long i = atol(argv[2]); i > 0; i--) {
        void *volatile p = malloc(16);
        (void)p;
    }
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    char *line = length > 0 ? strstr(text, "VmRSS:") : NULL;
    long kib = line ? atol(line + 6) : -1;
    dprintf(1, "%ld\n", kib);
    return kib < 0;
}
