/*
 * highwater_mdd: memory debug data for small targets.
 *
 * Freestanding C99: no heap, no libc, no undefined symbol. Keeps one record for
 * each live heap block, and on request a ring of the latest frees, in memory
 * that a debugger, a core file or a few lines of transport code can take away
 * (`mddout.N`; the format is at the end of this file and in docs/embedded.md).
 *
 * Every option is a macro. Set them with -D, or in a header of yours that
 * -DHIGHWATER_MDD_CONFIG='"my_config.h"' names.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_H
#define HIGHWATER_MDD_H

#ifdef HIGHWATER_MDD_CONFIG
#include HIGHWATER_MDD_CONFIG
#endif

/* The master switch. 0: no code, no data. */
#ifndef HIGHWATER_MDD
#define HIGHWATER_MDD 0
#endif

#if HIGHWATER_MDD

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- options */

/* A port that gives threads and time says so (eCos: "iff a kernel is there"). */
#ifndef HIGHWATER_MDD_KERNEL
#define HIGHWATER_MDD_KERNEL 0
#endif

/* Keep what the allocator really used for a block, not only what was asked for. */
#ifndef HIGHWATER_MDD_ACTUAL_SIZE
#define HIGHWATER_MDD_ACTUAL_SIZE 1
#endif

/* Keep the time of each event; needs HIGHWATER_MDD_NOW(). */
#ifndef HIGHWATER_MDD_TIMESTAMP
#define HIGHWATER_MDD_TIMESTAMP HIGHWATER_MDD_KERNEL
#endif

/* Width of a time in a record: 32 or 64. */
#ifndef HIGHWATER_MDD_TIME_BITS
#define HIGHWATER_MDD_TIME_BITS 64
#endif

/* Ticks a second, 0 where unknown. */
#ifndef HIGHWATER_MDD_TICK_HZ
#define HIGHWATER_MDD_TICK_HZ 0
#endif

/* Keep the thread of each event; needs HIGHWATER_MDD_THREAD_HANDLE() and
 * HIGHWATER_MDD_THREAD_NAME(handle). */
#ifndef HIGHWATER_MDD_THREAD
#define HIGHWATER_MDD_THREAD HIGHWATER_MDD_KERNEL
#endif

/* Threads that can be told apart (at most 255) and bytes kept of a name. */
#ifndef HIGHWATER_MDD_THREADS
#define HIGHWATER_MDD_THREADS 16
#endif
#ifndef HIGHWATER_MDD_THREAD_NAME_BYTES
#define HIGHWATER_MDD_THREAD_NAME_BYTES 16
#endif

/* Return addresses kept for each event, 0 to 8. */
#ifndef HIGHWATER_MDD_BACKTRACE
#define HIGHWATER_MDD_BACKTRACE 1
#endif

/* How more than one return address is found. */
#define HIGHWATER_MDD_UNWIND_RETURN_ADDRESS 0 /* level 1 only, the rest 0 */
#define HIGHWATER_MDD_UNWIND_EXIDX 1          /* _Unwind_Backtrace: exact, slow, large */
#define HIGHWATER_MDD_UNWIND_FP 2             /* frame pointers: build all with -fno-omit-frame-pointer */
#define HIGHWATER_MDD_UNWIND_SCAN 3           /* words on the stack that follow a call: may be stale */
#define HIGHWATER_MDD_UNWIND_SCAN_OFFSET 4    /* the same with the place on the stack: the host checks them */
#ifndef HIGHWATER_MDD_UNWIND
#define HIGHWATER_MDD_UNWIND HIGHWATER_MDD_UNWIND_RETURN_ADDRESS
#endif

/* Words of stack that a scan looks at (a scan with offsets: at most 255). */
#ifndef HIGHWATER_MDD_SCAN_WORDS
#define HIGHWATER_MDD_SCAN_WORDS 200
#endif

/* Keep the latest frees too, and how many. */
#ifndef HIGHWATER_MDD_HISTORY
#define HIGHWATER_MDD_HISTORY 0
#endif
#ifndef HIGHWATER_MDD_HISTORY_RECORDS
#define HIGHWATER_MDD_HISTORY_RECORDS 2048
#endif

/* Canaries before and behind each block, checked when it is released. */
#ifndef HIGHWATER_MDD_GUARDS
#define HIGHWATER_MDD_GUARDS 0
#endif

/* Keep checksums of the records up to date, so that a dump can be proven whole. */
#ifndef HIGHWATER_MDD_CHECKSUM
#define HIGHWATER_MDD_CHECKSUM 1
#endif

/* 1: records live in arrays of the agent; 0: in memory given to highwater_mdd_region(). */
#ifndef HIGHWATER_MDD_STATIC_POOL
#define HIGHWATER_MDD_STATIC_POOL 1
#endif

/* Live blocks that the static pool has room for. */
#ifndef HIGHWATER_MDD_RECORDS
#define HIGHWATER_MDD_RECORDS 1000
#endif

/* Heaps and task stacks that can be made known. */
#ifndef HIGHWATER_MDD_HEAPS
#define HIGHWATER_MDD_HEAPS 2
#endif
#ifndef HIGHWATER_MDD_STACKS
#define HIGHWATER_MDD_STACKS 0
#endif

/* The byte that a kernel fills fresh stacks with. */
#ifndef HIGHWATER_MDD_STACK_FILL
#define HIGHWATER_MDD_STACK_FILL 0xa5
#endif

/* A number that differs from boot to boot, where there is a source for one. */
#ifndef HIGHWATER_MDD_RUN_ID
#define HIGHWATER_MDD_RUN_ID() 0u
#endif

/* The lock: a type for what LOCK saves, and the pair. It must keep out interrupts
 * that allocate and other threads; it is held for a few hundred instructions. */
#ifndef HIGHWATER_MDD_LOCK
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define HIGHWATER_MDD_LOCK_TYPE uint32_t
#define HIGHWATER_MDD_LOCK(saved) \
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(saved) : : "memory")
#define HIGHWATER_MDD_UNLOCK(saved) __asm__ volatile("msr primask, %0" : : "r"(saved) : "memory")
#elif defined(__riscv)
#define HIGHWATER_MDD_LOCK_TYPE uintptr_t
#define HIGHWATER_MDD_LOCK(saved) __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrrci %0, mstatus, 8\n\t.option pop" : "=r"(saved) : : "memory")
#define HIGHWATER_MDD_UNLOCK(saved) \
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrs mstatus, %0\n\t.option pop" : : "r"((saved) & 8u) : "memory")
#else
#define HIGHWATER_MDD_LOCK_TYPE int
#define HIGHWATER_MDD_LOCK(saved) ((saved) = 0)
#define HIGHWATER_MDD_UNLOCK(saved) ((void)(saved))
#endif
#endif

#if HIGHWATER_MDD_BACKTRACE < 0 || HIGHWATER_MDD_BACKTRACE > 8
#error "HIGHWATER_MDD_BACKTRACE is 0 to 8"
#endif
#if HIGHWATER_MDD_TIME_BITS != 32 && HIGHWATER_MDD_TIME_BITS != 64
#error "HIGHWATER_MDD_TIME_BITS is 32 or 64"
#endif
#if HIGHWATER_MDD_TIMESTAMP && !defined(HIGHWATER_MDD_NOW)
#error "HIGHWATER_MDD_TIMESTAMP needs HIGHWATER_MDD_NOW(): the time in ticks"
#endif
#if HIGHWATER_MDD_THREAD && !defined(HIGHWATER_MDD_THREAD_HANDLE)
#error "HIGHWATER_MDD_THREAD needs HIGHWATER_MDD_THREAD_HANDLE() and HIGHWATER_MDD_THREAD_NAME(handle)"
#endif
#if HIGHWATER_MDD_THREADS > 255
#error "HIGHWATER_MDD_THREADS is at most 255"
#endif
#if HIGHWATER_MDD_UNWIND == HIGHWATER_MDD_UNWIND_SCAN_OFFSET && HIGHWATER_MDD_SCAN_WORDS > 255
#error "HIGHWATER_MDD_SCAN_WORDS is at most 255 for a scan with offsets"
#endif

/* ------------------------------------------------------------------- kinds */

/* Entry points. Below 32 they allocate, 32 to 63 they release; the numbers are
 * those of highwater's event model. From 64 on: kinds of your own, even ones
 * allocate, odd ones release, named by HIGHWATER_MDD_KIND_NAMES
 * (a list of string literals of at most 15 characters). */
enum {
    HIGHWATER_MDD_MALLOC = 0,
    HIGHWATER_MDD_CALLOC = 1,
    HIGHWATER_MDD_REALLOC = 2,
    HIGHWATER_MDD_MEMALIGN = 4,
    HIGHWATER_MDD_ALIGNED_ALLOC = 5,
    HIGHWATER_MDD_POSIX_MEMALIGN = 6,
    HIGHWATER_MDD_NEW = 9,
    HIGHWATER_MDD_NEW_ARRAY = 10,
    HIGHWATER_MDD_NEW_NOTHROW = 11,
    HIGHWATER_MDD_NEW_ARRAY_NOTHROW = 12,
    HIGHWATER_MDD_NEW_ALIGNED = 13,
    HIGHWATER_MDD_NEW_ARRAY_ALIGNED = 14,
    HIGHWATER_MDD_NEW_ALIGNED_NOTHROW = 15,
    HIGHWATER_MDD_NEW_ARRAY_ALIGNED_NOTHROW = 16,
    HIGHWATER_MDD_USER_ALLOC = 23,
    HIGHWATER_MDD_FREE = 32,
    HIGHWATER_MDD_REALLOC_FREE = 36,
    HIGHWATER_MDD_DELETE = 38,
    HIGHWATER_MDD_DELETE_ARRAY = 39,
    HIGHWATER_MDD_DELETE_SIZED = 40,
    HIGHWATER_MDD_DELETE_ARRAY_SIZED = 41,
    HIGHWATER_MDD_DELETE_ALIGNED = 42,
    HIGHWATER_MDD_DELETE_ARRAY_ALIGNED = 43,
    HIGHWATER_MDD_DELETE_SIZED_ALIGNED = 44,
    HIGHWATER_MDD_DELETE_ARRAY_SIZED_ALIGNED = 45,
    HIGHWATER_MDD_DELETE_NOTHROW = 46,
    HIGHWATER_MDD_DELETE_ARRAY_NOTHROW = 47,
    HIGHWATER_MDD_DELETE_ALIGNED_NOTHROW = 48,
    HIGHWATER_MDD_DELETE_ARRAY_ALIGNED_NOTHROW = 49,
    HIGHWATER_MDD_USER_FREE = 56,
    HIGHWATER_MDD_FIRST_OWN = 64
};

/* Flags of a record. */
enum {
    HIGHWATER_MDD_FLAG_GUARDED = 1,      /* canaries around the block; log2 of the front one in bits 4-7 */
    HIGHWATER_MDD_FLAG_HEAD_DAMAGED = 2, /* the canary before the block was overwritten */
    HIGHWATER_MDD_FLAG_TAIL_DAMAGED = 4, /* the canary behind it */
    HIGHWATER_MDD_FLAG_PAIR = 8,         /* half of a realloc */
    HIGHWATER_MDD_FLAG_VOID = 0x100      /* a release that was taken back (realloc failed); only its number counts */
};

/* ----------------------------------------------------------------- records */

/* Where a call came from. FRAME is what the unwinder starts at. Use both in the
 * outermost function of a wrapper only, which must not be inlined. */
#if HIGHWATER_MDD_BACKTRACE
#define HIGHWATER_MDD_CALLER() __builtin_return_address(0)
#else
#define HIGHWATER_MDD_CALLER() ((void *)0)
#endif
#if HIGHWATER_MDD_BACKTRACE > 1 && HIGHWATER_MDD_UNWIND == HIGHWATER_MDD_UNWIND_FP
#define HIGHWATER_MDD_FRAME() __builtin_frame_address(0)
#elif HIGHWATER_MDD_BACKTRACE > 1 && HIGHWATER_MDD_UNWIND >= HIGHWATER_MDD_UNWIND_SCAN
#ifdef __clang__
#define HIGHWATER_MDD_FRAME() ((char *)__builtin_frame_address(0) + 2 * sizeof(void *))
#else
#define HIGHWATER_MDD_FRAME() __builtin_dwarf_cfa()
#endif
#else
#define HIGHWATER_MDD_FRAME() ((void *)0)
#endif

/* One live block. */
struct highwater_mdd_record {
    uintptr_t ptr;  /* what the program got */
    uintptr_t size; /* what it asked for */
    uint32_t seq;   /* number of the event */
    uint8_t kind;   /* entry point */
    uint8_t thread; /* index in the thread table + 1, 0: none */
    uint16_t flags; /* HIGHWATER_MDD_FLAG_* */
#if HIGHWATER_MDD_ACTUAL_SIZE
    uintptr_t actual; /* bytes taken from the heap */
#endif
#if HIGHWATER_MDD_TIMESTAMP
    uint32_t time[HIGHWATER_MDD_TIME_BITS / 32]; /* in the target's byte order */
#endif
#if HIGHWATER_MDD_BACKTRACE
    uintptr_t pc[HIGHWATER_MDD_BACKTRACE];
#endif
};

/* One released block: all that was known of it, and of its end. */
struct highwater_mdd_past {
    struct highwater_mdd_record block;
    uint32_t seq;
    uint8_t kind;
    uint8_t thread;
    uint16_t flags;
#if HIGHWATER_MDD_TIMESTAMP
    uint32_t time[HIGHWATER_MDD_TIME_BITS / 32];
#endif
#if HIGHWATER_MDD_BACKTRACE
    uintptr_t pc[HIGHWATER_MDD_BACKTRACE];
#endif
};

/* What a realloc keeps between its two halves, on the caller's stack. */
struct highwater_mdd_pending {
    struct highwater_mdd_past past;
    int known; /* there was a record */
};

/* A block was made. `actual` is ignored without ACTUAL_SIZE. `kind` may carry
 * flags: kind | flags << 16. Call it after the allocator, with a pointer that
 * is not null. */
void highwater_mdd_alloc(void *ptr, size_t size, size_t actual, unsigned kind, void *caller, void *frame);

/* The allocator had no memory. */
void highwater_mdd_failed(void);

/* A block is about to be released: call it before the allocator, and give the
 * allocator the pointer that it returns (another one with guards). Null is allowed. */
void *highwater_mdd_free(void *ptr, unsigned kind, void *caller, void *frame);

/* A realloc of a block that is not null: begin before the allocator (which gets the returned
 * pointer), then commit if the old block is gone, or undo if it is still there.
 * The new block is reported with highwater_mdd_alloc. */
void *highwater_mdd_realloc_begin(struct highwater_mdd_pending *pending, void *ptr, unsigned kind, void *caller,
                                  void *frame);
void highwater_mdd_realloc_commit(struct highwater_mdd_pending *pending);
void highwater_mdd_realloc_undo(struct highwater_mdd_pending *pending);

/* The bytes from start to just before end are a heap. The name is cut at 7 characters. */
void highwater_mdd_heap(const void *start, const void *end, const char *name);

#if HIGHWATER_MDD_STACKS
/* The stack of a thread (its handle, 0 for the boot or interrupt stack) lies
 * from low to just before high. Deep backtraces need it too. */
void highwater_mdd_stack(uintptr_t handle, const void *low, const void *high);
/* Fills a stack that is not in use yet, for kernels that do not. */
void highwater_mdd_stack_paint(void *low, void *high);
/* Looks how deep each stack has been. Call it now and then, or before a dump. */
void highwater_mdd_stacks_measure(void);
#endif

#if !HIGHWATER_MDD_STATIC_POOL
/* Gives the agent its memory. Before this nothing is recorded, only counted. */
void highwater_mdd_region(void *memory, size_t bytes);
#endif

/* ------------------------------------------------------------------ guards */

#if HIGHWATER_MDD_GUARDS
/* Bytes that a guarded block is longer: in front (at least; a power of two), and behind. */
#define HIGHWATER_MDD_GUARD_HEAD (2 * sizeof(void *))
#define HIGHWATER_MDD_GUARD_TAIL sizeof(void *)
/* Writes the canaries of a block that the allocator made at base with
 * head + size + HIGHWATER_MDD_GUARD_TAIL bytes; returns base + head. */
void *highwater_mdd_guard(void *base, size_t head, size_t size);
/* Bytes before a guarded block, 0 for one without guards. */
size_t highwater_mdd_guard_head(const void *ptr);
/* The flags for highwater_mdd_alloc's kind. */
unsigned highwater_mdd_guard_flags(size_t head);
#endif

/* ------------------------------------------------------------------- hooks */

/* Called after each update, outside the lock; does nothing. For breakpoints, or
 * define one of your own. The same holds for the others. */
void highwater_mdd_done(void);
/* The history ring is full, the next entry will overwrite the oldest. Called
 * under the lock, with everything in order: a dump is safe here. */
void highwater_mdd_history_overflow(void);
/* The live bytes have reached highwater_mdd.mark_bytes (which is 0 again). */
void highwater_mdd_mark(void);
#if HIGHWATER_MDD_GUARDS
/* A canary was found overwritten when ptr was released. */
void highwater_mdd_damaged(void *ptr);
#endif

/* ------------------------------------------------------------------ header */

struct highwater_mdd_section {
    uint16_t kind;       /* HIGHWATER_MDD_SECTION_* */
    uint16_t entry_size; /* bytes of one entry */
    uint32_t count;      /* entries in use, at the start of the array */
    uint32_t capacity;   /* entries there is room for */
    const void *addr;    /* the array; null: none */
};

enum {
    HIGHWATER_MDD_SECTION_FIELDS = 1,         /* of a record: u8 id, u8 width, u16 offset */
    HIGHWATER_MDD_SECTION_HISTORY_FIELDS = 2, /* of a history entry, behind the record's */
    HIGHWATER_MDD_SECTION_LIVE = 3,
    HIGHWATER_MDD_SECTION_HISTORY = 4,
    HIGHWATER_MDD_SECTION_THREADS = 5,
    HIGHWATER_MDD_SECTION_BUILD_ID = 6,
    HIGHWATER_MDD_SECTION_HEAPS = 7,
    HIGHWATER_MDD_SECTION_KIND_NAMES = 8,
    HIGHWATER_MDD_SECTION_MODULES = 9,
    HIGHWATER_MDD_SECTION_STACKS = 10
};

#ifdef HIGHWATER_MDD_KIND_NAMES
#define HIGHWATER_MDD_NAMES_ 1
#else
#define HIGHWATER_MDD_NAMES_ 0
#endif
#define HIGHWATER_MDD_SECTIONS \
    (4 + 2 * HIGHWATER_MDD_HISTORY + HIGHWATER_MDD_THREAD + HIGHWATER_MDD_NAMES_ + (HIGHWATER_MDD_STACKS ? 1 : 0))

/* The first bytes of a dump, and all that is needed to understand the rest. */
struct highwater_mdd_header {
    uint8_t magic[8];
    uint32_t byte_order; /* 0x01020304 */
    uint8_t major, minor;
    uint8_t word; /* bytes in a pointer */
    uint8_t sections;
    uint16_t header_size, section_size;
    uint32_t options;
    volatile uint32_t busy; /* not 0: an update is under way */
    uint32_t seq;           /* number of the next event */
    uint32_t allocs, frees; /* recorded */
    uint32_t failed;        /* allocations that failed */
    uint32_t lost;          /* allocations without a record: the table was full */
    uint32_t foreign;       /* releases of blocks without a record */
    uint32_t hist_lost;     /* history entries overwritten before a dump took them */
    uint32_t tick_hz;
    uint32_t run_id;
    uint32_t hist_total; /* history entries ever made */
    uint32_t peak_seq;   /* event that made the peak */
    uint32_t hist_next;  /* place of the next history entry */
    uint16_t machine;    /* ELF's number of the processor, 0: unknown */
    uint16_t reserved;
    uint32_t live_sum; /* sum of the checksums of the live records */
    uint32_t hist_sum; /* and of the history entries in the ring */
    uint32_t voided;   /* event numbers of reallocs that failed */
    uint32_t damaged;  /* canaries found overwritten */
    const void *self;  /* this header */
    void (*anchor)(void); /* highwater_mdd_done */
    uintptr_t cur_bytes, peak_bytes;
    const void *text_base;     /* what packed return addresses count from */
    uintptr_t static_bytes;    /* memory of the agent itself */
    uintptr_t dynamic_bytes;   /* memory given to it */
    volatile uintptr_t mark_bytes; /* call highwater_mdd_mark when cur_bytes gets here; 0: never */
    struct highwater_mdd_section section[HIGHWATER_MDD_SECTIONS];
};

extern struct highwater_mdd_header highwater_mdd;

/* The history in the ring has been taken away: start an empty one. */
void highwater_mdd_history_reset(void);

#ifdef __cplusplus
}
#endif

#endif /* HIGHWATER_MDD */
#endif
