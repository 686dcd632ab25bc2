/* Programs that leak, one a scenario. The line that leaks bears the scenario's
 * name: LEAK: name. */
#include "corpus.h"

#include <pthread.h>
#include <signal.h>

#define STEPS 1500

/* ---- nothing points to it ------------------------------------------------ */

APART static void one(void)
{
    sink = malloc(1234); /* LEAK: plain */
}

static void plain(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2)
            one();
        work();
    }
}

APART static void answer(void)
{
    char *text = malloc(48); /* LEAK: loop */
    text[0] = 'x';
    sink = text;
}

static void loop(void)
{
    for (int i = 0; i < STEPS; i++) {
        answer();
        work();
    }
}

APART static int parse(int bad)
{
    char *buffer = malloc(256); /* LEAK: error_path */
    buffer[0] = 1;
    sink = buffer;
    if (bad)
        return -1;
    free(buffer);
    return 0;
}

static void error_path(void)
{
    for (int i = 0; i < STEPS; i++) {
        parse(i % 9 == 0);
        work();
    }
}

APART static void join_text(void)
{
    char *text = malloc(8);
    for (int i = 1; i < 4; i++)
        text = realloc(text, 8 + 64 * (size_t)i); /* LEAK: via_realloc */
    sink = text;
}

static void via_realloc(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 3 == 0)
            join_text();
        work();
    }
}

struct user {
    char *name;
};

APART static void rename_user(struct user *user)
{
    user->name = strdup("somebody else"); /* LEAK: overwritten */
}

static void overwritten(void)
{
    struct user user = {NULL};
    for (int i = 0; i < STEPS; i++) {
        rename_user(&user);
        work();
    }
    free(user.name);
}

struct node {
    struct node *next, *other;
    int value;
};

APART static void lose_list(void)
{
    struct node *head = NULL;
    for (int i = 0; i < 5; i++) {
        struct node *node = malloc(sizeof *node); /* LEAK: list */
        node->next = head;
        node->other = NULL;
        head = node;
    }
    sink = head;
}

static void list(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 10 == 0)
            lose_list();
        work();
    }
}

APART static struct node *leaf(void)
{
    return calloc(1, sizeof(struct node)); /* LEAK: tree */
}

static void tree(void)
{
    for (int i = 0; i < STEPS; i++) {
        struct node *root = malloc(sizeof *root);
        root->next = leaf();
        root->other = leaf();
        free(root);
        work();
    }
}

APART static void ring_of_three(void)
{
    struct node *ring[3];
    for (int i = 0; i < 3; i++)
        ring[i] = malloc(sizeof(struct node)); /* LEAK: cycle */
    for (int i = 0; i < 3; i++) {
        ring[i]->next = ring[(i + 1) % 3];
        ring[i]->other = NULL;
    }
    sink = ring[0];
}

static void cycle(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 5 == 0)
            ring_of_three();
        work();
    }
}

static void *worker(void *unused)
{
    (void)unused;
    char *buffer = malloc(2048); /* LEAK: thread_exit */
    buffer[0] = 0;
    sink = buffer;
    return NULL;
}

static void thread_exit(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 50 == 0) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, worker, NULL) == 0)
                pthread_join(thread, NULL);
        }
        work();
    }
}

APART static void read_line(void)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fmemopen((void *)"a line\n", 7, "r");
    if (getline(&line, &size, file) < 0) /* LEAK: line */
        abort();
    sink = line;
    fclose(file);
}

static void line(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 10 == 0)
            read_line();
        work();
    }
}

APART static void say(int number)
{
    char *text = NULL;
    if (asprintf(&text, "message %d", number) < 0) /* LEAK: format */
        abort();
    sink = text;
}

static void format(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 4 == 0)
            say(i);
        work();
    }
}

/* A wrapper of the program's own, used all over. */
APART static void *grab(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}

APART static void *get_memory_alloc(size_t size)
{
    return grab(size);
}

APART static void user_a(void) { free(get_memory_alloc(10)); }
APART static void user_b(void) { free(get_memory_alloc(20)); }
APART static void user_c(void) { free(get_memory_alloc(30)); }

APART static void user_d(void)
{
    sink = get_memory_alloc(40); /* LEAK: wrapper */
}

static void wrapper(void)
{
    for (int i = 0; i < STEPS; i++) {
        user_a();
        user_b();
        user_c();
        user_d();
        work();
    }
}

APART static struct node *new_session(int value)
{
    struct node *node = calloc(1, sizeof *node); /* LEAK: constructor */
    node->value = value;
    return node;
}

APART static void tidy_handler(void) { free(new_session(1)); }
APART static void sloppy_handler(void) { sink = new_session(2); }

static void constructor(void)
{
    for (int i = 0; i < STEPS; i++) {
        tidy_handler();
        if (i % 4 == 0)
            sloppy_handler();
        work();
    }
}

APART static void drop(void)
{
    sink = malloc(24); /* LEAK: slow */
}

static void slow(void)
{
    for (int i = 0; i < 2 * STEPS; i++) {
        if (i % 100 == 50)
            drop();
        work();
    }
}

APART static void small(void)
{
    sink = malloc(16); /* LEAK: small_beside_big */
}

#define TABLE 500
static char *volatile big_cache[TABLE];

static void small_beside_big(void)
{
    for (int i = 0; i < STEPS; i++) {
        uint32_t at = dice(TABLE);
        if (!big_cache[at])
            big_cache[at] = malloc(20000);
        if (i % 5 == 0)
            small();
        work();
    }
}

APART static void late_one(void)
{
    sink = malloc(70); /* LEAK: late */
}

static void late(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i > STEPS / 2)
            late_one();
        work();
    }
}

APART static void burst_one(void)
{
    sink = malloc(90); /* LEAK: burst */
}

static void burst(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 80 == 40)
            for (int k = 0; k < 15; k++)
                burst_one();
        work();
    }
}

APART static void reload(void)
{
    sink = calloc(100, 640); /* LEAK: reload */
}

static void reload_config(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 60 == 0)
            reload();
        work();
    }
}

/* ---- something still points to it ---------------------------------------- */

#define BUCKETS 256
static struct node *buckets[BUCKETS];

APART static void remember(int key)
{
    struct node *node = malloc(sizeof *node); /* LEAK: map_grows */
    node->value = key;
    node->next = buckets[key % BUCKETS];
    node->other = NULL;
    buckets[key % BUCKETS] = node;
}

static void map_grows(void)
{
    for (int i = 0; i < STEPS; i++) {
        remember(i);
        work();
    }
}

static struct node *listeners;

APART static void subscribe(void)
{
    struct node *listener = malloc(sizeof *listener); /* LEAK: listener */
    listener->next = listeners;
    listener->other = NULL;
    listeners = listener;
}

static void listener(void)
{
    for (int i = 0; i < STEPS; i++) {
        char *view = malloc(300);
        if (i % 3 == 0)
            subscribe();
        work();
        free(view);
    }
}

static char **answers;
static size_t answer_count;

APART static void memoize(int number)
{
    if ((answer_count & (answer_count - 1)) == 0)
        answers = realloc(answers, 2 * (answer_count + 1) * sizeof *answers);
    char *text = malloc(40); /* LEAK: cache_without_bound */
    snprintf(text, 40, "answer %d", number);
    answers[answer_count++] = text;
}

static void cache_without_bound(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (dice(3) == 0)
            memoize(i);
        work();
    }
}

static char *journal;
static size_t journal_size;

APART static void append(const char *text)
{
    size_t more = strlen(text);
    journal = realloc(journal, journal_size + more + 1); /* LEAK: journal */
    memcpy(journal + journal_size, text, more + 1);
    journal_size += more;
}

static void journal_grows(void)
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 2)
            append("something happened that nobody will ever read; ");
        work();
    }
}

static struct node *waiting, *waiting_end;

APART static void enqueue(void)
{
    struct node *node = calloc(1, sizeof *node); /* LEAK: queue */
    if (waiting_end)
        waiting_end->next = node;
    else
        waiting = node;
    waiting_end = node;
}

APART static void dequeue(void)
{
    struct node *node = waiting;
    if (!node)
        return;
    waiting = node->next;
    if (!waiting)
        waiting_end = NULL;
    free(node);
}

static void queue(void)
{
    for (int i = 0; i < STEPS; i++) {
        enqueue();
        enqueue();
        dequeue();
        work();
    }
}

static struct node *registry;

APART static void enroll(void)
{
    struct node *node = calloc(1, sizeof *node); /* LEAK: freed_at_the_end */
    node->next = registry;
    registry = node;
}

static void close_registry(void)
{
    while (registry) {
        struct node *next = registry->next;
        free(registry);
        registry = next;
    }
}

static void freed_at_the_end(void)
{
    atexit(close_registry);
    for (int i = 0; i < STEPS; i++) {
        enroll();
        work();
    }
}

APART static void keep_half(void)
{
    sink = malloc(64); /* LEAK: killed */
}

static void killed(void)
{
    for (int i = 0; i < STEPS; i++) {
        keep_half();
        work();
    }
    fflush(NULL);
    raise(SIGKILL);
}

/* Most are given back soon; every twentieth is forgotten in a list. */
static struct node *forgotten;

APART static void lend(int i)
{
    struct node *node = calloc(1, sizeof *node); /* LEAK: some_stay */
    if (i % 20 == 0) {
        node->next = forgotten;
        forgotten = node;
    } else {
        free(node);
    }
}

static void some_stay(void)
{
    for (int i = 0; i < STEPS; i++) {
        lend(i);
        lend(i + 7);
        work();
    }
}

static const struct scenario all[] = {
    {"plain", plain},
    {"loop", loop},
    {"error_path", error_path},
    {"via_realloc", via_realloc},
    {"overwritten", overwritten},
    {"list", list},
    {"tree", tree},
    {"cycle", cycle},
    {"thread_exit", thread_exit},
    {"line", line},
    {"format", format},
    {"wrapper", wrapper},
    {"constructor", constructor},
    {"slow", slow},
    {"small_beside_big", small_beside_big},
    {"late", late},
    {"burst", burst},
    {"reload", reload_config},
    {"map_grows", map_grows},
    {"listener", listener},
    {"cache_without_bound", cache_without_bound},
    {"journal", journal_grows},
    {"queue", queue},
    {"freed_at_the_end", freed_at_the_end},
    {"killed", killed},
    {"some_stay", some_stay},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return argc > 1 ? run_scenario(all, argv[1]) : 2;
}
