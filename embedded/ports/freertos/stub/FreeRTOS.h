/* The part of FreeRTOS's documented interface that the port uses, in our own
 * words, so that the port can be compiled where no kernel is at hand. */
#ifndef STUB_FREERTOS_H
#define STUB_FREERTOS_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t TickType_t;
typedef long BaseType_t;

void *pvPortMalloc(size_t size);
void *pvPortCalloc(size_t n, size_t size);
void vPortFree(void *ptr);

#endif
