/* The part of Zephyr's documented interface that the port uses, in our own
 * words, so that the port can be compiled where no Zephyr is at hand. */
#ifndef STUB_ZEPHYR_KERNEL_H
#define STUB_ZEPHYR_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define CONFIG_SYS_CLOCK_TICKS_PER_SEC 10000

struct k_thread;
typedef struct k_thread *k_tid_t;

k_tid_t k_current_get(void);
const char *k_thread_name_get(k_tid_t thread);
int64_t k_uptime_ticks(void);
unsigned int irq_lock(void);
void irq_unlock(unsigned int key);

#endif
