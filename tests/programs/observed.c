/* What a program can see of itself; its stdout is the same with and without an
 * observer. argv[1]: what to look at. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void descriptors(void)
{
    char path[64], target[256];
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        /* The test's own files have names of their own each time. */
        printf("%d flags %d%s\n", fd, flags, fd > 2 ? target : "");
    }
}

static void threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    printf("threads %d\n", count);
    closedir(dir);
}

static void signals(void)
{
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d is not default (%d)\n", number, action.sa_handler == SIG_IGN);
    }
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 65; number++)
        if (sigismember(&mask, number) == 1)
            printf("signal %d is blocked\n", number);
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("sigaltstack %d\n", stack.ss_flags);
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    printf("timer %ld\n", (long)timer.it_value.tv_sec);
}

static void errnos(void)
{
    for (int i = 0; i < 1000; i++) {
        errno = 1000 + i;
        void *volatile p = malloc((size_t)i * 100);
        if (errno != 1000 + i)
            printf("malloc changed errno to %d\n", errno);
        errno = 2000 + i;
        p = realloc(p, (size_t)i * 200 + 1);
        if (errno != 2000 + i)
            printf("realloc changed errno to %d\n", errno);
        errno = 3000 + i;
        free(p);
        if (errno != 3000 + i)
            printf("free changed errno to %d\n", errno);
        errno = 4000 + i;
        p = calloc(3, (size_t)i);
        if (errno != 4000 + i)
            printf("calloc changed errno to %d\n", errno);
        free(p);
    }
    errno = 0;
    void *volatile p = malloc((size_t)-1 / 4);
    printf("errno kept; too much: %d %d\n", p == NULL, errno);
}

static void user_namespace(void)
{
    int result = unshare(CLONE_NEWUSER);
    printf("unshare %d errno %d\n", result, result ? errno : 0);
}

static void environment(void)
{
    extern char **environ;
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
}

static void limits(void)
{
    printf("umask %o, nice %d\n", umask(0), nice(0));
    printf("break %d\n", sbrk(0) != (void *)-1);
}

static volatile sig_atomic_t handled;
static sigjmp_buf back;

static void handler(int number)
{
    void *p = malloc(10 + (size_t)number);
    free(p);
    handled++;
}

static void jumper(int number)
{
    void *p = malloc(20);
    free(p);
    handled++;
    siglongjmp(back, number);
}

/* A timer's signal lands anywhere, also inside malloc: this would deadlock in
 * glibc itself, so the handler uses the heap only where the program does not. */
static void handlers(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     .ss_size = 65536};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 500; i++)
        raise(SIGUSR1);
    action.sa_handler = jumper;
    action.sa_flags = 0;
    sigaction(SIGUSR2, &action, NULL);
    for (volatile int i = 0; i < 500; i++) {
        if (sigsetjmp(back, 1) == 0)
            raise(SIGUSR2);
        void *volatile p = malloc(30);
        free(p);
    }
    printf("handled %d\n", (int)handled);
}

/* A signal at any instant of the program's (and the observer's) work; the
 * handler itself leaves the heap alone and jumps out now and then. */
static void count_only(int number)
{
    (void)number;
    handled++;
}

static void storm(void)
{
    struct sigaction action = {.sa_handler = count_only, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 300000; i++) {
        void *volatile p = malloc((size_t)i % 300);
        free(p);
    }
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("storm over, signals %s\n", handled > 0 ? "came" : "did not come");
}

static void closes(void)
{
    /* As daemons do: every descriptor but the standard ones. */
    for (int i = 0; i < 100; i++) {
        void *volatile p = malloc(100);
        free(p);
    }
    if (syscall(SYS_close_range, 3u, ~0u, 0u) && errno != ENOSYS)
        printf("close_range errno %d\n", errno);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int fd = open("/dev/null", O_RDONLY);
    printf("first free descriptor %d\n", fd);
    close(fd);
    for (int i = 0; i < 200000; i++) {
        void *volatile p = malloc(100);
        free(p);
    }
    printf("closed\n");
}

static void folder(void)
{
    char buffer[4096];
    if (chdir("/") || !getcwd(buffer, sizeof buffer))
        printf("chdir failed\n");
    for (int i = 0; i < 200000; i++) {
        void *volatile p = malloc(100);
        free(p);
    }
    printf("in %s\n", buffer);
}

static void passes(void)
{
    char buffer[65536];
    ssize_t length;
    while ((length = read(0, buffer, sizeof buffer)) > 0)
        if (write(1, buffer, (size_t)length) != length)
            _exit(9);
    if (write(2, "words for stderr\n", 17) != 17)
        _exit(9);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    static const struct {
        const char *name;
        void (*look)(void);
    } all[] = {
        {"descriptors", descriptors}, {"threads", threads}, {"signals", signals},   {"errno", errnos},
        {"userns", user_namespace},   {"env", environment}, {"limits", limits},     {"handlers", handlers},
        {"storm", storm},             {"closes", closes},   {"folder", folder},     {"passes", passes},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, what)) {
            all[i].look();
            fflush(stdout);
            return 42;
        }
    return 2;
}
