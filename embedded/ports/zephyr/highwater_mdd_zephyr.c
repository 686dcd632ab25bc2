/* See highwater_mdd_zephyr.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "highwater_mdd_zephyr.h"
#include "highwater_mdd.h"

const char *highwater_mdd_zephyr_name(uintptr_t thread)
{
    const char *name = k_thread_name_get((k_tid_t)thread);
    return name ? name : "";
}

#ifndef HIGHWATER_MDD_ZEPHYR_WRAP
#include <zephyr/sys/heap_listener.h>

static void on_alloc(uintptr_t heap_id, void *mem, size_t bytes)
{
    (void)heap_id;
    highwater_mdd_alloc(mem, bytes, bytes, HIGHWATER_MDD_K_MALLOC, HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME());
}

static void on_free(uintptr_t heap_id, void *mem, size_t bytes)
{
    (void)heap_id;
    (void)bytes;
    highwater_mdd_free(mem, HIGHWATER_MDD_K_FREE, HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME());
}

#ifndef HIGHWATER_MDD_ZEPHYR_HEAPS
#define HIGHWATER_MDD_ZEPHYR_HEAPS 2
#endif
static struct heap_listener listeners[2 * HIGHWATER_MDD_ZEPHYR_HEAPS];
static unsigned used;

void highwater_mdd_zephyr_listen(uintptr_t heap_id)
{
    struct heap_listener *l;
    if (used + 2 > 2 * HIGHWATER_MDD_ZEPHYR_HEAPS)
        return;
    l = &listeners[used];
    l[0].heap_id = heap_id;
    l[0].event = HEAP_ALLOC;
    l[0].alloc_cb = on_alloc;
    l[1].heap_id = heap_id;
    l[1].event = HEAP_FREE;
    l[1].free_cb = on_free;
    heap_listener_register(&l[0]);
    heap_listener_register(&l[1]);
    used += 2;
}

#else

#define HERE HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME()

void *__real_k_malloc(size_t size);
void *__real_k_calloc(size_t n, size_t size);
void __real_k_free(void *ptr);
void *__wrap_k_malloc(size_t size);
void *__wrap_k_calloc(size_t n, size_t size);
void __wrap_k_free(void *ptr);

void *__wrap_k_malloc(size_t size)
{
    void *p = __real_k_malloc(size);
    if (p)
        highwater_mdd_alloc(p, size, size, HIGHWATER_MDD_K_MALLOC, HERE);
    else
        highwater_mdd_failed();
    return p;
}

void *__wrap_k_calloc(size_t n, size_t size)
{
    void *p = __real_k_calloc(n, size);
    if (p)
        highwater_mdd_alloc(p, n * size, n * size, HIGHWATER_MDD_K_CALLOC, HERE);
    else
        highwater_mdd_failed();
    return p;
}

void __wrap_k_free(void *ptr) { __real_k_free(highwater_mdd_free(ptr, HIGHWATER_MDD_K_FREE, HERE)); }

#endif
