/*
 * QEMU virt, RISC-V, no C library at all.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>

#include "../board.h"

int main(void);
void start_c(void);

__asm__(".section .start, \"ax\"\n"
        ".globl _start\n"
        "_start: la sp, board_stack_high\n"
        " li fp, 0\n"
        " j start_c\n"
        ".text\n");

extern char board_bss_start[], board_bss_end[];

void start_c(void)
{
    volatile char *b;
    for (b = board_bss_start; b < (char *)board_bss_end; b++)
        *b = 0;
    board_exit(main());
}

void board_put(char byte) { *(volatile uint8_t *)0x10000000 = (uint8_t)byte; }

void board_say(const char *text)
{
    while (*text)
        board_put(*text++);
}

void board_exit(int status)
{
    *(volatile uint32_t *)0x100000 = status ? (uint32_t)status << 16 | 0x3333 : 0x5555;
    for (;;) {
    }
}

/* What a compiler takes for granted. */
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memcpy(void *to, const void *from, size_t n)
{
    char *t = to;
    const char *f = from;
    while (n--)
        *t++ = *f++;
    return to;
}
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int value, size_t n)
{
    char *t = to;
    while (n--)
        *t++ = (char)value;
    return to;
}
