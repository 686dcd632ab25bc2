/*
 * highwater_mdd: memory debug data for small targets. See highwater_mdd.h.
 *
 * The live records lie dense: record 0 to count-1 are in use, a release moves
 * the last one into the hole. So a dump carries exactly what is alive, and no
 * record spends a word on a list. An open-addressing index finds a block by
 * its address.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "highwater_mdd.h"

#if !HIGHWATER_MDD

typedef int highwater_mdd_is_off; /* ISO C wants a declaration in every file */

#else

#define WEAK __attribute__((weak))
#define NOINLINE __attribute__((noinline))
#define BARRIER() __asm__ volatile("" : : : "memory")
#define DEEP (HIGHWATER_MDD_BACKTRACE > 1)

typedef uint32_t __attribute__((may_alias)) word32;

/* ------------------------------------------------------------------ memory */

#if HIGHWATER_MDD_STATIC_POOL && HIGHWATER_MDD_RECORDS <= 65534
typedef uint16_t slot_t;
#elif HIGHWATER_MDD_STATIC_POOL
typedef uint32_t slot_t;
#else
typedef uint16_t slot_t; /* a region of more than 65534 records is cut there */
#define MAX_REGION_RECORDS 65534u
#endif

#if HIGHWATER_MDD_STATIC_POOL
/* The greatest power of two that is at most three times the records. */
#define AT_LEAST(n, x) ((x) >= (n) ? (n) : 0)
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define POW2_LOW(x) \
    MAX2(MAX2(MAX2(AT_LEAST(4, x), AT_LEAST(8, x)), MAX2(AT_LEAST(16, x), AT_LEAST(32, x))), \
         MAX2(MAX2(AT_LEAST(64, x), AT_LEAST(128, x)), MAX2(AT_LEAST(256, x), AT_LEAST(512, x))))
#define POW2_MID(x) \
    MAX2(MAX2(MAX2(AT_LEAST(1024, x), AT_LEAST(2048, x)), MAX2(AT_LEAST(4096, x), AT_LEAST(8192, x))), \
         MAX2(MAX2(AT_LEAST(16384, x), AT_LEAST(32768L, x)), MAX2(AT_LEAST(65536L, x), AT_LEAST(131072L, x))))
#define POW2_HIGH(x) \
    MAX2(MAX2(AT_LEAST(262144L, x), AT_LEAST(524288L, x)), MAX2(AT_LEAST(1048576L, x), AT_LEAST(2097152L, x)))
#define INDEX_SLOTS MAX2(2, MAX2(POW2_LOW(3L * HIGHWATER_MDD_RECORDS), \
    MAX2(POW2_MID(3L * HIGHWATER_MDD_RECORDS), POW2_HIGH(3L * HIGHWATER_MDD_RECORDS))))

#if HIGHWATER_MDD_RECORDS > 1000000
#error "HIGHWATER_MDD_RECORDS is at most 1000000"
#endif

static struct highwater_mdd_record pool[HIGHWATER_MDD_RECORDS];
static slot_t pool_index[INDEX_SLOTS];
#define live pool
#define index_of pool_index
#define index_mask ((uint32_t)(INDEX_SLOTS - 1))
#if HIGHWATER_MDD_HISTORY
static struct highwater_mdd_past pool_ring[HIGHWATER_MDD_HISTORY_RECORDS];
#define ring pool_ring
#endif
#else
static struct highwater_mdd_record *live;
static slot_t *index_of;
static uint32_t index_mask;
#if HIGHWATER_MDD_HISTORY
static struct highwater_mdd_past *ring;
#endif
#endif

#if HIGHWATER_MDD_THREAD
struct thread_entry {
    uintptr_t handle;
    char name[(HIGHWATER_MDD_THREAD_NAME_BYTES + sizeof(uintptr_t) - 1) / sizeof(uintptr_t) * sizeof(uintptr_t)];
};
static struct thread_entry threads[HIGHWATER_MDD_THREADS];
static uint8_t last_thread;
#endif

struct heap_entry {
    const void *start, *end;
    char name[8];
};
static struct heap_entry heaps[HIGHWATER_MDD_HEAPS];

#if HIGHWATER_MDD_STACKS
struct stack_entry {
    uintptr_t handle, low, high;
    uintptr_t untouched; /* bytes from low that nobody has written yet */
};
static struct stack_entry stacks[HIGHWATER_MDD_STACKS];
#endif

#ifdef HIGHWATER_MDD_KIND_NAMES
static const char kind_names[][16] = {HIGHWATER_MDD_KIND_NAMES};
#endif

/* ------------------------------------------------------------------ header */

struct field {
    uint8_t id, width;
    uint16_t offset;
};

enum { F_PTR = 1, F_SIZE, F_SEQ, F_KIND, F_THREAD, F_FLAGS, F_ACTUAL, F_TIME, F_PC, F_FREE = 0x40 };

#define FIELD(id, type, member) \
    {(id), (uint8_t)sizeof(((struct type *)0)->member), (uint16_t)offsetof(struct type, member)}

static const struct field fields[] = {
    FIELD(F_PTR, highwater_mdd_record, ptr),
    FIELD(F_SIZE, highwater_mdd_record, size),
    FIELD(F_SEQ, highwater_mdd_record, seq),
    FIELD(F_KIND, highwater_mdd_record, kind),
    FIELD(F_FLAGS, highwater_mdd_record, flags),
#if HIGHWATER_MDD_THREAD
    FIELD(F_THREAD, highwater_mdd_record, thread),
#endif
#if HIGHWATER_MDD_ACTUAL_SIZE
    FIELD(F_ACTUAL, highwater_mdd_record, actual),
#endif
#if HIGHWATER_MDD_TIMESTAMP
    FIELD(F_TIME, highwater_mdd_record, time),
#endif
#if HIGHWATER_MDD_BACKTRACE
    FIELD(F_PC, highwater_mdd_record, pc),
#endif
};

#if HIGHWATER_MDD_HISTORY
static const struct field past_fields[] = {
    FIELD(F_FREE + F_SEQ, highwater_mdd_past, seq),
    FIELD(F_FREE + F_KIND, highwater_mdd_past, kind),
    FIELD(F_FREE + F_FLAGS, highwater_mdd_past, flags),
#if HIGHWATER_MDD_THREAD
    FIELD(F_FREE + F_THREAD, highwater_mdd_past, thread),
#endif
#if HIGHWATER_MDD_TIMESTAMP
    FIELD(F_FREE + F_TIME, highwater_mdd_past, time),
#endif
#if HIGHWATER_MDD_BACKTRACE
    FIELD(F_FREE + F_PC, highwater_mdd_past, pc),
#endif
};
#endif

#if defined(__arm__)
#define MACHINE 40
#elif defined(__aarch64__)
#define MACHINE 183
#elif defined(__riscv)
#define MACHINE 243
#elif defined(__x86_64__)
#define MACHINE 62
#elif defined(__i386__)
#define MACHINE 3
#elif defined(__mips__)
#define MACHINE 8
#elif defined(__powerpc64__)
#define MACHINE 21
#elif defined(__powerpc__)
#define MACHINE 20
#elif defined(__xtensa__)
#define MACHINE 94
#elif defined(__m68k__)
#define MACHINE 4
#elif defined(__sparc__)
#define MACHINE 2
#elif defined(__sh__)
#define MACHINE 42
#elif defined(__loongarch__)
#define MACHINE 258
#else
#define MACHINE 0
#endif

#define OPTIONS \
    ((HIGHWATER_MDD_ACTUAL_SIZE ? 1u : 0u) | (HIGHWATER_MDD_TIMESTAMP ? 2u : 0u) | \
     (HIGHWATER_MDD_THREAD ? 4u : 0u) | (HIGHWATER_MDD_HISTORY ? 8u : 0u) | \
     (uint32_t)HIGHWATER_MDD_BACKTRACE << 4 | (uint32_t)HIGHWATER_MDD_UNWIND << 8 | \
     (HIGHWATER_MDD_GUARDS ? 0x2000u : 0u) | (HIGHWATER_MDD_CHECKSUM ? 0x4000u : 0u))

/* The note that -Wl,--build-id makes, where the linker script gives it a name. */
extern const char highwater_mdd_build_id[] WEAK;
#ifndef HIGHWATER_MDD_BUILD_ID_BYTES
#define HIGHWATER_MDD_BUILD_ID_BYTES 36
#endif

#if DEEP && HIGHWATER_MDD_UNWIND >= HIGHWATER_MDD_UNWIND_SCAN
#ifndef HIGHWATER_MDD_TEXT_START
extern const char highwater_mdd_text_start[], highwater_mdd_text_end[];
#define HIGHWATER_MDD_TEXT_START highwater_mdd_text_start
#define HIGHWATER_MDD_TEXT_END highwater_mdd_text_end
#endif
#define TEXT_BASE HIGHWATER_MDD_TEXT_START
#else
#define TEXT_BASE NULL
#endif

#define COUNT_OF(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

enum {
    SECTION_AT_FIELDS,
#if HIGHWATER_MDD_HISTORY
    SECTION_AT_PAST_FIELDS,
#endif
    SECTION_AT_LIVE,
#if HIGHWATER_MDD_HISTORY
    SECTION_AT_RING,
#endif
#if HIGHWATER_MDD_THREAD
    SECTION_AT_THREADS,
#endif
    SECTION_AT_HEAPS,
#if HIGHWATER_MDD_STACKS
    SECTION_AT_STACKS,
#endif
#ifdef HIGHWATER_MDD_KIND_NAMES
    SECTION_AT_KIND_NAMES,
#endif
    SECTION_AT_BUILD_ID
};

#if HIGHWATER_MDD_STATIC_POOL
#if HIGHWATER_MDD_HISTORY
#define POOL_BYTES (sizeof(pool) + sizeof(pool_index) + sizeof(pool_ring))
#else
#define POOL_BYTES (sizeof(pool) + sizeof(pool_index))
#endif
#else
#define POOL_BYTES 0u
#endif
#if HIGHWATER_MDD_THREAD
#define THREAD_BYTES sizeof(threads)
#else
#define THREAD_BYTES 0u
#endif

struct highwater_mdd_header highwater_mdd = {
    .magic = {'H', 'W', 'M', 'D', 'D', '\r', '\n', 0x1a},
    .byte_order = 0x01020304,
    .major = 1,
    .minor = 0,
    .word = sizeof(void *),
    .sections = HIGHWATER_MDD_SECTIONS,
    .header_size = sizeof(struct highwater_mdd_header),
    .section_size = sizeof(struct highwater_mdd_section),
    .options = OPTIONS,
    .tick_hz = HIGHWATER_MDD_TICK_HZ,
    .machine = MACHINE,
    .self = &highwater_mdd,
    .anchor = highwater_mdd_done,
    .text_base = TEXT_BASE,
    .static_bytes = sizeof(struct highwater_mdd_header) + sizeof(heaps) + POOL_BYTES + THREAD_BYTES,
    .section =
        {
            [SECTION_AT_FIELDS] = {HIGHWATER_MDD_SECTION_FIELDS, sizeof(struct field), COUNT_OF(fields),
                                   COUNT_OF(fields), fields},
#if HIGHWATER_MDD_HISTORY
            [SECTION_AT_PAST_FIELDS] = {HIGHWATER_MDD_SECTION_HISTORY_FIELDS, sizeof(struct field),
                                        COUNT_OF(past_fields), COUNT_OF(past_fields), past_fields},
#endif
#if HIGHWATER_MDD_STATIC_POOL
            [SECTION_AT_LIVE] = {HIGHWATER_MDD_SECTION_LIVE, sizeof(struct highwater_mdd_record), 0,
                                 HIGHWATER_MDD_RECORDS, pool},
#if HIGHWATER_MDD_HISTORY
            [SECTION_AT_RING] = {HIGHWATER_MDD_SECTION_HISTORY, sizeof(struct highwater_mdd_past), 0,
                                 HIGHWATER_MDD_HISTORY_RECORDS, pool_ring},
#endif
#else
            [SECTION_AT_LIVE] = {HIGHWATER_MDD_SECTION_LIVE, sizeof(struct highwater_mdd_record), 0, 0, NULL},
#if HIGHWATER_MDD_HISTORY
            [SECTION_AT_RING] = {HIGHWATER_MDD_SECTION_HISTORY, sizeof(struct highwater_mdd_past), 0, 0, NULL},
#endif
#endif
#if HIGHWATER_MDD_THREAD
            [SECTION_AT_THREADS] = {HIGHWATER_MDD_SECTION_THREADS, sizeof(struct thread_entry), 0,
                                    HIGHWATER_MDD_THREADS, threads},
#endif
            [SECTION_AT_HEAPS] = {HIGHWATER_MDD_SECTION_HEAPS, sizeof(struct heap_entry), 0, HIGHWATER_MDD_HEAPS,
                                  heaps},
#if HIGHWATER_MDD_STACKS
            [SECTION_AT_STACKS] = {HIGHWATER_MDD_SECTION_STACKS, sizeof(struct stack_entry), 0,
                                   HIGHWATER_MDD_STACKS, stacks},
#endif
#ifdef HIGHWATER_MDD_KIND_NAMES
            [SECTION_AT_KIND_NAMES] = {HIGHWATER_MDD_SECTION_KIND_NAMES, 16, COUNT_OF(kind_names),
                                       COUNT_OF(kind_names), kind_names},
#endif
            [SECTION_AT_BUILD_ID] = {HIGHWATER_MDD_SECTION_BUILD_ID, 1, HIGHWATER_MDD_BUILD_ID_BYTES,
                                     HIGHWATER_MDD_BUILD_ID_BYTES, highwater_mdd_build_id},
        },
};

#define H highwater_mdd
#define LIVE H.section[SECTION_AT_LIVE]
#define RING H.section[SECTION_AT_RING]

/* ------------------------------------------------------------------- hooks */

/* Each stores another value, else a linker that folds equal functions would
 * give them one address and a breakpoint on one would stop at all. */
static volatile uint8_t last_hook;

WEAK NOINLINE void highwater_mdd_done(void) { last_hook = 1; }
WEAK NOINLINE void highwater_mdd_history_overflow(void) { last_hook = 2; }
WEAK NOINLINE void highwater_mdd_mark(void) { last_hook = 3; }
#if HIGHWATER_MDD_GUARDS
WEAK NOINLINE void highwater_mdd_damaged(void *ptr) { (void)ptr; last_hook = 4; }
#endif

/* --------------------------------------------------------------- checksums */

/* Word copies through volatile: a compiler makes calls of memcpy out of plain ones. */
static void copy_words(void *to, const void *from, unsigned bytes)
{
    volatile word32 *t = to;
    const word32 *f = from;
    for (; bytes >= 4; bytes -= 4)
        *t++ = *f++;
}

#if HIGHWATER_MDD_CHECKSUM
/* The sum over all entries of this does not depend on their order, so it can be
 * kept up to date one entry at a time. */
static uint32_t checksum(const void *entry, unsigned bytes)
{
    const word32 *w = entry;
    uint32_t sum = 0;
    for (; bytes >= 4; bytes -= 4)
        sum = (sum << 5 | sum >> 27) + *w++;
    return sum;
}
#define SUM_ADD(total, entry) ((total) += checksum((entry), sizeof(*(entry))))
#define SUM_SUB(total, entry) ((total) -= checksum((entry), sizeof(*(entry))))
#else
#define SUM_ADD(total, entry) ((void)0)
#define SUM_SUB(total, entry) ((void)0)
#endif

/* -------------------------------------------------------------- backtraces */

#if DEEP && HIGHWATER_MDD_UNWIND >= HIGHWATER_MDD_UNWIND_FP
/* The end of the stack that `sp` lies in, or 0 where nobody knows. */
static uintptr_t stack_end(uintptr_t sp)
{
#ifdef HIGHWATER_MDD_STACK_END
    return (uintptr_t)(HIGHWATER_MDD_STACK_END(sp));
#elif HIGHWATER_MDD_STACKS
    uint32_t i;
    for (i = 0; i < H.section[SECTION_AT_STACKS].count; i++)
        if (sp >= stacks[i].low && sp < stacks[i].high)
            return stacks[i].high;
    return 0;
#else
#error "deep backtraces need HIGHWATER_MDD_STACKS, or HIGHWATER_MDD_STACK_END(sp)"
#endif
}
#endif

#if DEEP && HIGHWATER_MDD_UNWIND == HIGHWATER_MDD_UNWIND_FP
#if defined(__riscv)
#define FP_PREVIOUS (-2)
#define FP_RETURN (-1)
#else
#define FP_PREVIOUS 0
#define FP_RETURN 1
#endif
static void walk(uintptr_t *pc, void *frame)
{
    const uintptr_t *fp = frame;
    uintptr_t end = stack_end((uintptr_t)frame);
    unsigned n;
    for (n = 1; n < HIGHWATER_MDD_BACKTRACE; n++) {
        /* The wrapper's own return address is known: go to its caller's frame first.
         * On RISC-V the frame of a leaf has no return address, but a caller is no leaf. */
        uintptr_t next = fp[FP_PREVIOUS];
        if (next <= (uintptr_t)fp || next % sizeof(uintptr_t) || next + 2 * sizeof(uintptr_t) > end + (FP_RETURN < 0 ? 2 * sizeof(uintptr_t) : 0))
            break;
        fp = (const uintptr_t *)next;
        pc[n] = fp[FP_RETURN];
        if (!pc[n])
            break;
    }
}
#endif

#if DEEP && HIGHWATER_MDD_UNWIND >= HIGHWATER_MDD_UNWIND_SCAN
/* Is `r` the address behind a call instruction? */
static int follows_call(uintptr_t r)
{
    const uintptr_t start = (uintptr_t)HIGHWATER_MDD_TEXT_START, end = (uintptr_t)HIGHWATER_MDD_TEXT_END;
#if defined(__thumb__)
    const uint16_t *h = (const uint16_t *)(r & ~(uintptr_t)1);
    /* not r - 4 < start: flash may begin at 0 */
    if (!(r & 1) || r < start + 4 || r > end)
        return 0;
    return ((h[-2] & 0xf800u) == 0xf000u && (h[-1] & 0xd000u) == 0xd000u) /* bl */
           || (h[-1] & 0xff87u) == 0x4780u;                               /* blx register */
#elif defined(__riscv)
    const uint16_t *h = (const uint16_t *)r;
    if ((r & 1) || r < start + 4 || r > end)
        return 0;
    if ((h[-2] & 0xfffu) == 0x0efu || (h[-2] & 0xfffu) == 0x0e7u) /* jal ra, jalr ra */
        return 1;
    if ((h[-1] & 0xf07fu) == 0x9002u && (h[-1] & 0x0f80u)) /* c.jalr */
        return 1;
#if __riscv_xlen == 32
    if ((h[-1] & 0xe003u) == 0x2001u) /* c.jal */
        return 1;
#endif
    return 0;
#elif defined(__x86_64__) || defined(__i386__)
    const uint8_t *b = (const uint8_t *)r;
    if (r < start + 7 || r > end)
        return 0;
    return b[-5] == 0xe8 || (b[-2] == 0xff && (b[-1] & 0x38) == 0x10) || (b[-3] == 0xff && (b[-2] & 0x38) == 0x10) ||
           (b[-6] == 0xff && (b[-5] & 0x38) == 0x10);
#else
    return r >= start + 4 && r <= end && r % 4 == 0;
#endif
}

static void walk(uintptr_t *pc, void *frame)
{
    const uintptr_t *w = frame;
    uintptr_t end = stack_end((uintptr_t)frame);
    unsigned n = 1, i;
    for (i = 0; n < HIGHWATER_MDD_BACKTRACE && i < HIGHWATER_MDD_SCAN_WORDS; i++, w++) {
        if ((uintptr_t)(w + 1) > end)
            break;
        if (!follows_call(*w))
            continue;
#if HIGHWATER_MDD_UNWIND == HIGHWATER_MDD_UNWIND_SCAN_OFFSET
        /* where it lay, and what: the host asks the unwind tables whether that can be */
        pc[n++] = (uintptr_t)i << 24 | ((*w & ~(uintptr_t)1) - (uintptr_t)HIGHWATER_MDD_TEXT_START);
#else
        pc[n++] = *w;
#endif
    }
}
#endif

#if DEEP && HIGHWATER_MDD_UNWIND == HIGHWATER_MDD_UNWIND_EXIDX
#include <unwind.h>
struct walk_state {
    uintptr_t *pc;
    uintptr_t caller;
    unsigned n;
};

static _Unwind_Reason_Code walk_step(struct _Unwind_Context *context, void *arg)
{
    struct walk_state *s = arg;
    uintptr_t ip = (uintptr_t)_Unwind_GetIP(context) & ~(uintptr_t)1;
    /* the agent's own frames come first: wait for the wrapper's caller */
    if (s->n == 0 && ip != (s->caller & ~(uintptr_t)1))
        return _URC_NO_REASON;
    s->pc[s->n++] = ip;
    return s->n < HIGHWATER_MDD_BACKTRACE ? _URC_NO_REASON : _URC_END_OF_STACK;
}
static void walk(uintptr_t *pc, void *frame)
{
    struct walk_state s;
    (void)frame;
    s.pc = pc;
    s.caller = pc[0];
    s.n = 0;
    _Unwind_Backtrace(walk_step, &s);
}
#endif

/* Fills in the time, the thread and the backtrace of an event. */
#if HIGHWATER_MDD_BACKTRACE
static void take_backtrace(uintptr_t *pc, void *caller, void *frame)
{
    unsigned n;
    for (n = 1; n < HIGHWATER_MDD_BACKTRACE; n++)
        pc[n] = 0;
    pc[0] = (uintptr_t)caller;
    (void)frame;
#if DEEP && HIGHWATER_MDD_UNWIND != HIGHWATER_MDD_UNWIND_RETURN_ADDRESS
    walk(pc, frame);
#endif
#if defined(__arm__)
    /* bit 0 says Thumb, it is no part of the address */
    for (n = 0; n < HIGHWATER_MDD_BACKTRACE; n++)
        if (n == 0 || HIGHWATER_MDD_UNWIND != HIGHWATER_MDD_UNWIND_SCAN_OFFSET)
            pc[n] &= ~(uintptr_t)1;
#endif
}
#endif

#if HIGHWATER_MDD_TIMESTAMP
static void take_time(uint32_t *time)
{
#if HIGHWATER_MDD_TIME_BITS == 32
    time[0] = (uint32_t)(HIGHWATER_MDD_NOW());
#else
    uint64_t now = (uint64_t)(HIGHWATER_MDD_NOW());
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    time[0] = (uint32_t)(now >> 32);
    time[1] = (uint32_t)now;
#else
    time[0] = (uint32_t)now;
    time[1] = (uint32_t)(now >> 32);
#endif
#endif
}
#endif

#if HIGHWATER_MDD_THREAD
static int is_thread(const struct thread_entry *t, uintptr_t handle, const char *name)
{
    unsigned i;
    if (t->handle != handle)
        return 0;
    /* A kernel gives the control block of a dead thread to the next one: the name tells them apart. */
    for (i = 0; i < HIGHWATER_MDD_THREAD_NAME_BYTES - 1; i++) {
        if (t->name[i] != name[i])
            return 0;
        if (!name[i])
            break;
    }
    return 1;
}

static uint8_t take_thread(void)
{
    struct highwater_mdd_section *table = &H.section[SECTION_AT_THREADS];
    uintptr_t handle = (uintptr_t)(HIGHWATER_MDD_THREAD_HANDLE());
    const char *name = HIGHWATER_MDD_THREAD_NAME(handle);
    struct thread_entry *t;
    uint32_t i;
    if (!name)
        name = "";
    if (last_thread && is_thread(&threads[last_thread - 1], handle, name))
        return last_thread;
    for (i = table->count; i > 0; i--)
        if (is_thread(&threads[i - 1], handle, name))
            return last_thread = (uint8_t)i;
    if (table->count >= HIGHWATER_MDD_THREADS)
        return 0;
    t = &threads[table->count];
    t->handle = handle;
    for (i = 0; i < HIGHWATER_MDD_THREAD_NAME_BYTES - 1 && name[i]; i++)
        t->name[i] = name[i];
    return last_thread = (uint8_t)++table->count;
}
#else
#define take_thread() 0
#endif

/* ------------------------------------------------------------------- index */

static uint32_t home_slot(uintptr_t ptr)
{
    uint32_t h = (uint32_t)ptr;
#if UINTPTR_MAX > 0xffffffffu
    h ^= (uint32_t)(ptr >> 32);
#endif
    h *= 2654435769u;
    h ^= h >> 15;
    return h & index_mask;
}

/* The slot of the record with this address, or of the free one behind its place. */
static uint32_t find_slot(uintptr_t ptr)
{
    uint32_t s = home_slot(ptr);
    while (index_of[s] && live[index_of[s] - 1].ptr != ptr)
        s = (s + 1) & index_mask;
    return s;
}

/* Empties a slot and closes the gap, so that no search ends too early. */
static void clear_slot(uint32_t s)
{
    uint32_t next = s;
    index_of[s] = 0;
    for (;;) {
        uint32_t home;
        next = (next + 1) & index_mask;
        if (!index_of[next])
            return;
        home = home_slot(live[index_of[next] - 1].ptr);
        /* it may move back if its home is not between the gap and it */
        if (((next - home) & index_mask) >= ((next - s) & index_mask)) {
            index_of[s] = index_of[next];
            index_of[next] = 0;
            s = next;
        }
    }
}

/* ----------------------------------------------------------------- records */

static void begin_update(void)
{
    H.busy = 1;
    BARRIER();
}

static void end_update(void)
{
    BARRIER();
    H.busy = 0;
}

static void account_added(const struct highwater_mdd_record *r)
{
    SUM_ADD(H.live_sum, r);
    H.cur_bytes += r->size;
}

/* Takes the record in slot s out of the table and into *out. */
static void remove_record(uint32_t s, struct highwater_mdd_record *out)
{
    uint32_t place = (uint32_t)index_of[s] - 1, last = LIVE.count - 1;
    copy_words(out, &live[place], sizeof(*out));
    SUM_SUB(H.live_sum, &live[place]);
    H.cur_bytes -= live[place].size;
    clear_slot(s);
    if (place != last) {
        uint32_t moved = find_slot(live[last].ptr);
        index_of[moved] = (slot_t)(place + 1);
        copy_words(&live[place], &live[last], sizeof(live[0]));
    }
    LIVE.count = last;
}

/* The address is live already: the allocator gave it out again and the release
 * went unseen. Only the newer one can be true. */
static void forget_old(uint32_t s)
{
    struct highwater_mdd_record old;
    remove_record(s, &old);
    H.frees++;
    H.foreign++;
    H.voided++;
    H.seq++;
}

void highwater_mdd_alloc(void *ptr, size_t size, size_t actual, unsigned kind, void *caller, void *frame)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    struct highwater_mdd_record *r;
    uint32_t s;
    int at_mark = 0;

    (void)actual;
    (void)caller;
    (void)frame;
    HIGHWATER_MDD_LOCK(saved);
    if (!H.run_id)
        H.run_id = (uint32_t)(HIGHWATER_MDD_RUN_ID());
    begin_update();
    if (LIVE.capacity) {
        s = find_slot((uintptr_t)ptr);
        if (index_of[s]) {
            forget_old(s);
            s = find_slot((uintptr_t)ptr);
        }
    } else
        s = 0;
    if (LIVE.count >= LIVE.capacity) {
        H.lost++;
    } else {
        r = &live[LIVE.count];
        r->ptr = (uintptr_t)ptr;
        r->size = size;
        r->seq = H.seq++;
        r->kind = (uint8_t)kind;
        r->flags = (uint16_t)(kind >> 16);
        r->thread = take_thread();
#if HIGHWATER_MDD_ACTUAL_SIZE
        r->actual = actual;
#endif
#if HIGHWATER_MDD_TIMESTAMP
        take_time(r->time);
#endif
#if HIGHWATER_MDD_BACKTRACE
        take_backtrace(r->pc, caller, frame);
#endif
        index_of[s] = (slot_t)(LIVE.count + 1);
        LIVE.count++;
        H.allocs++;
        account_added(r);
        if (H.cur_bytes > H.peak_bytes) {
            H.peak_bytes = H.cur_bytes;
            H.peak_seq = r->seq;
        }
        if (H.mark_bytes && H.cur_bytes >= H.mark_bytes) {
            H.mark_bytes = 0;
            at_mark = 1;
        }
    }
    end_update();
    HIGHWATER_MDD_UNLOCK(saved);
    highwater_mdd_done();
    if (at_mark)
        highwater_mdd_mark();
}

void highwater_mdd_failed(void)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    HIGHWATER_MDD_LOCK(saved);
    H.failed++;
    HIGHWATER_MDD_UNLOCK(saved);
}

#if HIGHWATER_MDD_HISTORY
static void make_room(void)
{
    /* busy is 0 here: whoever stops in the hook may dump and reset */
    if (RING.capacity && RING.count >= RING.capacity)
        highwater_mdd_history_overflow();
}

static void push(const struct highwater_mdd_past *past)
{
    struct highwater_mdd_past *e;
    H.hist_total++;
    if (!RING.capacity) {
        H.hist_lost++;
        return;
    }
    if (H.hist_next >= RING.capacity)
        H.hist_next = 0;
    e = &ring[H.hist_next];
    if (RING.count >= RING.capacity) {
        SUM_SUB(H.hist_sum, e);
        H.hist_lost++;
    } else
        RING.count++;
    copy_words(e, past, sizeof(*e));
    SUM_ADD(H.hist_sum, e);
    H.hist_next++;
}
#else
#define make_room() ((void)0)
#define push(past) ((void)(past))
#endif

void highwater_mdd_history_reset(void)
{
#if HIGHWATER_MDD_HISTORY
    HIGHWATER_MDD_LOCK_TYPE saved;
    HIGHWATER_MDD_LOCK(saved);
    RING.count = 0;
    H.hist_next = 0;
    H.hist_sum = 0;
    HIGHWATER_MDD_UNLOCK(saved);
#endif
}

static void describe_end(struct highwater_mdd_past *past, unsigned kind, void *caller, void *frame)
{
    (void)caller;
    (void)frame;
#if HIGHWATER_MDD_HISTORY
    past->seq = H.seq;
    past->kind = (uint8_t)kind;
    past->flags = past->block.flags;
    past->thread = take_thread();
#if HIGHWATER_MDD_TIMESTAMP
    take_time(past->time);
#endif
#if HIGHWATER_MDD_BACKTRACE
    take_backtrace(past->pc, caller, frame);
#endif
#else
    (void)past;
    (void)kind;
#endif
    H.seq++;
}

#if HIGHWATER_MDD_GUARDS
static uint16_t damage(const struct highwater_mdd_record *r);
#endif

/* What a release and the first half of a realloc have in common. */
static void *take_out(struct highwater_mdd_past *past, void *ptr, unsigned kind, void *caller, void *frame, int *known)
{
    uint32_t s = 0;
    void *base = ptr;
#if HIGHWATER_MDD_GUARDS
    base = (char *)ptr - highwater_mdd_guard_head(ptr);
#endif
    *known = 0;
    if (LIVE.capacity) {
        s = find_slot((uintptr_t)ptr);
        *known = index_of[s] != 0;
    }
    if (!*known) {
        H.foreign++;
        return base;
    }
    remove_record(s, &past->block);
#if HIGHWATER_MDD_GUARDS
    if (past->block.flags & HIGHWATER_MDD_FLAG_GUARDED) {
        past->block.flags |= damage(&past->block);
        /* the record knows what an overwritten canary may not */
        base = (char *)ptr - ((size_t)1 << (past->block.flags >> 4 & 15));
    }
#endif
    H.frees++;
    describe_end(past, kind, caller, frame);
    return base;
}

void *highwater_mdd_free(void *ptr, unsigned kind, void *caller, void *frame)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    struct highwater_mdd_past past;
    void *base;
    int known;
    if (!ptr)
        return ptr;
    HIGHWATER_MDD_LOCK(saved);
    make_room();
    begin_update();
    base = take_out(&past, ptr, kind, caller, frame, &known);
    if (known)
        push(&past);
    end_update();
    HIGHWATER_MDD_UNLOCK(saved);
#if HIGHWATER_MDD_GUARDS
    if (known && past.block.flags & (HIGHWATER_MDD_FLAG_HEAD_DAMAGED | HIGHWATER_MDD_FLAG_TAIL_DAMAGED))
        highwater_mdd_damaged(ptr);
#endif
    highwater_mdd_done();
    return base;
}

void *highwater_mdd_realloc_begin(struct highwater_mdd_pending *pending, void *ptr, unsigned kind, void *caller,
                                  void *frame)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    void *base;
    HIGHWATER_MDD_LOCK(saved);
    begin_update();
    base = take_out(&pending->past, ptr, kind, caller, frame, &pending->known);
    pending->past.flags |= HIGHWATER_MDD_FLAG_PAIR;
    end_update();
    HIGHWATER_MDD_UNLOCK(saved);
#if HIGHWATER_MDD_GUARDS
    if (pending->known && pending->past.block.flags & (HIGHWATER_MDD_FLAG_HEAD_DAMAGED | HIGHWATER_MDD_FLAG_TAIL_DAMAGED))
        highwater_mdd_damaged(ptr);
#endif
    return base;
}

void highwater_mdd_realloc_commit(struct highwater_mdd_pending *pending)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    HIGHWATER_MDD_LOCK(saved);
    if (pending->known) {
        make_room();
        begin_update();
        push(&pending->past);
        end_update();
    }
    HIGHWATER_MDD_UNLOCK(saved);
    highwater_mdd_done();
}

void highwater_mdd_realloc_undo(struct highwater_mdd_pending *pending)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    HIGHWATER_MDD_LOCK(saved);
    if (pending->known) {
        uint32_t s;
        make_room();
        begin_update();
        s = find_slot(pending->past.block.ptr);
        if (LIVE.count >= LIVE.capacity) {
            H.lost++; /* another thread took the place; the release stays on the books */
            push(&pending->past);
        } else {
            copy_words(&live[LIVE.count], &pending->past.block, sizeof(live[0]));
            index_of[s] = (slot_t)(LIVE.count + 1);
            account_added(&live[LIVE.count]);
            LIVE.count++;
            H.frees--;
            H.voided++;
            pending->past.flags |= HIGHWATER_MDD_FLAG_VOID;
            push(&pending->past);
        }
        end_update();
    } else
        H.foreign--;
    HIGHWATER_MDD_UNLOCK(saved);
    highwater_mdd_done();
}

/* ------------------------------------------------------- heaps and stacks */

void highwater_mdd_heap(const void *start, const void *end, const char *name)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    struct highwater_mdd_section *table = &H.section[SECTION_AT_HEAPS];
    uint32_t i;
    HIGHWATER_MDD_LOCK(saved);
    for (i = 0; i < table->count; i++)
        if (heaps[i].start == start)
            break;
    if (i < HIGHWATER_MDD_HEAPS) {
        unsigned n;
        heaps[i].start = start;
        heaps[i].end = end;
        for (n = 0; n < sizeof(heaps[i].name) - 1 && name && name[n]; n++)
            heaps[i].name[n] = name[n];
        if (i == table->count)
            table->count++;
    }
    HIGHWATER_MDD_UNLOCK(saved);
}

#if HIGHWATER_MDD_STACKS
void highwater_mdd_stack(uintptr_t handle, const void *low, const void *high)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    struct highwater_mdd_section *table = &H.section[SECTION_AT_STACKS];
    uint32_t i;
    HIGHWATER_MDD_LOCK(saved);
    for (i = 0; i < table->count; i++)
        if (stacks[i].handle == handle)
            break;
    if (i < HIGHWATER_MDD_STACKS) {
        stacks[i].handle = handle;
        stacks[i].low = (uintptr_t)low;
        stacks[i].high = (uintptr_t)high;
        stacks[i].untouched = (uintptr_t)high - (uintptr_t)low;
        if (i == table->count)
            table->count++;
    }
    HIGHWATER_MDD_UNLOCK(saved);
}

void highwater_mdd_stack_paint(void *low, void *high)
{
    volatile uint8_t *b = low;
    while ((uintptr_t)b < (uintptr_t)high)
        *b++ = HIGHWATER_MDD_STACK_FILL;
}

void highwater_mdd_stacks_measure(void)
{
    uint32_t i;
    for (i = 0; i < H.section[SECTION_AT_STACKS].count; i++) {
        const volatile uint8_t *b = (const volatile uint8_t *)stacks[i].low;
        while ((uintptr_t)b < stacks[i].high && *b == HIGHWATER_MDD_STACK_FILL)
            b++;
        stacks[i].untouched = (uintptr_t)b - stacks[i].low;
    }
}
#endif

/* ------------------------------------------------------------------ region */

#if !HIGHWATER_MDD_STATIC_POOL
void highwater_mdd_region(void *memory, size_t bytes)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    uintptr_t at = ((uintptr_t)memory + 7) & ~(uintptr_t)7;
    size_t left, records, slots = 2, i;
    if (bytes < 64)
        return;
    left = bytes - (size_t)(at - (uintptr_t)memory);
    HIGHWATER_MDD_LOCK(saved);
    if (!LIVE.capacity) {
#if HIGHWATER_MDD_HISTORY
        /* the ring gets what it asks for, but no more than half */
        size_t entries = left / 2 / sizeof(struct highwater_mdd_past);
        if (entries > HIGHWATER_MDD_HISTORY_RECORDS)
            entries = HIGHWATER_MDD_HISTORY_RECORDS;
        ring = (struct highwater_mdd_past *)at;
        at += entries * sizeof(struct highwater_mdd_past);
        left -= entries * sizeof(struct highwater_mdd_past);
        RING.addr = ring;
        RING.capacity = (uint32_t)entries;
#endif
        records = left / (sizeof(struct highwater_mdd_record) + 3 * sizeof(slot_t));
        if (records > MAX_REGION_RECORDS)
            records = MAX_REGION_RECORDS;
        while (slots * 2 <= 3 * records)
            slots *= 2;
        if (records) {
            live = (struct highwater_mdd_record *)at;
            index_of = (slot_t *)(at + records * sizeof(struct highwater_mdd_record));
            for (i = 0; i < slots; i++)
                ((volatile slot_t *)index_of)[i] = 0;
            index_mask = (uint32_t)(slots - 1);
            LIVE.addr = live;
            LIVE.capacity = (uint32_t)records;
            H.dynamic_bytes = bytes;
        }
    }
    HIGHWATER_MDD_UNLOCK(saved);
}
#endif

/* ------------------------------------------------------------------ guards */

#if HIGHWATER_MDD_GUARDS
/* Before the block: a word that depends on the address, and the distance to what
 * the allocator gave, veiled the same way. Behind it: bytes of the same word. */
#define CANARY ((uintptr_t)0x9d5eb1a7u)

void *highwater_mdd_guard(void *base, size_t head, size_t size)
{
    uint8_t *p = (uint8_t *)base + head;
    uintptr_t veil = CANARY ^ (uintptr_t)p;
    uintptr_t *front = (uintptr_t *)(void *)p;
    volatile uint8_t *tail = p + size;
    unsigned i;
    front[-1] = veil;
    front[-2] = ~veil ^ head;
    for (i = 0; i < HIGHWATER_MDD_GUARD_TAIL; i++)
        tail[i] = (uint8_t)(veil >> 8 * i);
    return p;
}

size_t highwater_mdd_guard_head(const void *ptr)
{
    const uintptr_t *front = ptr;
    uintptr_t veil = CANARY ^ (uintptr_t)ptr, head;
    if ((uintptr_t)ptr % sizeof(uintptr_t) || front[-1] != veil)
        return 0;
    head = front[-2] ^ ~veil;
    return head >= HIGHWATER_MDD_GUARD_HEAD && head <= 0x8000u && !(head & (head - 1)) ? (size_t)head : 0;
}

unsigned highwater_mdd_guard_flags(size_t head)
{
    unsigned log = 0;
    while (((size_t)1 << log) < head)
        log++;
    return (HIGHWATER_MDD_FLAG_GUARDED | log << 4) << 16;
}

static uint16_t damage(const struct highwater_mdd_record *r)
{
    const uint8_t *tail = (const uint8_t *)(r->ptr + r->size);
    uintptr_t veil = CANARY ^ r->ptr;
    uint16_t found = 0;
    unsigned i;
    if (!highwater_mdd_guard_head((const void *)r->ptr))
        found |= HIGHWATER_MDD_FLAG_HEAD_DAMAGED;
    for (i = 0; i < HIGHWATER_MDD_GUARD_TAIL; i++)
        if (tail[i] != (uint8_t)(veil >> 8 * i))
            found |= HIGHWATER_MDD_FLAG_TAIL_DAMAGED;
    if (found)
        H.damaged++;
    return found;
}
#endif

#endif /* HIGHWATER_MDD */
