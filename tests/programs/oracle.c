/* A second opinion about stacks, preloaded beside the agent: each allocation's
 * stack by libgcc's unwinder, which shares no code with ours.
 *
 * ORACLE_FILE names a file that holds one record after another, all u64:
 * pointer, size, thread id, number of frames, return addresses (innermost
 * first, from the frame outside of this library and of the agent). The first
 * word of the file is the number of words used. ORACLE_MAX: most records.
 * ORACLE_EXE: the program to look at (not the one that starts it). */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

enum { MOST_FRAMES = 16384 };
static const size_t FILE_SIZE = (size_t)1 << 30; /* sparse */

static __thread int busy __attribute__((tls_model("initial-exec")));
static _Atomic(uint64_t) *words;
static _Atomic(uint64_t) next = 1;
static atomic_long left;
static pid_t owner;

struct range {
    uintptr_t start, end;
};
static struct range own[2]; /* this library, the agent */

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_memalign)(size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);

static int note_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct range all = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            if (from < all.start)
                all.start = from;
            if (from + info->dlpi_phdr[i].p_memsz > all.end)
                all.end = from + info->dlpi_phdr[i].p_memsz;
        }
    if ((uintptr_t)data >= all.start && (uintptr_t)data < all.end)
        own[0] = all;
    else if (info->dlpi_name && strstr(info->dlpi_name, "highwater_agent"))
        own[1] = all;
    return 0;
}

static void resolve(void)
{
    if (real_malloc)
        return;
    busy++;
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_memalign = dlsym(RTLD_NEXT, "memalign");
    real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    busy--;
}

__attribute__((constructor)) static void start(void)
{
    resolve();
    busy++;
    const char *path = getenv("ORACLE_FILE"), *most = getenv("ORACLE_MAX"), *only = getenv("ORACLE_EXE");
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[length < 0 ? 0 : length] = 0;
    int fd = path && only && !strcmp(exe, only) ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)FILE_SIZE) == 0) {
        dl_iterate_phdr(note_object, (void *)start);
        void *p = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            owner = getpid();
            left = most ? atol(most) : 1000000;
            words = p;
        }
    }
    if (fd >= 0)
        close(fd);
    busy--;
}

struct walk {
    uint64_t frames[MOST_FRAMES];
    size_t count;
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data)
{
    struct walk *walk = data;
    if (walk->count == MOST_FRAMES)
        return _URC_END_OF_STACK;
    int exact = 0;
    uint64_t pc = _Unwind_GetIPInfo(context, &exact);
    /* A return address is behind its call; of an instruction that a signal
     * interrupted, the address behind its first byte stands for it. */
    walk->frames[walk->count++] = pc && exact ? pc + 1 : pc;
    return _URC_NO_REASON;
}

static int is_own(uint64_t pc)
{
    for (int i = 0; i < 2; i++)
        if (pc >= own[i].start && pc < own[i].end)
            return 1;
    return 0;
}

/* Never inlined: its own frame is the first of the walk. */
static __attribute__((noinline)) void note(void *p, size_t size)
{
    if (!p || !words || busy || getpid() != owner || atomic_fetch_sub(&left, 1) <= 0)
        return;
    busy++;
    /* Not on the stack, which may be a small one; not on the heap either. */
    struct walk *walk = mmap(NULL, sizeof *walk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (walk != MAP_FAILED) {
        _Unwind_Backtrace(step, walk);
        while (walk->count && !walk->frames[walk->count - 1])
            walk->count--; /* libgcc ends some stacks with a frame at 0 */
        size_t first = 0;
        for (size_t i = 0; i < walk->count && i < 8; i++)
            if (is_own(walk->frames[i]))
                first = i + 1;
        size_t count = walk->count - first; /* 0: libgcc came no further than our own frames */
        uint64_t at = atomic_fetch_add(&next, 4 + count);
        if ((at + 4 + count) * 8 < FILE_SIZE) {
            words[at] = (uintptr_t)p;
            words[at + 1] = size;
            words[at + 2] = (uint64_t)syscall(SYS_gettid);
            words[at + 3] = count;
            for (size_t i = 0; i < count; i++)
                words[at + 4 + i] = walk->frames[first + i];
            atomic_store(&words[0], atomic_load(&next));
        }
        munmap(walk, sizeof *walk);
    }
    busy--;
}

void *malloc(size_t size)
{
    resolve();
    void *p = real_malloc(size);
    note(p, size);
    return p;
}

void *calloc(size_t count, size_t size)
{
    resolve();
    void *p = real_calloc(count, size);
    note(p, count * size);
    return p;
}

void *realloc(void *old, size_t size)
{
    resolve();
    void *p = real_realloc(old, size);
    note(p, size);
    return p;
}

void *memalign(size_t alignment, size_t size)
{
    resolve();
    void *p = real_memalign(alignment, size);
    note(p, size);
    return p;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    resolve();
    void *p = real_aligned_alloc(alignment, size);
    note(p, size);
    return p;
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    resolve();
    int error = real_posix_memalign(result, alignment, size);
    if (!error)
        note(*result, size);
    return error;
}
