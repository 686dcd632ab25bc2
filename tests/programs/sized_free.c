/* C23's free_sized and free_aligned_sized, where something exports them.
 * Exit 77 where nothing does. argv[1]: the counts. */
#include "known.h"
#include <dlfcn.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!free_sized || !free_aligned_sized)
        return 77;
    for (size_t size = 1; size <= 100; size++) {
        void *p = keep(malloc(size));
        known_alloc(size);
        known_free(size);
        free_sized(p, size);
        p = keep(aligned_alloc(64, 64 * size));
        known_alloc(64 * size);
        known_free(64 * size);
        free_aligned_sized(p, 64, 64 * size);
    }
    known_write(argv[1]);
    return 0;
}
