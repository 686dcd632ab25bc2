// All forms of operator new and delete, each a known number of times.
// argv[1]: the counts; argv[2] "nothing": do nothing (the runtime's own blocks).
#include "known.h"
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

void must(bool condition, int code)
{
    if (!condition)
        _exit(code);
}

const std::align_val_t kAlign{128};
const std::nothrow_t &kNo = std::nothrow;

void *made(void *p, size_t size)
{
    must(p != nullptr, 3);
    known_alloc(size);
    return keep(p);
}

int handler_calls = 0;

void handler()
{
    // The second call gives up, so that new throws.
    if (++handler_calls == 2)
        std::set_new_handler(nullptr);
}

struct Throws {
    char bytes[48];
    __attribute__((noinline)) Throws() { throw 42; }
};

struct alignas(256) Wide {
    char bytes[512];
};

void each_form()
{
    // new
    void *p = made(::operator new(11), 11);
    known_free(11), ::operator delete(p);
    p = made(::operator new(12), 12);
    known_free(12), ::operator delete(p, std::size_t(12));
    p = made(::operator new(13, kNo), 13);
    known_free(13), ::operator delete(p, kNo);
    p = made(::operator new(256, kAlign), 256);
    known_free(256), ::operator delete(p, kAlign);
    p = made(::operator new(384, kAlign), 384);
    known_free(384), ::operator delete(p, std::size_t(384), kAlign);
    p = made(::operator new(512, kAlign, kNo), 512);
    known_free(512), ::operator delete(p, kAlign, kNo);
    // new[]
    p = made(::operator new[](21), 21);
    known_free(21), ::operator delete[](p);
    p = made(::operator new[](22), 22);
    known_free(22), ::operator delete[](p, std::size_t(22));
    p = made(::operator new[](23, kNo), 23);
    known_free(23), ::operator delete[](p, kNo);
    p = made(::operator new[](640, kAlign), 640);
    known_free(640), ::operator delete[](p, kAlign);
    p = made(::operator new[](768, kAlign), 768);
    known_free(768), ::operator delete[](p, std::size_t(768), kAlign);
    p = made(::operator new[](896, kAlign, kNo), 896);
    known_free(896), ::operator delete[](p, kAlign, kNo);
    // Nothing.
    p = made(::operator new(0), 0);
    known_free(0), ::operator delete(p);
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    must(argc > 1, 2);
    if (argc > 2 && std::strcmp(argv[2], "nothing") == 0) {
        known_write(argv[1]);
        return 0;
    }

    for (int i = 0; i < 100; i++)
        each_form();

    // Expressions, not calls: the compiler chooses the form.
    int *numbers = new int[250];
    known_alloc(1000);
    keep(numbers);
    Wide *wide = new Wide;
    known_alloc(sizeof(Wide));
    must(reinterpret_cast<size_t>(keep(wide)) % 256 == 0, 4);
    known_free(sizeof(Wide));
    delete wide;
    known_free(1000);
    delete[] numbers;

    // A constructor that throws: the block is given back by the runtime.
    try {
        known_alloc(sizeof(Throws));
        known_free(sizeof(Throws));
        keep(new Throws);
        must(false, 5);
    } catch (int value) {
        must(value == 42, 6);
    }

    // Out of memory: nothrow returns null, the other throws, the handler is asked first.
    volatile size_t huge = size_t(-1) / 4;
    must(::operator new(huge, kNo) == nullptr, 7);
    must(::operator new[](huge, kAlign, kNo) == nullptr, 8);
    std::set_new_handler(handler);
    // The exception object is the runtime's own block: made and given back here.
    for (int round = 0; round < 3; round++) {
        bool caught = false;
        try {
            keep(::operator new(huge));
        } catch (const std::bad_alloc &) {
            caught = true;
        }
        must(caught, 9);
    }
    must(handler_calls == 2, 10);

    // After the failure everything still works and is still seen.
    for (int i = 0; i < 10; i++) {
        keep(new char[100]);
        known_alloc(100); // these ten survive
    }
    known_write(argv[1]);
    return 0;
}
