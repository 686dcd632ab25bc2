// jit ROUNDS: code made at run time that allocates, with frames of several sizes
// in turns at one and the same place; with and without unwind information that
// is registered (__register_frame), as compilers at run time have it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern void __register_frame(void *);
extern void __deregister_frame(void *);

static unsigned char *code;
static uint64_t frames[64];

static void put32(unsigned char *at, uint32_t value) { memcpy(at, &value, 4); }
static void put64(unsigned char *at, uint64_t value) { memcpy(at, &value, 8); }

// void *f(size_t size): sub rsp, FRAME; mov rax, &malloc; call rax; add rsp, FRAME; ret
static void make(uint32_t frame) {
    unsigned char *at = code;
    memcpy(at, "\x48\x81\xec", 3);
    put32(at + 3, frame);
    memcpy(at + 7, "\x48\xb8", 2);
    put64(at + 9, (uint64_t)(uintptr_t)&malloc);
    memcpy(at + 17, "\xff\xd0\x48\x81\xc4", 5);
    put32(at + 22, frame);
    at[26] = 0xc3;
}

// One CIE and one FDE for the code: cfa = rsp + 8, then rsp + 8 + FRAME.
static void describe(uint32_t frame) {
    unsigned char *at = (unsigned char *)frames;
    memset(at, 0, sizeof frames);
    static const unsigned char cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0};
    memcpy(at, cie, sizeof cie);
    unsigned char *fde = at + sizeof cie;
    put32(fde, 28);
    put32(fde + 4, (uint32_t)(fde + 4 - at));
    put64(fde + 8, (uint64_t)(uintptr_t)code);
    put64(fde + 16, 27);
    uint32_t cfa = frame + 8;
    unsigned char *program = fde + 24;
    *program++ = 0x40 | 7; // behind the subtraction
    *program++ = 0x0e;     // DW_CFA_def_cfa_offset
    *program++ = (unsigned char)((cfa & 127) | 128);
    *program++ = (unsigned char)(cfa >> 7 & 127);
}

__attribute__((noinline)) static void *through(size_t size) {
    void *(*made)(size_t);
    memcpy(&made, &code, sizeof made);
    void *block = made(size);
    __asm__ volatile("" ::: "memory");
    return block;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    long rounds = atol(words[1]);
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 3;
    for (long i = 0; i < rounds; i++) {
        uint32_t frame = 8 + 16 * (uint32_t)(i % 5);
        int registered = i / 5 % 2;
        make(frame);
        if (registered) {
            describe(frame);
            __register_frame(frames);
        }
        for (int k = 0; k < 4; k++) free(through(100 + frame));
        if (registered) __deregister_frame(frames);
    }
    puts("done");
    return 0;
}
