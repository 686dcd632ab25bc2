/*
 * FreeRTOS as the demo wants it: preemptive, time slices, heap_4.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

#define configUSE_PREEMPTION 1
#define configUSE_TIME_SLICING 1
#define configCPU_CLOCK_HZ 25000000
#define configTICK_RATE_HZ 1000
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_32_BITS
#define configMAX_PRIORITIES 4
#define configMINIMAL_STACK_SIZE 256
#define configMAX_TASK_NAME_LEN 12
#define configUSE_IDLE_HOOK 1
#define configUSE_TICK_HOOK 0
#define configUSE_TIMERS 0
#define configSUPPORT_DYNAMIC_ALLOCATION 1
#define configSUPPORT_STATIC_ALLOCATION 0
#define configTOTAL_HEAP_SIZE (64 * 1024)
/* vTaskGetInfo, for where the stacks lie */
#define configUSE_TRACE_FACILITY 1
/* fresh stacks are filled, so that it can be seen how deep they have been */
#define configCHECK_FOR_STACK_OVERFLOW 2
#define configKERNEL_INTERRUPT_PRIORITY 255
#define configMAX_SYSCALL_INTERRUPT_PRIORITY 32
#define configASSERT(x) ((x) ? (void)0 : demo_assert_failed(__LINE__))
void demo_assert_failed(int line);

#define INCLUDE_vTaskDelete 1
#define INCLUDE_vTaskSuspend 1
#define INCLUDE_xTaskGetSchedulerState 1
#define INCLUDE_xTaskGetCurrentTaskHandle 1

/* the port's names for the vectors that board.c leaves free */
#define vPortSVCHandler board_svcall
#define xPortPendSVHandler board_pendsv
#define xPortSysTickHandler board_systick

#ifdef HIGHWATER_MDD_FREERTOS_TRACE
#include "highwater_mdd_freertos_trace.h"
#endif

#endif
