/*
 * Port: Rust's global allocator. Compile the agent and highwater_mdd_rust.c with
 *
 *   -DHIGHWATER_MDD=1 -DHIGHWATER_MDD_CONFIG='"highwater_mdd_rust.h"'
 *
 * (or include this header from a configuration of your own) and wrap the
 * program's allocator in the crate `highwater`:
 *
 *   #[global_allocator]
 *   static HEAP: highwater::mdd::Recorded<MyHeap> = highwater::mdd::Recorded::new(MyHeap::new());
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_RUST_H
#define HIGHWATER_MDD_RUST_H

/* Kinds, named as GlobalAlloc's functions are; a realloc has the two kinds of C's.
 * A configuration with kinds of its own lists the names itself, and says here
 * which numbers are whose: even ones allocate, odd ones release. */
#ifndef HIGHWATER_MDD_RUST_ALLOC
#ifdef HIGHWATER_MDD_KIND_NAMES
#error "name alloc(), dealloc() and alloc_zeroed() in HIGHWATER_MDD_KIND_NAMES, and define HIGHWATER_MDD_RUST_ALLOC, _DEALLOC and _ALLOC_ZEROED"
#endif
#define HIGHWATER_MDD_KIND_NAMES "alloc()", "dealloc()", "alloc_zeroed()"
#define HIGHWATER_MDD_RUST_ALLOC 64
#define HIGHWATER_MDD_RUST_DEALLOC 65
#define HIGHWATER_MDD_RUST_ALLOC_ZEROED 66
#endif

#endif
