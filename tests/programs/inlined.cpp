// An allocation inside of two inlined functions, at known lines.
#include <cstdlib>

static void *volatile last;

__attribute__((always_inline)) inline void *innermost(size_t size)
{
    return std::malloc(size); // INNERMOST
}

__attribute__((always_inline)) inline void middle(size_t size)
{
    last = innermost(size); // MIDDLE
}

__attribute__((noinline)) static void outer(size_t size)
{
    middle(size); // OUTER
}

int main()
{
    outer(1234);
    return 0;
}
