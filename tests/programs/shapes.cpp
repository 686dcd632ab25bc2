// Stacks of every shape that C and C++ make; argv[1] says which.
// Each allocates enough to be compared frame by frame with another unwinder.
#include <alloca.h>
#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline))

static volatile int always = 1;
static void *volatile last;

// A frame that is really there: no tail call, no inlining.
NOINLINE static void leaf(size_t size)
{
    void *p = malloc(size);
    last = p;
    free(p);
    __asm__ volatile("" ::: "memory");
}

NOINLINE static int nest(int depth, size_t size)
{
    int result = depth == 0 ? (leaf(size), 0) : nest(depth - 1, size) + 1;
    __asm__ volatile("" : "+r"(result));
    return result;
}

NOINLINE static void with_alloca(int bytes, size_t size)
{
    char *p = static_cast<char *>(alloca(static_cast<size_t>(bytes)));
    memset(p, 1, static_cast<size_t>(bytes));
    last = p;
    leaf(size);
    char array[bytes + 1]; // a variable array on top
    array[bytes] = p[0];
    last = array;
    leaf(size + 1);
}

struct alignas(128) Aligned {
    char bytes[128];
};

// Forces the frame to be realigned: the CFA is found through another register.
NOINLINE static void realigned(size_t size)
{
    Aligned local;
    memset(&local, 2, sizeof local);
    last = &local;
    leaf(size);
}

struct Loud {
    ~Loud() { leaf(77); } // allocates while the stack unwinds
};

NOINLINE static void thrower(int depth)
{
    Loud loud;
    std::string text(static_cast<size_t>(20 + depth), 'x');
    if (depth == 0)
        throw std::runtime_error(text);
    thrower(depth - 1);
    last = &text;
}

static int compare(const void *a, const void *b)
{
    leaf(33);
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

static void handler(int number)
{
    nest(number % 7, 44);
}

static jmp_buf back;

NOINLINE static void jump(int depth)
{
    leaf(55);
    if (depth == 0)
        longjmp(back, 1);
    jump(depth - 1);
    always = 1; // no tail call
}

static ucontext_t main_context, co_context[2];

static void coroutine(int me)
{
    for (int i = 0; i < 50; i++) {
        nest(3 + i % 5, 66);
        swapcontext(&co_context[me], i % 3 == 0 ? &main_context : &co_context[1 - me]);
    }
}

static void *in_thread(void *argument)
{
    for (int i = 0; i < 200; i++)
        nest(i % 20, 88);
    return argument;
}

struct Base {
    virtual ~Base() = default;
    virtual void act(int depth) = 0;
};
struct Derived : Base {
    std::vector<std::string> names;
    void act(int depth) override
    {
        names.emplace_back(static_cast<size_t>(depth) * 10 + 30, 'n');
        if (depth)
            act(depth - 1);
    }
};

static void exceptions()
{
    for (int i = 0; i < 50; i++)
        try {
            thrower(i % 10);
        } catch (const std::exception &error) {
            leaf(strlen(error.what()));
            try {
                throw std::string(error.what());
            } catch (std::string &text) {
                last = &text;
            }
        }
}

static void library()
{
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 300; i++)
        map["a rather long key, so that it is on the heap " + std::to_string(i % 50)].push_back(i);
    std::vector<std::unique_ptr<Base>> all;
    for (int i = 0; i < 20; i++) {
        all.emplace_back(new Derived);
        all.back()->act(i % 7);
    }
    std::vector<int> numbers(1000);
    std::stable_sort(numbers.begin(), numbers.end(), [](int a, int b) {
        if ((a ^ b) == 1)
            leaf(22);
        return a < b;
    });
}

int main(int argc, char **argv)
{
    std::string what = argc > 1 ? argv[1] : "";
    if (what == "plain")
        for (int i = 0; i < 300; i++)
            nest(i % 40, static_cast<size_t>(10 + i));
    else if (what == "deep") {
        nest(10010, 4321);
        nest(10010, 4322);
        nest(5000, 4323);
    } else if (what == "alloca")
        for (int i = 0; i < 100; i++) {
            with_alloca(i * 37 + 1, static_cast<size_t>(i));
            realigned(static_cast<size_t>(i));
        }
    else if (what == "exceptions")
        exceptions();
    else if (what == "qsort") {
        std::vector<int> numbers;
        for (int i = 0; i < 200; i++)
            numbers.push_back((i * 7919) % 1000);
        qsort(numbers.data(), numbers.size(), sizeof(int), compare);
        std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return leaf(34), a > b; });
    } else if (what == "signals") {
        struct sigaction action = {};
        action.sa_handler = handler;
        sigaction(SIGUSR1, &action, nullptr);
        stack_t stack = {};
        stack.ss_size = 256 * 1024;
        stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sigaltstack(&stack, nullptr);
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR2, &action, nullptr);
        for (int i = 0; i < 100; i++) {
            raise(SIGUSR1);
            raise(SIGUSR2);
        }
    } else if (what == "longjmp")
        for (volatile int i = 0; i < 100; i = i + 1) {
            if (setjmp(back) == 0)
                jump(i % 9);
            leaf(56);
        }
    else if (what == "coroutines") {
        for (int i = 0; i < 2; i++) {
            getcontext(&co_context[i]);
            co_context[i].uc_stack.ss_size = 256 * 1024;
            co_context[i].uc_stack.ss_sp =
                mmap(nullptr, 256 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            co_context[i].uc_link = &main_context;
            makecontext(&co_context[i], reinterpret_cast<void (*)()>(coroutine), 1, i);
        }
        for (int i = 0; i < 20; i++) {
            swapcontext(&main_context, &co_context[i % 2]);
            nest(2, 67);
        }
    } else if (what == "threads") {
        pthread_t threads[4];
        for (auto &thread : threads)
            if (pthread_create(&thread, nullptr, in_thread, nullptr))
                return 3;
        for (auto &thread : threads)
            pthread_join(thread, nullptr);
    } else if (what == "library")
        library();
    else
        return 2;
    return always - 1;
}
