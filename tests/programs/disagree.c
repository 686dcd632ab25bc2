// What the tools that highwater follows disagree about: one mode for each.
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile held[4096];
static int n;

static void keeps(void) { held[n++] = malloc(1000); }
static void loses(void) { void *volatile p = malloc(2000); p = NULL; }
static void grows(void) {
  for (int i = 0; i < 2000; i++) {
    held[n++] = malloc(64);
    if (i % 20 == 0) usleep(200);
  }
}
static char *origin(void) { return malloc(100); }
static char *moves(char *p) { return realloc(p, 5000); }

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "leaks") == 0) {
    keeps();
    for (int i = 0; i < 3; i++) loses();
    grows();
  } else if (strcmp(mode, "realloc") == 0) {
    char *p = moves(origin());
    volatile size_t much = (size_t)1 << 62;
    void *q = realloc(p, much);
    printf("%s\n", q == NULL && errno == ENOMEM && p[0] == 0 ? "failed" : "made");
    free(p);
  } else if (strcmp(mode, "zero") == 0) {
    void *p = malloc(0), *q = malloc(0), *r = calloc(0, 8);
    printf("%d %d %d %zu\n", p != NULL, p != q, r != NULL, malloc_usable_size(p));
    free(p); free(q); free(r);
  } else if (strcmp(mode, "locale") == 0) {
    printf("%s %.2f\n", setlocale(LC_ALL, NULL), 1234.5);
  } else if (strcmp(mode, "usable") == 0) {
    for (size_t size = 1; size < 5000; size = size * 3 + 1) {
      void *p = malloc(size);
      printf("%zu %zu %zu\n", size, malloc_usable_size(p), (size_t)p % 16);
      held[n++] = p;
    }
  } else if (strcmp(mode, "size") == 0) {
    held[n++] = malloc(1535);
  }
  return 0;
}
