/* Becomes a daemon: the grandchild lives on for two seconds after main, uses
 * the heap, and says in the file argv[1] that it came to its end. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    for (int i = 0; i < 100; i++)
        if (!malloc(10))
            return 3;
    pid_t pid = fork();
    if (pid)
        return pid < 0;
    setsid();
    if (fork())
        _exit(0);
    alarm(20);
    for (int i = 0; i < 20; i++) {
        void *volatile p = malloc(1000);
        free(p);
        usleep(100 * 1000);
    }
    int fd = open(argv[1], O_WRONLY | O_CREAT, 0644);
    return fd < 0 || write(fd, "done", 4) != 4;
}
