/*
 * Port: C++ operator new and delete, defined here under their mangled names, so
 * that each keeps its own kind and the backtrace begins at its caller. Needs no
 * libstdc++. Use it with gcc_wrap.c.
 *
 * A throwing new that finds no memory calls highwater_mdd_new_failed(), which
 * may not return: define one that resets the board, or that throws if your
 * program is built with exceptions.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "highwater_mdd_wrap.h"

#if !HIGHWATER_MDD

typedef int highwater_mdd_cxx_is_off;

#else

/* How size_t is mangled: j for unsigned int, m for unsigned long. */
#ifndef HIGHWATER_MDD_SIZE_IS_LONG
#if defined(__SIZEOF_SIZE_T__) && __SIZEOF_SIZE_T__ == 8
#define HIGHWATER_MDD_SIZE_IS_LONG 1
#else
#define HIGHWATER_MDD_SIZE_IS_LONG 0
#endif
#endif
#if HIGHWATER_MDD_SIZE_IS_LONG
#define SIZED(before, after) before##m##after
#else
#define SIZED(before, after) before##j##after
#endif

#define NOINLINE __attribute__((noinline))
#define HERE HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME()

void highwater_mdd_new_failed(void);
__attribute__((weak, noreturn)) void highwater_mdd_new_failed(void) { __builtin_trap(); }

/* A new of nothing is a block of its own. */
#define AT_LEAST_ONE(size) ((size) ? (size) : 1)

#define NEW(name, params, size, align, kind) \
    NOINLINE void *name params; \
    NOINLINE void *name params \
    { \
        void *p = highwater_mdd_wrap_make(AT_LEAST_ONE(size), (align), 0, (kind), HERE); \
        if (!p) \
            highwater_mdd_new_failed(); \
        return p; \
    }

#define NEW_NOTHROW(name, params, size, align, kind) \
    NOINLINE void *name params; \
    NOINLINE void *name params \
    { \
        (void)nothrow; \
        return highwater_mdd_wrap_make(AT_LEAST_ONE(size), (align), 0, (kind), HERE); \
    }

#define DELETE(name, params, unused, kind) \
    NOINLINE void name params; \
    NOINLINE void name params \
    { \
        unused; \
        highwater_mdd_wrap_release(ptr, (kind), HERE); \
    }

NEW(SIZED(_Znw, ), (size_t size), size, 0, HIGHWATER_MDD_NEW)
NEW(SIZED(_Zna, ), (size_t size), size, 0, HIGHWATER_MDD_NEW_ARRAY)
NEW_NOTHROW(SIZED(_Znw, RKSt9nothrow_t), (size_t size, const void *nothrow), size, 0, HIGHWATER_MDD_NEW_NOTHROW)
NEW_NOTHROW(SIZED(_Zna, RKSt9nothrow_t), (size_t size, const void *nothrow), size, 0,
            HIGHWATER_MDD_NEW_ARRAY_NOTHROW)
NEW(SIZED(_Znw, St11align_val_t), (size_t size, size_t align), size, align, HIGHWATER_MDD_NEW_ALIGNED)
NEW(SIZED(_Zna, St11align_val_t), (size_t size, size_t align), size, align, HIGHWATER_MDD_NEW_ARRAY_ALIGNED)
NEW_NOTHROW(SIZED(_Znw, St11align_val_tRKSt9nothrow_t), (size_t size, size_t align, const void *nothrow), size, align,
            HIGHWATER_MDD_NEW_ALIGNED_NOTHROW)
NEW_NOTHROW(SIZED(_Zna, St11align_val_tRKSt9nothrow_t), (size_t size, size_t align, const void *nothrow), size, align,
            HIGHWATER_MDD_NEW_ARRAY_ALIGNED_NOTHROW)

DELETE(_ZdlPv, (void *ptr), (void)0, HIGHWATER_MDD_DELETE)
DELETE(_ZdaPv, (void *ptr), (void)0, HIGHWATER_MDD_DELETE_ARRAY)
DELETE(SIZED(_ZdlPv, ), (void *ptr, size_t size), (void)size, HIGHWATER_MDD_DELETE_SIZED)
DELETE(SIZED(_ZdaPv, ), (void *ptr, size_t size), (void)size, HIGHWATER_MDD_DELETE_ARRAY_SIZED)
DELETE(_ZdlPvRKSt9nothrow_t, (void *ptr, const void *nothrow), (void)nothrow, HIGHWATER_MDD_DELETE_NOTHROW)
DELETE(_ZdaPvRKSt9nothrow_t, (void *ptr, const void *nothrow), (void)nothrow, HIGHWATER_MDD_DELETE_ARRAY_NOTHROW)
DELETE(_ZdlPvSt11align_val_t, (void *ptr, size_t align), (void)align, HIGHWATER_MDD_DELETE_ALIGNED)
DELETE(_ZdaPvSt11align_val_t, (void *ptr, size_t align), (void)align, HIGHWATER_MDD_DELETE_ARRAY_ALIGNED)
DELETE(SIZED(_ZdlPv, St11align_val_t), (void *ptr, size_t size, size_t align), ((void)size, (void)align),
       HIGHWATER_MDD_DELETE_SIZED_ALIGNED)
DELETE(SIZED(_ZdaPv, St11align_val_t), (void *ptr, size_t size, size_t align), ((void)size, (void)align),
       HIGHWATER_MDD_DELETE_ARRAY_SIZED_ALIGNED)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *ptr, size_t align, const void *nothrow),
       ((void)align, (void)nothrow), HIGHWATER_MDD_DELETE_ALIGNED_NOTHROW)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *ptr, size_t align, const void *nothrow),
       ((void)align, (void)nothrow), HIGHWATER_MDD_DELETE_ARRAY_ALIGNED_NOTHROW)

#endif
