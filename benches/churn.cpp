// churn OPERATIONS: maps and strings of the C++ library, built up and torn down.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

static unsigned random_state = 11;

static unsigned next_random() {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 12;
}

static long long cpu_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

using Table = std::map<std::string, std::vector<std::string>>;

[[gnu::noinline]] static std::size_t operate(Table &table, long i) {
    std::string key = "a key that is longer than the short-string buffer " + std::to_string(next_random() % 5000);
    switch (i % 4) {
    case 0:
    case 1: {
        auto &list = table[key];
        if (list.size() < 8) list.push_back(key + " and a value");
        return list.size();
    }
    case 2: {
        auto found = table.find(key);
        return found == table.end() ? 0 : found->second.size();
    }
    default: return table.erase(key);
    }
}

[[gnu::noinline]] static std::size_t run(Table &table, long operations) {
    std::size_t sum = 0;
    for (long i = 0; i < operations; i++) sum += operate(table, i);
    return sum;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    long operations = std::atol(words[1]);
    Table table;
    std::size_t sum = run(table, operations / 10);
    long long start = cpu_ns();
    sum += run(table, operations);
    long long spent = cpu_ns() - start;
    std::fprintf(stderr, "sum %zu\n", sum);
    // The number of events is the recorder's to say: it depends on the library.
    std::printf("loop %lld 0\n", spent);
}
