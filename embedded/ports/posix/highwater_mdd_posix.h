/*
 * Port: programs on a POSIX host (simulators: native_sim, the FreeRTOS POSIX
 * port, a board's emulator), with the sources of the target. Compile everything with
 *
 *   -DHIGHWATER_MDD=1 -DHIGHWATER_MDD_CONFIG='"highwater_mdd_posix.h"'
 *
 * link posix.c, gcc_wrap.c and highwater_mdd.c, and wrap as gcc_wrap.c says.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_POSIX_H
#define HIGHWATER_MDD_POSIX_H

#include <stdint.h>

#ifndef HIGHWATER_MDD_KERNEL
#define HIGHWATER_MDD_KERNEL 1
#endif
#ifndef HIGHWATER_MDD_RECORDS
#define HIGHWATER_MDD_RECORDS 20000
#endif
#ifndef HIGHWATER_MDD_THREADS
#define HIGHWATER_MDD_THREADS 64
#endif

/* Milliseconds of CLOCK_MONOTONIC. */
#ifdef __cplusplus
extern "C" {
#endif
uint64_t highwater_mdd_posix_now(void);
/* pthread_self, and the name that the thread gave itself ("main" for the first). */
uintptr_t highwater_mdd_posix_thread(void);
const char *highwater_mdd_posix_thread_name(void);
/* All signals are blocked while the lock is held: schedulers made of signals
 * (FreeRTOS POSIX) would else switch threads inside. Recursive. */
void highwater_mdd_posix_lock(void);
void highwater_mdd_posix_unlock(void);
/* A number that differs from run to run. */
uint32_t highwater_mdd_posix_run_id(void);
/* The end of the calling thread's stack. */
uintptr_t highwater_mdd_posix_stack_end(uintptr_t sp);
/* Writes the dump to a file. 0, or an errno. */
int highwater_mdd_posix_dump(const char *file);

#ifdef __cplusplus
}
#endif

#ifndef HIGHWATER_MDD_NOW
#define HIGHWATER_MDD_NOW() highwater_mdd_posix_now()
#define HIGHWATER_MDD_TICK_HZ 1000
#endif
#ifndef HIGHWATER_MDD_THREAD_HANDLE
#define HIGHWATER_MDD_THREAD_HANDLE() highwater_mdd_posix_thread()
#define HIGHWATER_MDD_THREAD_NAME(handle) ((void)(handle), highwater_mdd_posix_thread_name())
#endif
#ifndef HIGHWATER_MDD_LOCK
#define HIGHWATER_MDD_LOCK_TYPE int
#define HIGHWATER_MDD_LOCK(saved) ((saved) = 0, highwater_mdd_posix_lock())
#define HIGHWATER_MDD_UNLOCK(saved) ((void)(saved), highwater_mdd_posix_unlock())
#endif
#define HIGHWATER_MDD_RUN_ID() highwater_mdd_posix_run_id()
#define HIGHWATER_MDD_STACK_END(sp) highwater_mdd_posix_stack_end(sp)
#ifdef __linux__
extern const char __executable_start[], etext[];
#define HIGHWATER_MDD_TEXT_START __executable_start
#define HIGHWATER_MDD_TEXT_END etext
#endif

#endif
