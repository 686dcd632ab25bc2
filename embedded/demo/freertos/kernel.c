/*
 * Demo and test: four FreeRTOS tasks at the kernel's heap, interrupted by each
 * other wherever the tick finds them. Each tells what it did, one line an event, its
 * number in front:
 *
 *   0 A kind address size line       made
 *   0 F kind address size line       released
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "FreeRTOS.h"
#include "task.h"

#include "board.h"
#include "highwater_mdd.h"

#define TASKS 4
#define SLOTS 12
#ifdef NO_FREE /* heap_1 */
#define OPS SLOTS
#else
#define OPS 150
#endif
#define STACK_WORDS 512

static struct {
    void *p;
    size_t size;
} slots[TASKS][SLOTS];
static TaskHandle_t tasks[TASKS];
static volatile unsigned done;

static char *number(char *to, uintptr_t value, unsigned base)
{
    char digits[12];
    int n = 0;
    do
        digits[n++] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    *to++ = ' ';
    while (n)
        *to++ = digits[--n];
    return to;
}

static void tell(unsigned task, const char *what, void *p, size_t size, int line)
{
    char text[80], *t = text;
    *t++ = (char)('0' + task);
    while (*what)
        *t++ = *what++;
    t = number(t, (uintptr_t)p, 16);
    t = number(t, size, 10);
    t = number(t, (uintptr_t)line, 10);
    *t++ = '\n';
    *t = 0;
    /* lines stay whole; the operations themselves are interrupted freely */
    taskENTER_CRITICAL();
    board_say(text);
    taskEXIT_CRITICAL();
}

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* One line an operation: the test compares it with what the debug information says. */
__attribute__((noinline)) void operate(unsigned task, uint32_t *seed)
{
#ifdef NO_FREE
    static unsigned next[TASKS];
    unsigned n = next[task]++;
#else
    unsigned n = random_below(seed, SLOTS);
#endif
    size_t size = slots[task][n].size;
    void *p = slots[task][n].p;
    if (p) {
        slots[task][n].p = NULL;
        vPortFree(p); tell(task, " F vPortFree", p, size, __LINE__);
        return;
    }
    size = 1 + random_below(seed, 400);
#ifndef NO_CALLOC /* heap_1, heap_3 */
    if (random_below(seed, 2)) {
        p = pvPortCalloc(1, size); tell(task, " A pvPortCalloc", p, size, __LINE__);
    }
#endif
    if (!p) {
        p = pvPortMalloc(size); tell(task, " A pvPortMalloc", p, size, __LINE__);
    }
    slots[task][n].p = p;
    slots[task][n].size = size;
}

__attribute__((noinline)) void worker(void *argument)
{
    unsigned task = (unsigned)(uintptr_t)argument, i;
    uint32_t seed = 4711 + task;
    for (i = 0; i < OPS; i++) {
        operate(task, &seed);
        /* long enough for the tick to fall into the next operation's middle now and then */
        for (volatile uint32_t n = random_below(&seed, 3000); n; n--) {
        }
    }
    taskENTER_CRITICAL();
    done++;
    taskEXIT_CRITICAL();
    vTaskSuspend(NULL);
}

/* For breakpoints. */
__attribute__((noinline)) void finished(void) { __asm__ volatile("" : : : "memory"); }

void vApplicationIdleHook(void);
void vApplicationIdleHook(void)
{
    unsigned i;
    if (done < TASKS)
        return;
    highwater_mdd_stacks_measure();
#ifndef NO_FREE
    for (i = 0; i < TASKS; i++)
        vTaskDelete(tasks[i]);
#else
    (void)i;
#endif
    finished();
    board_exit(0);
}

void vApplicationStackOverflowHook(TaskHandle_t task, char *name);
void vApplicationStackOverflowHook(TaskHandle_t task, char *name)
{
    (void)task;
    board_say(name);
    board_say(": stack overflow\n");
    board_exit(98);
}

void demo_assert_failed(int line)
{
    char text[16];
    *number(text, (uintptr_t)line, 10) = 0;
    board_say("assertion, line");
    board_say(text);
    board_exit(97);
}

int main(void)
{
    unsigned i;
#ifdef REGIONS /* heap_5 */
    static uint8_t memory[64000] __attribute__((aligned(8)));
    const HeapRegion_t regions[] = {{memory, 20000}, {memory + 24000, 40000}, {NULL, 0}};
    vPortDefineHeapRegions(regions);
#endif
    for (i = 0; i < TASKS; i++) {
        char name[] = "worker0";
        TaskStatus_t status;
        name[6] = (char)(name[6] + i);
        if (xTaskCreate(worker, name, STACK_WORDS, (void *)(uintptr_t)i, 1, &tasks[i]) != pdPASS)
            return 1;
        vTaskGetInfo(tasks[i], &status, pdFALSE, eReady);
        highwater_mdd_stack((uintptr_t)tasks[i], status.pxStackBase, status.pxStackBase + STACK_WORDS);
    }
    vTaskStartScheduler();
    return 2;
}
