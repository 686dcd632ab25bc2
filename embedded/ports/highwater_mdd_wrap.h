/*
 * What the wrapping ports share: a heap call with its record and its guards.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_WRAP_H
#define HIGHWATER_MDD_WRAP_H

#include "highwater_mdd.h"

#if HIGHWATER_MDD

/* Makes a recorded block. `align` 0: what malloc gives. `zero`: clear it (only without align).
 * Returns null, and counts, when there is no memory. */
void *highwater_mdd_wrap_make(size_t size, size_t align, int zero, unsigned kind, void *caller, void *frame);
/* Releases one. */
void highwater_mdd_wrap_release(void *ptr, unsigned kind, void *caller, void *frame);
/* While this is not 0 the C heap's blocks pass through unseen: a port sets it around
 * an allocator that takes its memory from malloc and whose blocks it records itself.
 * No other thread may run meanwhile. */
extern volatile unsigned char highwater_mdd_wrap_pass;

#endif
#endif
