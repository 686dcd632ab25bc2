/* See semihosting.c.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HIGHWATER_MDD_SEMIHOSTING_H
#define HIGHWATER_MDD_SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>
#include "highwater_mdd_send.h"

/* One call of the host, as the semihosting specification numbers them. */
uintptr_t highwater_semihost(uintptr_t op, const void *args);

#if HIGHWATER_MDD
/* Writes the dump to the file `name` on the host. 0, or not 0. */
int highwater_mdd_semihost(const char *name);
#endif
#endif
