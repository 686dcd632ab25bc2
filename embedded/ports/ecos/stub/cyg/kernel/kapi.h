/* The part of eCos's documented kernel interface that the port uses, in our own
 * words, so that the port can be compiled where no eCos is at hand. */
#ifndef STUB_KAPI_H
#define STUB_KAPI_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t cyg_uint32;
typedef uint64_t cyg_tick_count_t;
typedef uint32_t cyg_handle_t;
typedef int cyg_bool_t;

typedef struct {
    cyg_handle_t handle;
    uint16_t id;
    cyg_uint32 state;
    char *name;
} cyg_thread_info;

cyg_handle_t cyg_thread_self(void);
cyg_bool_t cyg_thread_get_info(cyg_handle_t thread, uint16_t id, cyg_thread_info *info);
cyg_tick_count_t cyg_current_time(void);
void cyg_scheduler_lock(void);
void cyg_scheduler_unlock(void);

#endif
