/* See tasks.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "tasks.h"

#include "board.h"
#include "highwater_mdd.h"

static struct task tasks[TASKS];
static struct task main_task = {0, "main", 0, 0, 0, {0}};
static struct task *current;
static uint64_t ticks;

/* Saves what a call must keep on the old stack, and takes it from the new one. */
__attribute__((naked)) static void switch_to(uint32_t **old __attribute__((unused)),
                                             uint32_t *fresh __attribute__((unused)))
{
    __asm__ volatile("push {r4-r11, lr}\n\t"
                     "str sp, [r0]\n\t"
                     "mov sp, r1\n\t"
                     "pop {r4-r11, pc}");
}

static void enter(void)
{
    current->run(current->argument);
    current->done = 1;
    for (;;)
        task_yield();
}

void task_start(unsigned n, const char *name, void (*run)(void *), void *argument)
{
    struct task *t = &tasks[n];
    uint32_t *top = t->stack + TASK_STACK_WORDS;
#if HIGHWATER_MDD
    highwater_mdd_stack_paint(t->stack, top);
    highwater_mdd_stack((uintptr_t)t, t->stack, top);
#endif
    t->name = name;
    t->run = run;
    t->argument = argument;
    *--top = 0; /* keeps the stack aligned to 8 when enter begins */
    *--top = (uint32_t)enter; /* pc */
    top -= 8;                 /* r4-r11 */
    t->sp = top;
}

static struct task *after(struct task *t)
{
    unsigned n = t == &main_task ? TASKS - 1 : (unsigned)(t - tasks), i;
    for (i = 1; i <= TASKS; i++) {
        struct task *c = &tasks[(n + i) % TASKS];
        if (c->run && !c->done)
            return c;
    }
    return &main_task;
}

void task_yield(void)
{
    struct task *old = current, *fresh = after(old);
    ticks++;
    if (old == fresh)
        return;
    current = fresh;
    switch_to(&old->sp, fresh->sp);
}

void tasks_run(void)
{
    current = &main_task;
    task_yield();
}

/* Before the kernel runs it is the idle thread that allocates, as in eCos. */
static const char idle[] = "Idle Thread";
uintptr_t task_self(void) { return current ? (uintptr_t)current : (uintptr_t)idle; }
const char *task_name(uintptr_t task) { return task == (uintptr_t)idle ? idle : ((struct task *)task)->name; }
uint64_t tasks_now(void) { return ticks; }
