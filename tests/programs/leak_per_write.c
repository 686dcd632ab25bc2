/* To be preloaded: in the program that LEAK_IN names every write() loses a block,
 * as if a server lost one with each reply. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

__attribute__((noinline)) static void lose_a_reply(void)
{
    const char *where = getenv("LEAK_IN");
    if (!where || strcmp(where, program_invocation_short_name) != 0)
        return;
    char *volatile lost = malloc(72);
    if (lost)
        memset(lost, 1, 72);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    lose_a_reply();
    return syscall(SYS_write, fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    lose_a_reply();
    return syscall(SYS_writev, fd, parts, count);
}
