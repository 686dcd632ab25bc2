/*
 * MPS2 AN385: vectors, start code, UART, newlib's system calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../board.h"

int main(void);
void reset(void);

extern char board_data_start[], board_data_end[], board_data_load[], board_bss_start[], board_bss_end[];
extern void (*board_init_start[])(void), (*board_init_end[])(void);

static void fault(void)
{
    board_say("fault\n");
    board_exit(99);
}

/* For a kernel. */
__attribute__((weak)) void board_svcall(void);
__attribute__((weak)) void board_pendsv(void);
__attribute__((weak)) void board_systick(void);

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    board_stack_high, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    [11] = (void *)board_svcall, [14] = (void *)board_pendsv, [15] = (void *)board_systick,
};

#define UART ((volatile uint32_t *)0x40004000)

void board_put(char byte)
{
    UART[2] = 1; /* transmit enable */
    while (UART[1] & 1) {
    }
    UART[0] = (uint8_t)byte;
}

void board_say(const char *text)
{
    while (*text)
        board_put(*text++);
}

void board_exit(int status)
{
    register uint32_t r0 __asm__("r0") = 0x20; /* SYS_EXIT_EXTENDED */
    uint32_t args[2];
    register uint32_t *r1 __asm__("r1") = args;
    args[0] = 0x20026; /* ADP_Stopped_ApplicationExit */
    args[1] = (uint32_t)status;
    __asm__ volatile("bkpt 0xab" : : "r"(r0), "r"(r1) : "memory");
    for (;;) {
    }
}

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void reset(void)
{
    char *to = board_data_start, *from = board_data_load;
    void (**init)(void);
    while (to < board_data_end)
        *to++ = *from++;
    for (to = board_bss_start; to < board_bss_end; to++)
        *to = 0;
    for (init = board_init_start; init < board_init_end; init++)
        (*init)();
    board_exit(main());
}

void *_sbrk(intptr_t bytes)
{
    static char *brk = board_heap_start;
    char *old = brk;
    if (bytes > board_heap_end - brk) {
        errno = ENOMEM;
        return (void *)-1;
    }
    brk += bytes;
    return old;
}

int _write(int file, const char *data, int length)
{
    int i;
    (void)file;
    for (i = 0; i < length; i++)
        board_put(data[i]);
    return length;
}

int _read(int file, char *data, int length) { (void)file; (void)data; (void)length; return 0; }
int _close(int file) { (void)file; return -1; }
int _lseek(int file, int offset, int whence) { (void)file; (void)offset; (void)whence; return 0; }
int _isatty(int file) { (void)file; return 1; }
int _fstat(int file, struct stat *st) { (void)file; st->st_mode = S_IFCHR; return 0; }
int _getpid(void) { return 1; }
int _kill(int pid, int sig) { (void)pid; (void)sig; return -1; }
void _exit(int status) { board_exit(status); for (;;) {} }
