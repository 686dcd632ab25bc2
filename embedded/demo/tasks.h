/*
 * A kernel small enough to read: tasks that give way to each other, with names
 * and a tick. For Cortex-M3.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TASKS_H
#define TASKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TASKS 4
#define TASK_STACK_WORDS 512

struct task {
    uint32_t *sp;
    const char *name;
    void (*run)(void *);
    void *argument;
    int done;
    uint32_t stack[TASK_STACK_WORDS] __attribute__((aligned(8)));
};

void task_start(unsigned n, const char *name, void (*run)(void *), void *argument);
/* Runs the tasks until all are done. */
void tasks_run(void);
/* Lets the next one run. A tick goes by. */
void task_yield(void);

/* For the agent. */
uintptr_t task_self(void);
const char *task_name(uintptr_t task);
uint64_t tasks_now(void);

#ifdef __cplusplus
}
#endif

#define HIGHWATER_MDD_KERNEL 1
#define HIGHWATER_MDD_THREAD_HANDLE() task_self()
#define HIGHWATER_MDD_THREAD_NAME(task) task_name(task)
#define HIGHWATER_MDD_NOW() tasks_now()
#define HIGHWATER_MDD_TICK_HZ 100
#define HIGHWATER_MDD_STACKS 5

#endif
