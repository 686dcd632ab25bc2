/* See ../kernel.h. */
#ifndef STUB_HEAP_LISTENER_H
#define STUB_HEAP_LISTENER_H

#include <stddef.h>
#include <stdint.h>

enum heap_event_types { HEAP_RESIZE, HEAP_ALLOC, HEAP_FREE };

typedef void (*heap_listener_alloc_cb_t)(uintptr_t heap_id, void *mem, size_t bytes);
typedef void (*heap_listener_free_cb_t)(uintptr_t heap_id, void *mem, size_t bytes);

struct heap_listener {
    uintptr_t heap_id;
    enum heap_event_types event;
    union {
        heap_listener_alloc_cb_t alloc_cb;
        heap_listener_free_cb_t free_cb;
    };
};

void heap_listener_register(struct heap_listener *listener);

#endif
