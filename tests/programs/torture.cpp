// Stacks that look alike and are not: everything that could make a cache of
// stacks answer with an old one. Run with `highwater run --validate`, which walks
// each stack a second time without the cache and aborts on a difference.
//
// torture ROUNDS

#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

static unsigned next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

NOINLINE static void work(unsigned size) {
    void *volatile block = malloc(16 + size % 200);
    free(block);
}

// The same innermost return address and stack pointer, reached through a big
// caller with a small alloca or a small caller with a big one: the old outer
// return slot then lies, untouched, inside the dead area.
NOINLINE static void inner(unsigned size, unsigned r) {
    volatile char *area = (volatile char *)alloca(size);
    area[0] = (char)r;
    work(r);
    area[0] = 1;
}
NOINLINE static void small_caller(unsigned r) { inner(512 + 16, r); __asm__ volatile(""); }
NOINLINE static void big_caller(unsigned r) {
    volatile char pad[512];
    pad[r % 512] = 1;
    inner(16, r);
    pad[0] = 2;
}
NOINLINE static void third_caller(unsigned r) {
    volatile char pad[256];
    pad[r % 256] = 1;
    inner(256 + 16, r);
    pad[0] = 2;
}

NOINLINE static void deep(unsigned depth, unsigned *state) {
    if (depth == 0) {
        for (unsigned i = next_random(state) % 4; i < 4; i++) work(next_random(state));
        return;
    }
    if (next_random(state) % 3 == 0) work(depth);
    deep(depth - 1, state);
    if (next_random(state) % 3 == 0) work(depth);
}

NOINLINE static void throws(unsigned depth, unsigned r) {
    std::string local(40 + r % 50, 'x');
    if (depth == 0) throw std::runtime_error(local);
    throws(depth - 1, r);
    work(r);
}

static thread_local jmp_buf back;
NOINLINE static void jumps(unsigned depth, unsigned r) {
    work(r);
    if (depth == 0) longjmp(back, 1);
    jumps(depth - 1, r);
    work(r);
}

static int compare(const void *a, const void *b) {
    work(*(const unsigned *)a);
    return (*(const unsigned *)a > *(const unsigned *)b) - (*(const unsigned *)a < *(const unsigned *)b);
}

// Coroutines: a few stacks that are used in turns, from whichever thread comes.
struct Coroutine {
    ucontext_t self, caller;
    std::vector<char> stack;
    unsigned state;
    bool done;
};
static void coroutine_body(unsigned low, unsigned high) {
    Coroutine *c = (Coroutine *)((unsigned long)low | (unsigned long)high << 32);
    for (int i = 0; i < 8; i++) {
        deep(next_random(&c->state) % 12, &c->state);
        swapcontext(&c->self, &c->caller);
    }
    c->done = true;
    swapcontext(&c->self, &c->caller);
}
static void start(Coroutine *c, unsigned seed) {
    c->stack.assign(64 << 10, 0);
    c->state = seed;
    c->done = false;
    getcontext(&c->self);
    c->self.uc_stack.ss_sp = c->stack.data();
    c->self.uc_stack.ss_size = c->stack.size();
    c->self.uc_link = nullptr;
    unsigned long at = (unsigned long)c;
    makecontext(&c->self, (void (*)())coroutine_body, 2, (unsigned)at, (unsigned)(at >> 32));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Coroutine *pool[4];

// A handler that allocates must not interrupt malloc itself: the signals are
// raised, so they come between two operations, at any depth.
static void handler(int) { unsigned state = 7; deep(3, &state); }

static void *run(void *argument) {
    unsigned state = (unsigned)(unsigned long)argument * 2654435761u;
    unsigned rounds = (unsigned)((unsigned long)argument >> 32);
    std::vector<char> alternate(SIGSTKSZ + (64 << 10));
    stack_t other = {};
    other.ss_sp = alternate.data();
    other.ss_size = alternate.size();
    sigaltstack(&other, nullptr);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned r = next_random(&state);
        switch (r % 12) {
        case 0: small_caller(r); break;
        case 1: big_caller(r); break;
        case 2: third_caller(r); break;
        case 3: deep(r / 12 % 40, &state); break;
        case 4:
            try { throws(r / 12 % 10, r); } catch (std::exception &e) { work((unsigned)strlen(e.what())); }
            break;
        case 5:
            if (setjmp(back) == 0) jumps(r / 12 % 20, r);
            break;
        case 6: {
            unsigned numbers[16];
            for (auto &n : numbers) n = next_random(&state);
            qsort(numbers, 16, sizeof numbers[0], compare);
            break;
        }
        case 7: raise(SIGUSR1); break;
        case 8: raise(SIGUSR2); break;
        case 9: case 10: {
            // Take a coroutine that perhaps another thread ran last.
            pthread_mutex_lock(&lock);
            unsigned which = r / 12 % 4;
            Coroutine *c = pool[which];
            pool[which] = nullptr;
            pthread_mutex_unlock(&lock);
            if (c == nullptr || c->done) {
                delete c;
                c = new Coroutine;
                start(c, r);
            }
            swapcontext(&c->caller, &c->self);
            pthread_mutex_lock(&lock);
            Coroutine *old = pool[which];
            pool[which] = c;
            pthread_mutex_unlock(&lock);
            delete old;
            break;
        }
        case 11:
            if (r % 97 == 0) {
                pid_t child = vfork();
                if (child == 0) _exit(0);
                waitpid(child, nullptr, 0);
            }
            std::vector<std::string> list;
            for (unsigned k = 0; k < r / 12 % 8; k++) list.push_back(std::string(k * 9, 'y'));
            break;
        }
    }
    other.ss_flags = SS_DISABLE;
    sigaltstack(&other, nullptr);
    return nullptr;
}

int main(int, char **argv) {
    unsigned long rounds = strtoul(argv[1], nullptr, 10);
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, nullptr);
    pthread_t threads[3];
    for (unsigned long i = 0; i < 3; i++) pthread_create(&threads[i], nullptr, run, (void *)(rounds << 32 | (i + 1)));
    for (auto thread : threads) pthread_join(thread, nullptr);
    for (auto c : pool) delete c;
    puts("done");
}
