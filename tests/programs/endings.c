/* 1001 blocks of 16 bytes, then an end of the kind that argv[1] names. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *volatile last;

static void blocks(int n)
{
    for (int i = 0; i < n; i++)
        last = malloc(16);
}

static void *late(void *argument)
{
    usleep(100 * 1000);
    blocks(501);
    return argument;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    if (!strcmp(how, "outlive")) { /* main ends, another thread goes on */
        pthread_t thread;
        blocks(500);
        if (pthread_create(&thread, NULL, late, NULL))
            return 1;
        pthread_exit(NULL);
    }
    blocks(1001);
    if (!strcmp(how, "_exit"))
        _exit(7);
    if (!strcmp(how, "quick_exit"))
        quick_exit(8);
    if (!strcmp(how, "exit_group"))
        syscall(SYS_exit_group, 9);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "segv"))
        *(volatile int *)8 = 1;
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "rawexec")) { /* an exec that no wrapper sees */
        char *args[] = {"true", NULL}, *env[] = {NULL};
        syscall(SYS_execve, "/bin/true", args, env);
    }
    if (!strcmp(how, "exec")) {
        char *args[] = {"sh", "-c", "exit 5", NULL};
        execv("/bin/sh", args);
    }
    return 3;
}
