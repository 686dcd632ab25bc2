/*
 * A dump without a debugger: the bytes of mddout.N, plain or in frames.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIGHWATER_MDD_SEND_H
#define HIGHWATER_MDD_SEND_H

#include "highwater_mdd.h"

#if HIGHWATER_MDD

/* Takes `bytes` bytes away; returns 0, or not 0 to give up. */
typedef int (*highwater_mdd_put)(void *context, const void *data, size_t bytes);

/* Sends the dump as it stands in a file, for semihosting, write(2) or a file
 * system, and behind it a trailer: "HWMDDEND", u32 length of all before it, u32
 * its CRC-32 (both in the target's byte order). A history ring that went out
 * whole is reset. Returns 0, or what put returned. Do not call it from a hook
 * that runs inside an update (highwater_mdd_history_overflow is outside). */
int highwater_mdd_send(highwater_mdd_put put, void *context);

/* The same in frames, for serial lines that lose bytes: `highwater mdd receive` puts
 * them together, asks for nothing, and fills the holes from a second sending.
 *
 *   "HWf" kind  u32 dump  u32 offset  u32 length  length bytes  u32 CRC-32
 *
 * all little-endian, the CRC over everything from `kind` on. Kind 1: data.
 * Kind 2: end; offset is the length of the file, no bytes. `dump` tells dumps
 * apart: it is the number of the last event. The ring is not reset, since
 * nobody knows whether the frames arrived; see highwater_mdd_history_reset. */
int highwater_mdd_send_frames(highwater_mdd_put put, void *context);

#endif
#endif
