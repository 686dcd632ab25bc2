// forward: a library to preload that stands in front of the heap and does nothing.
//
// What it costs is the price of the place, not of what is done there: `highwater
// count` is set against it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

// glibc's own names of its functions: nothing has to be looked up for them.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return __libc_realloc(old, size); }
void free(void *block) { __libc_free(block); }

// The C++ library's are found at their first call, by a variable of each.
#define REAL(name)                                                                                           \
    static __typeof__(name) *real;                                                                           \
    if (__builtin_expect(!real, 0)) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define NEW(name)                                                                                            \
    void *name(size_t size) {                                                                                \
        REAL(name);                                                                                          \
        return real(size);                                                                                   \
    }
#define DELETE(name)                                                                                         \
    void name(void *block) {                                                                                 \
        REAL(name);                                                                                          \
        real(block);                                                                                         \
    }
#define SIZED_DELETE(name)                                                                                   \
    void name(void *block, size_t size) {                                                                    \
        REAL(name);                                                                                          \
        real(block, size);                                                                                   \
    }
NEW(_Znwm)
NEW(_Znam)
DELETE(_ZdlPv)
DELETE(_ZdaPv)
SIZED_DELETE(_ZdlPvm)
SIZED_DELETE(_ZdaPvm)
