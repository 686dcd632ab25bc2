/* See highwater_mdd_freertos.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "FreeRTOS.h"
#include "task.h"

#include "highwater_mdd_freertos.h"
#include "highwater_mdd.h"

#if HIGHWATER_MDD

uintptr_t highwater_mdd_freertos_task(void)
{
    if (xTaskGetSchedulerState() == taskSCHEDULER_NOT_STARTED)
        return 0;
    return (uintptr_t)xTaskGetCurrentTaskHandle();
}

const char *highwater_mdd_freertos_name(uintptr_t task) { return task ? pcTaskGetName((TaskHandle_t)task) : "boot"; }

/* the FromISR form takes no lock and may be called from anywhere */
uint32_t highwater_mdd_freertos_now(void) { return (uint32_t)xTaskGetTickCountFromISR(); }

#define NOINLINE __attribute__((noinline))
#define HERE HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME()

/* For the trace macros; see highwater_mdd_freertos_trace.h. */
void highwater_mdd_freertos_alloc(void *ptr, size_t size, void *caller);
void highwater_mdd_freertos_free(void *ptr, size_t size, void *caller);

void highwater_mdd_freertos_alloc(void *ptr, size_t size, void *caller)
{
    if (ptr)
        highwater_mdd_alloc(ptr, size, size, HIGHWATER_MDD_PVPORTMALLOC, caller, HIGHWATER_MDD_FRAME());
    else
        highwater_mdd_failed();
}

void highwater_mdd_freertos_free(void *ptr, size_t size, void *caller)
{
    (void)size;
    highwater_mdd_free(ptr, HIGHWATER_MDD_VPORTFREE, caller, HIGHWATER_MDD_FRAME());
}

#ifndef HIGHWATER_MDD_FREERTOS_TRACE
#ifdef HIGHWATER_MDD_FREERTOS_HEAP_3
/* heap_3 takes its memory from malloc, which gcc_wrap.c would record a second time. It
 * suspends the other tasks itself; the calls nest. */
#include "highwater_mdd_wrap.h"
#define BEGIN() (vTaskSuspendAll(), (void)(highwater_mdd_wrap_pass = 1))
#define END() (highwater_mdd_wrap_pass = 0, (void)xTaskResumeAll())
#else
#define BEGIN() ((void)0)
#define END() ((void)0)
#endif

void *__real_pvPortMalloc(size_t size);
/* heap_1 and heap_3 have none */
__attribute__((weak)) void *__real_pvPortCalloc(size_t n, size_t size);
void __real_vPortFree(void *ptr);
NOINLINE void *__wrap_pvPortMalloc(size_t size);
NOINLINE void *__wrap_pvPortCalloc(size_t n, size_t size);
NOINLINE void __wrap_vPortFree(void *ptr);

static void *made(void *p, size_t size, unsigned kind, void *caller, void *frame)
{
    if (p)
        highwater_mdd_alloc(p, size, size, kind, caller, frame);
    else
        highwater_mdd_failed();
    return p;
}

NOINLINE void *__wrap_pvPortMalloc(size_t size)
{
    void *p;
    BEGIN();
    p = __real_pvPortMalloc(size);
    END();
    return made(p, size, HIGHWATER_MDD_PVPORTMALLOC, HERE);
}

NOINLINE void *__wrap_pvPortCalloc(size_t n, size_t size)
{
    void *p;
    BEGIN();
    p = __real_pvPortCalloc(n, size);
    END();
    return made(p, n * size, HIGHWATER_MDD_PVPORTCALLOC, HERE);
}

NOINLINE void __wrap_vPortFree(void *ptr)
{
    ptr = highwater_mdd_free(ptr, HIGHWATER_MDD_VPORTFREE, HERE);
    BEGIN();
    __real_vPortFree(ptr);
    END();
}
#endif

#else

typedef int highwater_mdd_freertos_is_off;

#endif
