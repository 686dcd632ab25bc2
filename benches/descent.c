// descent LIMIT PARSES: a recursive-descent parser over expressions whose nesting varies up to LIMIT.
//
// The stack goes up and down by a few frames between two allocations and is
// never the same for long: the usual shape of real programs, and the hard one
// for anything that remembers the last stack.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct node {
    struct node *left, *right;
    int value;
};

static unsigned random_state = 7;
static long events;
static int limit;

static unsigned next_random(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 16;
}

static struct node *make(struct node *left, struct node *right) {
    struct node *node = malloc(sizeof *node);
    node->left = left;
    node->right = right;
    node->value = 1;
    events++;
    return node;
}

__attribute__((noinline)) static struct node *sum(int depth);

__attribute__((noinline)) static struct node *atom(int depth) {
    struct node *node;
    if (depth < limit && next_random() % 100 < 62)
        node = sum(depth + 1);
    else
        node = make(NULL, NULL);
    __asm__ volatile("");
    return node;
}

__attribute__((noinline)) static struct node *product(int depth) {
    struct node *node = atom(depth);
    if (next_random() % 4 == 0) node = make(node, atom(depth));
    __asm__ volatile("");
    return node;
}

__attribute__((noinline)) static struct node *sum(int depth) {
    struct node *node = product(depth);
    if (next_random() % 3 == 0) node = make(node, product(depth));
    __asm__ volatile("");
    return node;
}

__attribute__((noinline)) static int evaluate(struct node *node) {
    if (!node) return 0;
    int value = node->value + evaluate(node->left) + evaluate(node->right);
    free(node);
    events++;
    return value;
}

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    limit = atoi(words[1]);
    long parses = atol(words[2]), total = 0;
    for (long i = 0; i < parses / 20; i++) total += evaluate(sum(0));
    events = 0;
    long long start = cpu_ns();
    for (long i = 0; i < parses; i++) total += evaluate(sum(0));
    long long spent = cpu_ns() - start;
    fprintf(stderr, "value %ld\n", total);
    printf("loop %lld %ld\n", spent, events);
    return 0;
}
