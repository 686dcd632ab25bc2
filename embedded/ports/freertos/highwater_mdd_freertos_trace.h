/*
 * Include this at the end of FreeRTOSConfig.h to record by the kernel's trace
 * macros; compile highwater_mdd_freertos.c with -DHIGHWATER_MDD_FREERTOS_TRACE.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_FREERTOS_TRACE_H
#define HIGHWATER_MDD_FREERTOS_TRACE_H

#include <stddef.h>

void highwater_mdd_freertos_alloc(void *ptr, size_t size, void *caller);
void highwater_mdd_freertos_free(void *ptr, size_t size, void *caller);

#define traceMALLOC(ptr, size) highwater_mdd_freertos_alloc((ptr), (size), __builtin_return_address(0))
#define traceFREE(ptr, size) highwater_mdd_freertos_free((ptr), (size), __builtin_return_address(0))

#endif
