/* Programs that lose blocks, keep them, or seem to do one of the two: `lost CASE`.
 *
 * Each allocation is made by a function of its own, `lost_...` or `kept_...`,
 * named after what is true of the block. */
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <pthread.h>
#include <semaphore.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

/* Overwrites what earlier calls have left on the stack and in registers. */
APART static void forget() {
    volatile char room[16384];
    memset((void *)room, 0, sizeof room);
    asm volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi;"
                 "xor %%edi, %%edi; xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d; xor %%r11d, %%r11d;"
                 "pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm2, %%xmm2"
                 ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "memory");
}

/* The compiler must believe that somebody reads what is stored. */
static void seen(void *p) { asm volatile("" ::"r"(p) : "memory"); }

static void *volatile global_pointer;
static void *volatile other_pointer;

struct Node {
    Node *left;
    Node *right;
    char room[40];
};

/* ---- plain ---- */

APART static void lost_single() { global_pointer = malloc(77); global_pointer = nullptr; }
APART static void kept_single() { global_pointer = malloc(33); }
static void single() { lost_single(); kept_single(); }

APART static void lost_list() {
    Node *list = nullptr;
    for (int i = 0; i < 10; i++) {
        Node *node = (Node *)calloc(1, sizeof(Node));
        node->left = list;
        list = node;
    }
    global_pointer = list;
    global_pointer = nullptr;
}
APART static void kept_list() {
    Node *list = nullptr;
    for (int i = 0; i < 7; i++) {
        Node *node = (Node *)calloc(1, sizeof(Node));
        node->left = list;
        list = node;
    }
    global_pointer = list;
}
static void list() { lost_list(); kept_list(); }

APART static Node *lost_tree(int depth) {
    Node *node = (Node *)calloc(1, sizeof(Node));
    if (depth > 1) {
        node->left = lost_tree(depth - 1);
        node->right = lost_tree(depth - 1);
    }
    return node;
}
static void tree() { global_pointer = lost_tree(4); global_pointer = nullptr; }

APART static void lost_ring() {
    Node *first = (Node *)calloc(1, sizeof(Node)), *at = first;
    for (int i = 1; i < 5; i++) {
        at->left = (Node *)calloc(1, sizeof(Node));
        at->left->right = at;
        at = at->left;
    }
    at->left = first;
    first->right = at;
}

/* A ring that a block leads into: only that block is the head. */
APART static Node *lost_head() { return (Node *)calloc(1, sizeof(Node)); }
APART static Node *lost_ringed() {
    Node *a = (Node *)calloc(1, sizeof(Node)), *b = (Node *)calloc(1, sizeof(Node));
    a->left = b;
    b->left = a;
    return b;
}
static void headed_ring() {
    /* The head comes first, at the lower address. */
    Node *head = lost_head();
    head->right = lost_ringed();
    seen(head);
}

APART static void lost_kinds() {
    void *p;
    p = malloc(11); global_pointer = p;
    p = calloc(3, 7); global_pointer = p;
    p = realloc(malloc(5), 500); global_pointer = p;
    if (posix_memalign(&p, 256, 130) == 0) global_pointer = p;
    p = aligned_alloc(64, 192); global_pointer = p;
    p = strdup("a name"); global_pointer = p;
    p = malloc(300000); global_pointer = p;
    global_pointer = nullptr;
}

/* ---- pointers into the middle ---- */

APART static void possibly_middle() { global_pointer = (char *)malloc(100) + 10; }
APART static Node *possibly_chained() { return (Node *)calloc(1, sizeof(Node)); }
static void middle() {
    possibly_middle();
    Node *first = possibly_chained();
    first->left = possibly_chained();
    other_pointer = &first->right;
    seen(first);
}

/* A lost block whose only lead is into the middle of another. */
APART static Node *lost_leader() { return (Node *)calloc(1, sizeof(Node)); }
APART static Node *lost_follower() { return (Node *)calloc(1, sizeof(Node)); }
static void lost_middle() {
    Node *leader = lost_leader();
    leader->right = (Node *)&lost_follower()->right;
    seen(leader);
}

struct Counted {
    char *name;
    Counted() : name(nullptr) {}
    ~Counted() { free(name); }
};
static Counted *volatile elements;
APART static void kept_elements() { elements = new Counted[6]; }

struct First { virtual ~First() {} long one = 1; };
struct Second { virtual ~Second() {} virtual long two() { return 2; } long other = 2; };
struct Both : First, Second { long three = 3; long two() override { return 3; } };
static Second *volatile second_base;
APART static void kept_both() { second_base = new Both; }
static void bases() { kept_both(); }

/* What a string of libstdc++'s old ABI looks like. */
APART static void kept_old_string() {
    size_t *rep = (size_t *)malloc(3 * sizeof(size_t) + 20 + 1);
    rep[0] = 5;
    rep[1] = 20;
    rep[2] = 0;
    global_pointer = rep + 3;
}
/* A length in front, as sqlite's allocator has it. */
APART static void kept_length() {
    uint64_t *block = (uint64_t *)malloc(72);
    block[0] = 64;
    other_pointer = block + 1;
}
static void prefixes() { kept_old_string(); kept_length(); kept_elements(); }

/* ---- C++ ---- */

static std::map<int, std::string> *volatile kept_map;
APART static void kept_words() {
    kept_map = new std::map<int, std::string>;
    for (int i = 0; i < 20; i++) (*kept_map)[i] = std::string(100, 'a' + i);
}
static std::map<int, std::string> *volatile lost_map;
APART static void lost_words() {
    lost_map = new std::map<int, std::string>;
    for (int i = 0; i < 8; i++) (*lost_map)[i] = std::string(100, 'a' + i);
    lost_map = nullptr;
}
static void words() { kept_words(); lost_words(); }

APART static void lost_strings() {
    for (int i = 0; i < 3; i++) global_pointer = new std::string(200, 'x');
    global_pointer = nullptr;
}

/* ---- threads ---- */

static sem_t ready;
static void sleep_for_ever() {
    for (;;) pause();
}

APART static void *kept_on_stack() { return malloc(44); }
static void *stack_thread(void *) {
    void *volatile mine = kept_on_stack();
    sem_post(&ready);
    sleep_for_ever();
    return mine;
}

APART static void *kept_in_register() { return malloc(55); }
static void *register_thread(void *) {
    void *mine = kept_in_register();
    forget();
    sem_post(&ready);
    forget();
    /* Nothing but r15 has it, and this loop never ends. */
    asm volatile("mov %0, %%r15\n\t"
                 "xor %0, %0\n"
                 "1: mov $34, %%eax\n\t" /* pause */
                 "syscall\n\t"
                 "jmp 1b"
                 : "+b"(mine) :: "rax", "rcx", "r11", "r15", "memory");
    return mine;
}

static void start(void *(*routine)(void *)) {
    pthread_t thread;
    pthread_create(&thread, nullptr, routine, nullptr);
    pthread_detach(thread);
    while (sem_wait(&ready) != 0) {}
}
static void stacks() { start(stack_thread); }
static void registers() { start(register_thread); }

static thread_local void *volatile local_pointer;
APART static void kept_local() { local_pointer = malloc(66); }
static void *local_thread(void *) {
    kept_local();
    sem_post(&ready);
    sleep_for_ever();
    return nullptr;
}
static void locals() {
    kept_local();
    start(local_thread);
}

static pthread_key_t keys[40];
APART static void kept_specific() {
    for (auto &key : keys) pthread_key_create(&key, nullptr);
    /* In the descriptor itself, and in a table of its own. */
    pthread_setspecific(keys[2], malloc(88));
    pthread_setspecific(keys[39], malloc(89));
}

/* What a thread that was joined had on its stack is lost with it. */
APART static void *lost_with_thread() { return malloc(99); }
static void *short_thread(void *) {
    void *volatile mine[200];
    for (auto &place : mine) place = nullptr;
    mine[3] = lost_with_thread();
    return nullptr;
}
static void joined() {
    pthread_t thread;
    pthread_create(&thread, nullptr, short_thread, nullptr);
    pthread_join(thread, nullptr);
}

/* ---- other places ---- */

APART static void kept_in_mapping() {
    void **page = (void **)mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[700] = malloc(111);
    /* Not even the mapping's address is kept. */
}

static void *library;
static void plugged(const char *path) {
    library = dlopen(path, RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(9); }
    auto keep = (void (*)())dlsym(library, "keep");
    keep();
}

/* The only pointer stands in a block that was freed. */
APART static void *lost_behind_freed() { return malloc(123); }
static void freed() {
    void **block = (void **)malloc(640);
    block[40] = lost_behind_freed();
    free(block);
    free(malloc(8));
}

APART static void *kept_by_main() { return malloc(222); }

/* From here on futex and clock_gettime kill the process, as a strict filter's
 * author may have it: the program itself needs neither any more. */
static void filter() {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) _exit(8);
}

static const char *argument;

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    argument = argc > 2 ? argv[2] : "";
    void *volatile mine = nullptr;
    sem_init(&ready, 0, 0);
    auto is = [&](const char *name) { return strcmp(what, name) == 0; };
    if (is("single")) single();
    else if (is("list")) list();
    else if (is("tree")) tree();
    else if (is("ring")) lost_ring();
    else if (is("headed_ring")) headed_ring();
    else if (is("kinds")) lost_kinds();
    else if (is("middle")) middle();
    else if (is("lost_middle")) lost_middle();
    else if (is("prefixes")) prefixes();
    else if (is("bases")) bases();
    else if (is("words")) words();
    else if (is("strings")) lost_strings();
    else if (is("stacks")) stacks();
    else if (is("registers")) registers();
    else if (is("locals")) locals();
    else if (is("specific")) kept_specific();
    else if (is("joined")) joined();
    else if (is("mapping")) kept_in_mapping();
    else if (is("plugged")) plugged(argument);
    else if (is("unplugged")) { plugged(argument); dlclose(library); }
    else if (is("freed")) freed();
    else if (is("exit")) { mine = kept_by_main(); forget(); exit(7); }
    else if (is("quick")) { lost_single(); forget(); quick_exit(4); }
    else if (is("at_once")) { lost_single(); _exit(5); }
    else if (is("crowd")) {
        /* Threads in system calls of several kinds, one in a loop, and one that
         * allocates all the time. */
        for (int i = 0; i < 3; i++) start(stack_thread);
        start([](void *) -> void * {
            sem_post(&ready);
            for (volatile unsigned long i = 0;; i++) {}
        });
        start([](void *) -> void * {
            sem_post(&ready);
            for (;;) free(malloc(100));
        });
        lost_single();
    }
    else if (is("filtered")) {
        lost_single();
        filter();
    }
    else if (is("killed")) { lost_single(); kill(getpid(), 9); }
    forget();
    return mine == nullptr ? 0 : 1;
}
