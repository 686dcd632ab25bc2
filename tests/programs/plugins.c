/* Loads plugin after plugin at, if the loader will, the same address.
 * argv: plugins. Prints where each one was. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    for (int round = 0; round < 3; round++)
        for (int i = 1; i < argc; i++) {
            void *library = dlopen(argv[i], RTLD_NOW);
            void *(*plugin)(void) = library ? (void *(*)(void))dlsym(library, "plugin") : NULL;
            if (!plugin)
                return 3;
            printf("%p\n", (void *)plugin);
            plugin(); /* a leak: its site is unloaded before the end */
            dlclose(library);
        }
    return 0;
}
