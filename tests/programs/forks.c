/* A parent that forks children which use the heap. argv: counts MODE N
 *   single    one thread; N children, each allocates, frees the parent's block and exits
 *   threaded  the same while three threads use the heap all the time
 *   spawn     vfork + exec, posix_spawn, system, popen of /bin/true, N times */
#include "known.h"
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

static void must(int condition, int code)
{
    if (!condition)
        _exit(code);
}

static atomic_int stop;
static struct known counted[3];

static void *busy(void *argument)
{
    struct known *k = argument;
    for (long i = 0; !atomic_load(&stop); i++) {
        if (i % 64 == 0)
            usleep(50); /* two processors have other work too */
        void *p = keep(malloc(64));
        known_alloc_in(k, 64);
        known_free_in(k, 64);
        free(p);
    }
    return NULL;
}

static void wait_for(pid_t pid)
{
    int status;
    must(pid > 0, 20);
    while (waitpid(pid, &status, 0) != pid)
        must(errno == EINTR, 21);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0, 22);
}

static void children(long n)
{
    for (long i = 0; i < n; i++) {
        void *p = keep(malloc(100));
        known_alloc(100);
        pid_t pid = fork();
        if (pid == 0) {
            free(p); /* the child's copy: the parent's block lives on */
            for (int j = 0; j < 200; j++)
                keep(malloc(1000));
            exit(0);
        }
        wait_for(pid);
        known_free(100);
        free(p);
    }
}

static void spawns(long n)
{
    char *const args[] = {"true", NULL};
    for (long i = 0; i < n; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execve("/bin/true", args, environ);
            _exit(1);
        }
        wait_for(pid);
        must(posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ) == 0, 30);
        wait_for(pid);
        must(system("true") == 0, 31);
        FILE *f = popen("true", "r");
        must(f && pclose(f) == 0, 32);
        keep(malloc(10));
        known_alloc(10);
    }
}

int main(int argc, char **argv)
{
    must(argc > 3, 2);
    long n = atol(argv[3]);
    pthread_t threads[3];
    int threaded = !strcmp(argv[2], "threaded");
    for (int t = 0; threaded && t < 3; t++)
        must(pthread_create(&threads[t], NULL, busy, &counted[t]) == 0, 3);
    if (!strcmp(argv[2], "spawn"))
        spawns(n);
    else
        children(n);
    atomic_store(&stop, 1);
    for (int t = 0; threaded && t < 3; t++) {
        pthread_join(threads[t], NULL);
        known_add(&counted[t]);
    }
    known_write(argv[1]);
    return 0;
}
