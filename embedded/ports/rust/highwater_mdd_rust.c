/*
 * See highwater_mdd_rust.h.
 *
 * Stable Rust cannot ask for its return address, C can. The crate's wrapper does
 * nothing but jump here: a call in its last place, with no more arguments than
 * any processor has registers for, so the optimizer makes a jump of it, and who
 * called the wrapper is who calls these functions. Without optimization the
 * wrapper's own frames come first in a backtrace.
 *
 * Four arguments are what ARM passes in registers. A realloc would have five, so
 * the alignment travels in the low bits of the wrapper's address.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "highwater_mdd.h"

#if !HIGHWATER_MDD

#error "the crate needs the agent: compile with -DHIGHWATER_MDD=1, or do not wrap the allocator"

#endif

#ifndef HIGHWATER_MDD_RUST_ALLOC
#error "the agent has no kinds for Rust: -DHIGHWATER_MDD_CONFIG='\"highwater_mdd_rust.h\"', or include that header from your configuration"
#endif

#define NOINLINE __attribute__((noinline))
#define HERE HIGHWATER_MDD_CALLER(), HIGHWATER_MDD_FRAME()

/* The first part of the crate's Recorded, which is aligned to 64 bytes: the
 * program's allocator. `self` is always the Recorded's own address. */
struct recorded {
    void *(*alloc)(const struct recorded *self, size_t size, size_t align);
    void *(*alloc_zeroed)(const struct recorded *self, size_t size, size_t align);
    void *(*realloc)(const struct recorded *self, void *ptr, size_t size, size_t align, size_t new_size);
    void (*dealloc)(const struct recorded *self, void *ptr, size_t size, size_t align);
};

/* The address of a Recorded, and log2 of an alignment in its low six bits. */
#define PACK_MASK ((uintptr_t)63)
#define SELF(packed) ((const struct recorded *)((packed) & ~PACK_MASK))
#define ALIGN(packed) ((size_t)1 << ((packed) & PACK_MASK))

NOINLINE void *highwater_mdd_rust_alloc(size_t size, uintptr_t packed);
NOINLINE void *highwater_mdd_rust_alloc_zeroed(size_t size, uintptr_t packed);
NOINLINE void *highwater_mdd_rust_realloc(void *ptr, size_t size, size_t new_size, uintptr_t packed);
NOINLINE void highwater_mdd_rust_dealloc(void *ptr, size_t size, uintptr_t packed);

/* What the allocator took for a block: it does not say, unless the configuration knows. */
#if HIGHWATER_MDD_ACTUAL_SIZE && defined(HIGHWATER_MDD_ACTUAL)
#define ACTUAL(base, bytes) (HIGHWATER_MDD_ACTUAL((base), (bytes)))
#else
#define ACTUAL(base, bytes) ((void)(base), (bytes))
#endif

/* With guards a block is `head` bytes longer in front and a word behind, and lies at
 * a word at least. An alignment that the agent has no bits for goes without. */
#if HIGHWATER_MDD_GUARDS
#define MOST_HEAD ((size_t)0x8000)
static size_t head_of(size_t align)
{
    size_t head = align > HIGHWATER_MDD_GUARD_HEAD ? align : HIGHWATER_MDD_GUARD_HEAD;
    return head > MOST_HEAD ? 0 : head;
}
#define BASE_ALIGN(align) ((align) > sizeof(void *) ? (align) : sizeof(void *))
static size_t bytes_of(size_t head, size_t size) { return head ? head + size + HIGHWATER_MDD_GUARD_TAIL : size; }
#else
#define head_of(align) ((void)(align), (size_t)0)
#define BASE_ALIGN(align) (align)
#define bytes_of(head, size) ((void)(head), (size))
#endif

static void *finish(void *base, size_t head, size_t size, unsigned kind, void *caller, void *frame)
{
    void *p = base;
    if (!base) {
        highwater_mdd_failed();
        return base;
    }
#if HIGHWATER_MDD_GUARDS
    if (head) {
        p = highwater_mdd_guard(base, head, size);
        kind |= highwater_mdd_guard_flags(head);
    }
#endif
    highwater_mdd_alloc(p, size, ACTUAL(base, bytes_of(head, size)), kind, caller, frame);
    return p;
}

void *highwater_mdd_rust_alloc(size_t size, uintptr_t packed)
{
    const struct recorded *self = SELF(packed);
    size_t align = ALIGN(packed), head = head_of(align);
    void *base = self->alloc(self, bytes_of(head, size), BASE_ALIGN(align));
    return finish(base, head, size, HIGHWATER_MDD_RUST_ALLOC, HERE);
}

void *highwater_mdd_rust_alloc_zeroed(size_t size, uintptr_t packed)
{
    const struct recorded *self = SELF(packed);
    size_t align = ALIGN(packed), head = head_of(align);
    void *base = self->alloc_zeroed(self, bytes_of(head, size), BASE_ALIGN(align));
    return finish(base, head, size, HIGHWATER_MDD_RUST_ALLOC_ZEROED, HERE);
}

void highwater_mdd_rust_dealloc(void *ptr, size_t size, uintptr_t packed)
{
    const struct recorded *self = SELF(packed);
    size_t align = ALIGN(packed), head = head_of(align);
    highwater_mdd_free(ptr, HIGHWATER_MDD_RUST_DEALLOC, HERE);
    self->dealloc(self, (char *)ptr - head, bytes_of(head, size), BASE_ALIGN(align));
}

void *highwater_mdd_rust_realloc(void *ptr, size_t size, size_t new_size, uintptr_t packed)
{
    const struct recorded *self = SELF(packed);
    size_t align = ALIGN(packed), head = head_of(align);
    struct highwater_mdd_pending pending;
    void *fresh;
    highwater_mdd_realloc_begin(&pending, ptr, HIGHWATER_MDD_REALLOC_FREE, HERE);
    fresh = self->realloc(self, (char *)ptr - head, bytes_of(head, size), BASE_ALIGN(align), bytes_of(head, new_size));
    if (fresh)
        highwater_mdd_realloc_commit(&pending);
    else
        highwater_mdd_realloc_undo(&pending);
    return finish(fresh, head, new_size, HIGHWATER_MDD_REALLOC | (unsigned)HIGHWATER_MDD_FLAG_PAIR << 16, HERE);
}
