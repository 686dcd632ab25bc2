/*
 * Port: eCos. Thread handles and names, kernel ticks. Compile the agent and this
 * port with
 *
 *   -DHIGHWATER_MDD=1 -DHIGHWATER_MDD_CONFIG='"highwater_mdd_ecos.h"'
 *
 * and link gcc_wrap.c (eCos's malloc, calloc, realloc and free are plain
 * functions: -Wl,--wrap as it says, without the _r family:
 * -DHIGHWATER_MDD_WRAP_REENT=0) and cxx_new.c.
 *
 * eCos's own option names map to ours like this:
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA                  HIGHWATER_MDD
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_ACTUAL_SIZE      HIGHWATER_MDD_ACTUAL_SIZE
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_TIMESTAMP        HIGHWATER_MDD_TIMESTAMP
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_THREAD           HIGHWATER_MDD_THREAD
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_BACKTRACE        HIGHWATER_MDD_BACKTRACE
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_HISTORY          HIGHWATER_MDD_HISTORY
 *   CYGDBG_MEMALLOC_DEBUG_DEBUGDATA_HISTORY_RECORDS  HIGHWATER_MDD_HISTORY_RECORDS
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_ECOS_H
#define HIGHWATER_MDD_ECOS_H

#include <stdint.h>
#include <cyg/kernel/kapi.h>

#define HIGHWATER_MDD_KERNEL 1

const char *highwater_mdd_ecos_name(uintptr_t thread);

/* Before the scheduler runs, eCos says that the idle thread is the current one. */
#define HIGHWATER_MDD_THREAD_HANDLE() ((uintptr_t)cyg_thread_self())
#define HIGHWATER_MDD_THREAD_NAME(handle) highwater_mdd_ecos_name(handle)
#define HIGHWATER_MDD_NOW() cyg_current_time()
#ifndef HIGHWATER_MDD_TICK_HZ
#define HIGHWATER_MDD_TICK_HZ 100
#endif

/* eCos has mallinfo but no size of one block: what was asked for, rounded up as
 * its allocators do, and their header. Give another macro where you know better. */
#ifndef HIGHWATER_MDD_ACTUAL
#define HIGHWATER_MDD_ACTUAL(base, bytes) ((void)(base), (((bytes) + 7u) & ~(size_t)7u) + 8u)
#endif

#define HIGHWATER_MDD_LOCK_TYPE cyg_uint32
#define HIGHWATER_MDD_LOCK(saved) ((saved) = 0, cyg_scheduler_lock())
#define HIGHWATER_MDD_UNLOCK(saved) ((void)(saved), cyg_scheduler_unlock())

#endif
