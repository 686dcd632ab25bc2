/* See FreeRTOS.h. */
#ifndef STUB_TASK_H
#define STUB_TASK_H

#include "FreeRTOS.h"

struct tskTaskControlBlock;
typedef struct tskTaskControlBlock *TaskHandle_t;

#define taskSCHEDULER_SUSPENDED 0
#define taskSCHEDULER_NOT_STARTED 1
#define taskSCHEDULER_RUNNING 2

BaseType_t xTaskGetSchedulerState(void);
TaskHandle_t xTaskGetCurrentTaskHandle(void);
char *pcTaskGetName(TaskHandle_t task);
TickType_t xTaskGetTickCountFromISR(void);
void vTaskSuspendAll(void);
BaseType_t xTaskResumeAll(void);

#endif
