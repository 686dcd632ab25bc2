/* Prints what children see of the environment, for each way to start one. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void title(const char *text)
{
    printf("== %s\n", text);
    fflush(stdout);
}

static void wait_for(pid_t pid)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        _exit(3);
}

int main(void)
{
    char *const args[] = {"env", NULL};
    pid_t pid;

    title("own");
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
    title("getenv");
    printf("%s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "(none)");
    title("system");
    if (system("env"))
        return 4;
    title("popen");
    FILE *f = popen("env", "r");
    for (int c; f && (c = fgetc(f)) != EOF;)
        putchar(c);
    if (!f || pclose(f))
        return 5;
    title("posix_spawn");
    if (posix_spawn(&pid, "/usr/bin/env", NULL, NULL, args, environ))
        return 6;
    wait_for(pid);
    title("posix_spawnp");
    if (posix_spawnp(&pid, "env", NULL, NULL, args, environ))
        return 7;
    wait_for(pid);
    title("fork execlp");
    if ((pid = fork()) == 0) {
        execlp("env", "env", (char *)NULL);
        _exit(1);
    }
    wait_for(pid);
    title("fork execvp");
    if ((pid = fork()) == 0) {
        execvp("env", args);
        _exit(1);
    }
    wait_for(pid);
    title("fork execve");
    if ((pid = fork()) == 0) {
        execve("/usr/bin/env", args, environ);
        _exit(1);
    }
    wait_for(pid);
    title("vfork execv");
    if ((pid = vfork()) == 0) {
        execv("/usr/bin/env", args);
        _exit(1);
    }
    wait_for(pid);
    title("fork execle");
    fflush(stdout);
    if ((pid = fork()) == 0) {
        char *const given[] = {"ONLY=this", NULL};
        execle("/usr/bin/env", "env", (char *)NULL, given);
        _exit(1);
    }
    wait_for(pid);
    return 0;
}
