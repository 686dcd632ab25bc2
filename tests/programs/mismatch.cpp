// Gives back with free() what came from new, and goes on.
#include <cstdio>
#include <cstdlib>

int main() {
  int *volatile p = new int(7);
  std::free(p);
  std::puts("went on");
  return 3;
}
