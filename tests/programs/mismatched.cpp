// new freed by free, new[] by delete, malloc by delete: each twice.
#include <cstdlib>
#include <new>

template <class T> static T *keep(T *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

int main()
{
    for (int i = 0; i < 2; i++) {
        std::free(keep(::operator new(10)));
        ::operator delete(keep(::operator new[](20)));
        ::operator delete(keep(std::malloc(30)));
    }
    return 0;
}
