/* Makes many small blocks that stay alive, so that looking at them takes a
 * while; writes its process id to a file first. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void **last;

int main(int argc, char **argv) {
    if (argc > 1) {
        char name[4096];
        snprintf(name, sizeof name, "%s.new", argv[1]);
        FILE *file = fopen(name, "w");
        if (!file) return 2;
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
        if (rename(name, argv[1]) != 0) return 2;
    }
    for (int i = 0; i < 600000; i++) {
        void **block = malloc(48);
        block[0] = last;
        last = block;
    }
    return 0;
}
