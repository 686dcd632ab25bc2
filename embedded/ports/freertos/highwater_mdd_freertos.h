/*
 * Port: FreeRTOS. Task names and ticks in every record. Compile the agent, this
 * port and gcc_wrap.c with
 *
 *   -DHIGHWATER_MDD=1 -DHIGHWATER_MDD_CONFIG='"highwater_mdd_freertos.h"'
 *
 * and catch the kernel's heap in one of two ways:
 *
 * 1. by the linker (any heap_N; sizes as asked for):
 *      -Wl,--wrap=pvPortMalloc,--wrap=pvPortCalloc,--wrap=vPortFree
 *    with highwater_mdd_freertos.c. heap_4's pvPortCalloc calls pvPortMalloc
 *    inside one object, where the linker cannot see it, so wrap both. heap_3 calls
 *    malloc: where gcc_wrap.c is linked too, add -DHIGHWATER_MDD_FREERTOS_HEAP_3,
 *    and a block is recorded once, as pvPortMalloc's.
 * 2. by the trace macros (no linker option; sizes as the heap uses them; with heap_3
 *    only where malloc is not wrapped):
 *    at the end of FreeRTOSConfig.h
 *      #include "highwater_mdd_freertos_trace.h"
 *
 * newlib's malloc, where the application uses it too, is caught by gcc_wrap.c.
 * Allocations made before the scheduler starts belong to the thread "boot".
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_FREERTOS_H
#define HIGHWATER_MDD_FREERTOS_H

#include <stdint.h>

#define HIGHWATER_MDD_KERNEL 1
#ifndef HIGHWATER_MDD_TIME_BITS
#define HIGHWATER_MDD_TIME_BITS 32 /* TickType_t is not wider on 32-bit ports */
#endif

/* Even: allocates; odd: releases. */
#define HIGHWATER_MDD_KIND_NAMES "pvPortMalloc()", "vPortFree()", "pvPortCalloc()"
#define HIGHWATER_MDD_PVPORTMALLOC 64
#define HIGHWATER_MDD_VPORTFREE 65
#define HIGHWATER_MDD_PVPORTCALLOC 66

/* The task, or 0 before the scheduler runs; its name, "boot" for 0. */
uintptr_t highwater_mdd_freertos_task(void);
const char *highwater_mdd_freertos_name(uintptr_t task);
uint32_t highwater_mdd_freertos_now(void);

#define HIGHWATER_MDD_THREAD_HANDLE() highwater_mdd_freertos_task()
#define HIGHWATER_MDD_THREAD_NAME(handle) highwater_mdd_freertos_name(handle)
#define HIGHWATER_MDD_NOW() highwater_mdd_freertos_now()
#ifndef HIGHWATER_MDD_TICK_HZ
#define HIGHWATER_MDD_TICK_HZ 1000 /* your configTICK_RATE_HZ */
#endif

#endif
