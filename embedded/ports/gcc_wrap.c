/*
 * Port: the C heap, caught by the linker. Link with
 *
 *   -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=memalign
 * and with newlib also
 *   -Wl,--wrap=_malloc_r,--wrap=_calloc_r,--wrap=_realloc_r,--wrap=_free_r,--wrap=_memalign_r
 * and elsewhere, where the program uses them,
 *   -Wl,--wrap=aligned_alloc,--wrap=posix_memalign     (-DHIGHWATER_MDD_WRAP_POSIX)
 *
 * newlib's own strdup, stdio and so on call the _r family, so both are needed.
 * Compile this file, and the application's system call stubs, with -fno-lto;
 * the application itself may use LTO.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "highwater_mdd_wrap.h"

#if !HIGHWATER_MDD

typedef int highwater_mdd_wrap_is_off;

#else

/* newlib's re-entrant family: on where its header is. */
#ifndef HIGHWATER_MDD_WRAP_REENT
#if defined(__has_include)
#if __has_include(<reent.h>)
#define HIGHWATER_MDD_WRAP_REENT 1
#endif
#endif
#endif
#ifndef HIGHWATER_MDD_WRAP_REENT
#define HIGHWATER_MDD_WRAP_REENT 0
#endif

/* What the allocator took for a block. The default asks malloc_usable_size and
 * adds the word in front of the chunk, as newlib and glibc have it. */
#ifndef HIGHWATER_MDD_ACTUAL
size_t malloc_usable_size(void *ptr);
#define HIGHWATER_MDD_ACTUAL(base, bytes) ((void)(bytes), malloc_usable_size(base) + sizeof(size_t))
#endif

#define NOINLINE __attribute__((noinline))

#if HIGHWATER_MDD_WRAP_REENT
#include <reent.h>
void *__real__malloc_r(struct _reent *reent, size_t size);
void *__real__calloc_r(struct _reent *reent, size_t n, size_t size);
void *__real__realloc_r(struct _reent *reent, void *ptr, size_t size);
void *__real__memalign_r(struct _reent *reent, size_t align, size_t size);
void __real__free_r(struct _reent *reent, void *ptr);
void __malloc_lock(struct _reent *reent);
void __malloc_unlock(struct _reent *reent);
#define REENT _REENT
#define LOCK() __malloc_lock(REENT)
#define UNLOCK() __malloc_unlock(REENT)
#define REAL_MALLOC(size) __real__malloc_r(REENT, (size))
#define REAL_CALLOC(size) __real__calloc_r(REENT, 1, (size))
#define REAL_REALLOC(ptr, size) __real__realloc_r(REENT, (ptr), (size))
#define REAL_MEMALIGN(align, size) __real__memalign_r(REENT, (align), (size))
#define REAL_FREE(ptr) __real__free_r(REENT, (ptr))
/* newlib's realloc and calloc call _malloc_r and _free_r themselves, on chunks
 * that are none of the program's. newlib's lock is recursive by contract, so
 * one counter under it tells the inner calls apart. */
static unsigned inner;
#define INNER (inner)
#define ENTER() (inner++)
#define LEAVE() (inner--)
#else
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__real_memalign(size_t align, size_t size);
void __real_free(void *ptr);
#define LOCK() ((void)0)
#define UNLOCK() ((void)0)
#define REAL_MALLOC(size) __real_malloc(size)
#define REAL_CALLOC(size) __real_calloc(1, (size))
#define REAL_REALLOC(ptr, size) __real_realloc((ptr), (size))
#define REAL_MEMALIGN(align, size) __real_memalign((align), (size))
#define REAL_FREE(ptr) __real_free(ptr)
#define INNER 0
#define ENTER() ((void)0)
#define LEAVE() ((void)0)
#endif

volatile unsigned char highwater_mdd_wrap_pass;

static size_t actual_size(void *base, size_t bytes)
{
#if HIGHWATER_MDD_ACTUAL_SIZE
    return HIGHWATER_MDD_ACTUAL(base, bytes);
#else
    (void)base;
    (void)bytes;
    return 0;
#endif
}

/* Canaries around the block, and its record. */
static void *finish(void *base, size_t head, size_t size, size_t bytes, unsigned kind, void *caller, void *frame)
{
    void *p = base;
#if HIGHWATER_MDD_GUARDS
    p = highwater_mdd_guard(base, head, size);
    kind |= highwater_mdd_guard_flags(head);
#else
    (void)head;
#endif
    highwater_mdd_alloc(p, size, actual_size(base, bytes), kind, caller, frame);
    return p;
}

static size_t guarded(size_t head, size_t size)
{
#if HIGHWATER_MDD_GUARDS
    size_t bytes = head + size + HIGHWATER_MDD_GUARD_TAIL;
    return bytes < size ? (size_t)-1 : bytes; /* too much: let the allocator refuse it */
#else
    (void)head;
    return size;
#endif
}

void *highwater_mdd_wrap_make(size_t size, size_t align, int zero, unsigned kind, void *caller, void *frame)
{
    size_t head = 0, bytes;
    void *base, *p = NULL;
    if (highwater_mdd_wrap_pass)
        return zero ? REAL_CALLOC(size) : align ? REAL_MEMALIGN(align, size) : REAL_MALLOC(size);
#if HIGHWATER_MDD_GUARDS
    head = align > HIGHWATER_MDD_GUARD_HEAD ? align : HIGHWATER_MDD_GUARD_HEAD;
#endif
    bytes = guarded(head, size);
    LOCK();
    ENTER();
    if (zero)
        base = REAL_CALLOC(bytes);
    else
        base = align ? REAL_MEMALIGN(align, bytes) : REAL_MALLOC(bytes);
    LEAVE();
    if (base) {
        p = finish(base, head, size, bytes, kind, caller, frame);
    } else {
        highwater_mdd_failed();
    }
    UNLOCK();
    return p;
}

void highwater_mdd_wrap_release(void *ptr, unsigned kind, void *caller, void *frame)
{
    if (highwater_mdd_wrap_pass) {
        REAL_FREE(ptr);
        return;
    }
    LOCK();
    ptr = highwater_mdd_free(ptr, kind, caller, frame);
    ENTER();
    REAL_FREE(ptr);
    LEAVE();
    UNLOCK();
}

static void *resize(void *ptr, size_t size, void *caller, void *frame)
{
    struct highwater_mdd_pending pending;
    void *base, *fresh, *p = NULL;
    size_t head = 0, bytes = size;
    if (highwater_mdd_wrap_pass)
        return REAL_REALLOC(ptr, size);
    if (!ptr)
        return highwater_mdd_wrap_make(size, 0, 0, HIGHWATER_MDD_REALLOC, caller, frame);
    if (!size) { /* newlib and glibc release it */
        highwater_mdd_wrap_release(ptr, HIGHWATER_MDD_REALLOC_FREE, caller, frame);
        return NULL;
    }
    LOCK();
    base = highwater_mdd_realloc_begin(&pending, ptr, HIGHWATER_MDD_REALLOC_FREE, caller, frame);
    head = (size_t)((char *)ptr - (char *)base); /* the contents stay where they are in the block */
    if (head)
        bytes = guarded(head, size);
    ENTER();
    fresh = REAL_REALLOC(base, bytes);
    LEAVE();
    if (fresh) {
        highwater_mdd_realloc_commit(&pending);
        if (head || !HIGHWATER_MDD_GUARDS)
            p = finish(fresh, head, size, bytes, HIGHWATER_MDD_REALLOC | HIGHWATER_MDD_FLAG_PAIR << 16, caller, frame);
        else { /* a block from before the guards stays without them */
            highwater_mdd_alloc(fresh, size, actual_size(fresh, bytes),
                                HIGHWATER_MDD_REALLOC | HIGHWATER_MDD_FLAG_PAIR << 16, caller, frame);
            p = fresh;
        }
    } else {
        highwater_mdd_realloc_undo(&pending);
        highwater_mdd_failed();
    }
    UNLOCK();
    return p;
}

#define HERE HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME()

/* n times size in bytes, or too much for any allocator. */
static size_t product(size_t n, size_t size)
{
    return size && n > (size_t)-1 / size ? (size_t)-1 : n * size;
}

NOINLINE void *__wrap_malloc(size_t size);
NOINLINE void *__wrap_malloc(size_t size) { return highwater_mdd_wrap_make(size, 0, 0, HIGHWATER_MDD_MALLOC, HERE); }

NOINLINE void *__wrap_calloc(size_t n, size_t size);
NOINLINE void *__wrap_calloc(size_t n, size_t size)
{
    return highwater_mdd_wrap_make(product(n, size), 0, 1, HIGHWATER_MDD_CALLOC, HERE);
}

NOINLINE void *__wrap_realloc(void *ptr, size_t size);
NOINLINE void *__wrap_realloc(void *ptr, size_t size) { return resize(ptr, size, HERE); }

NOINLINE void __wrap_free(void *ptr);
NOINLINE void __wrap_free(void *ptr) { highwater_mdd_wrap_release(ptr, HIGHWATER_MDD_FREE, HERE); }

NOINLINE void *__wrap_memalign(size_t align, size_t size);
NOINLINE void *__wrap_memalign(size_t align, size_t size)
{
    return highwater_mdd_wrap_make(size, align, 0, HIGHWATER_MDD_MEMALIGN, HERE);
}

#ifdef HIGHWATER_MDD_WRAP_POSIX
NOINLINE void *__wrap_aligned_alloc(size_t align, size_t size);
NOINLINE void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return highwater_mdd_wrap_make(size, align, 0, HIGHWATER_MDD_ALIGNED_ALLOC, HERE);
}

NOINLINE int __wrap_posix_memalign(void **out, size_t align, size_t size);
NOINLINE int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    void *p;
    if (align < sizeof(void *) || align & (align - 1))
        return 22; /* EINVAL */
    p = highwater_mdd_wrap_make(size, align, 0, HIGHWATER_MDD_POSIX_MEMALIGN, HERE);
    if (!p)
        return 12; /* ENOMEM */
    *out = p;
    return 0;
}
#endif

#if HIGHWATER_MDD_WRAP_REENT
/* The re-entrant family. Inner calls pass through, untouched. */
NOINLINE void *__wrap__malloc_r(struct _reent *reent, size_t size);
NOINLINE void *__wrap__malloc_r(struct _reent *reent, size_t size)
{
    if (INNER)
        return __real__malloc_r(reent, size);
    return highwater_mdd_wrap_make(size, 0, 0, HIGHWATER_MDD_MALLOC, HERE);
}

NOINLINE void *__wrap__calloc_r(struct _reent *reent, size_t n, size_t size);
NOINLINE void *__wrap__calloc_r(struct _reent *reent, size_t n, size_t size)
{
    if (INNER)
        return __real__calloc_r(reent, n, size);
    return highwater_mdd_wrap_make(product(n, size), 0, 1, HIGHWATER_MDD_CALLOC, HERE);
}

NOINLINE void *__wrap__realloc_r(struct _reent *reent, void *ptr, size_t size);
NOINLINE void *__wrap__realloc_r(struct _reent *reent, void *ptr, size_t size)
{
    if (INNER)
        return __real__realloc_r(reent, ptr, size);
    return resize(ptr, size, HERE);
}

NOINLINE void *__wrap__memalign_r(struct _reent *reent, size_t align, size_t size);
NOINLINE void *__wrap__memalign_r(struct _reent *reent, size_t align, size_t size)
{
    if (INNER)
        return __real__memalign_r(reent, align, size);
    return highwater_mdd_wrap_make(size, align, 0, HIGHWATER_MDD_MEMALIGN, HERE);
}

NOINLINE void __wrap__free_r(struct _reent *reent, void *ptr);
NOINLINE void __wrap__free_r(struct _reent *reent, void *ptr)
{
    if (INNER) {
        __real__free_r(reent, ptr);
        return;
    }
    highwater_mdd_wrap_release(ptr, HIGHWATER_MDD_FREE, HERE);
}
#endif

#endif
