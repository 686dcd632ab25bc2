/*
 * Port: Zephyr. Records every heap that has a listener (k_malloc's system heap,
 * and the C library's where it lies in a sys_heap), with CONFIG_HEAP_LISTENER=y,
 * CONFIG_SYS_HEAP_LISTENER=y and CONFIG_THREAD_NAME=y. Add to the application:
 *
 *   zephyr_compile_definitions(HIGHWATER_MDD=1)
 *   zephyr_compile_options(-DHIGHWATER_MDD_CONFIG="highwater_mdd_zephyr.h")
 *   target_sources(app PRIVATE highwater_mdd.c highwater_mdd_zephyr.c)
 *
 * and call highwater_mdd_zephyr_listen() for each heap. A listener is not told who called: the
 * level 1 address is inside Zephyr's heap code. For the caller wrap k_malloc,
 * k_calloc, k_realloc and k_free (zephyr_ld_options(-Wl,--wrap=k_malloc ...)) instead, with
 * -DHIGHWATER_MDD_ZEPHYR_WRAP, or use a deeper backtrace.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_ZEPHYR_H
#define HIGHWATER_MDD_ZEPHYR_H

#include <stdint.h>
#include <zephyr/kernel.h>

#define HIGHWATER_MDD_KERNEL 1

const char *highwater_mdd_zephyr_name(uintptr_t thread);
/* The heap id is HEAP_ID_FROM_POINTER(&heap), or that of the C library. */
void highwater_mdd_zephyr_listen(uintptr_t heap_id);

#define HIGHWATER_MDD_KIND_NAMES "k_malloc()", "k_free()", "k_calloc()"
#define HIGHWATER_MDD_K_MALLOC 64
#define HIGHWATER_MDD_K_FREE 65
#define HIGHWATER_MDD_K_CALLOC 66

#define HIGHWATER_MDD_THREAD_HANDLE() ((uintptr_t)k_current_get())
#define HIGHWATER_MDD_THREAD_NAME(handle) highwater_mdd_zephyr_name(handle)
#define HIGHWATER_MDD_NOW() ((uint64_t)k_uptime_ticks())
#ifndef HIGHWATER_MDD_TICK_HZ
#define HIGHWATER_MDD_TICK_HZ CONFIG_SYS_CLOCK_TICKS_PER_SEC
#endif
#define HIGHWATER_MDD_LOCK_TYPE unsigned int
#define HIGHWATER_MDD_LOCK(saved) ((saved) = irq_lock())
#define HIGHWATER_MDD_UNLOCK(saved) irq_unlock(saved)

#endif
