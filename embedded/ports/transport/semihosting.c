/*
 * Port: a dump straight into a file on the host, by ARM or RISC-V semihosting
 * (QEMU, OpenOCD, J-Link, pyOCD all serve it).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "semihosting.h"

#if HIGHWATER_MDD && (defined(__arm__) || defined(__riscv))

#define SYS_OPEN 0x01
#define SYS_CLOSE 0x02
#define SYS_WRITE 0x05
#define MODE_WB 5

uintptr_t highwater_semihost(uintptr_t op, const void *args)
{
#if defined(__arm__)
    register uintptr_t r0 __asm__("r0") = op;
    register const void *r1 __asm__("r1") = args;
#if defined(__thumb__)
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
#else
    __asm__ volatile("svc 0x123456" : "+r"(r0) : "r"(r1) : "memory", "lr");
#endif
    return r0;
#else
    register uintptr_t a0 __asm__("a0") = op;
    register const void *a1 __asm__("a1") = args;
    /* the three must stand together, uncompressed, on one page */
    __asm__ volatile(".balign 16\n\t.option push\n\t.option norvc\n\t"
                     "slli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\t.option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
#endif
}

static int put(void *context, const void *data, size_t bytes)
{
    uintptr_t args[3];
    args[0] = *(uintptr_t *)context;
    args[1] = (uintptr_t)data;
    args[2] = bytes;
    return highwater_semihost(SYS_WRITE, args) != 0; /* it returns the bytes left over */
}

int highwater_mdd_semihost(const char *name)
{
    uintptr_t args[3], handle;
    size_t length = 0;
    int failed;
    while (name[length])
        length++;
    args[0] = (uintptr_t)name;
    args[1] = MODE_WB;
    args[2] = length;
    handle = highwater_semihost(SYS_OPEN, args);
    if (handle == (uintptr_t)-1)
        return -1;
    failed = highwater_mdd_send(put, &handle);
    highwater_semihost(SYS_CLOSE, &handle);
    return failed;
}

#else

typedef int highwater_mdd_semihosting_is_off;

#endif
