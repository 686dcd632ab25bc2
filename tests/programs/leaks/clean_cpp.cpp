// C++ programs that leak nothing, one a scenario.
#include "corpus.h"

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static const int STEPS = 1500;
static const char *const TEXT = "a text that is too long for the small string";

static void shared_and_freed()
{
    std::list<std::shared_ptr<std::string>> recent;
    for (int i = 0; i < STEPS; i++) {
        recent.push_back(std::make_shared<std::string>(TEXT));
        if (recent.size() > 50)
            recent.pop_front();
        work();
    }
}

static std::map<uint32_t, std::string> bounded;

static void bounded_map()
{
    for (int i = 0; i < STEPS; i++) {
        bounded[dice(100)] = TEXT;
        work();
    }
}

static std::vector<std::string> *names;

static void reserved_once()
{
    names = new std::vector<std::string>;
    names->reserve(200);
    for (int i = 0; i < 200; i++)
        names->push_back(TEXT);
    for (int i = 0; i < STEPS; i++)
        work();
}

APART static void fail(int i)
{
    auto text = std::make_unique<std::string>(TEXT);
    if (i % 5 == 0)
        throw std::runtime_error(*text);
}

static void exceptions_freed()
{
    for (int i = 0; i < STEPS; i++) {
        try {
            fail(i);
        } catch (const std::exception &error) {
            sink = const_cast<char *>(error.what());
        }
        work();
    }
}

static void string_builder()
{
    for (int i = 0; i < STEPS / 3; i++) {
        std::string text;
        for (int k = 0; k < 20; k++)
            text += TEXT;
        sink = &text;
        work();
    }
}

static std::deque<std::string> last_lines;

static void last_lines_kept()
{
    for (int i = 0; i < STEPS; i++) {
        last_lines.push_back(TEXT);
        if (last_lines.size() > 300)
            last_lines.pop_front();
        work();
    }
}

struct Service {
    std::vector<int> numbers = std::vector<int>(1000);
};

static Service &service()
{
    static Service *only = new Service;
    return *only;
}

static void meyers_singleton()
{
    for (int i = 0; i < STEPS; i++) {
        service().numbers[static_cast<size_t>(i) % 1000]++;
        work();
    }
}

static const scenario all[] = {
    {"shared_and_freed", shared_and_freed},
    {"bounded_map", bounded_map},
    {"reserved_once", reserved_once},
    {"exceptions_freed", exceptions_freed},
    {"string_builder", string_builder},
    {"last_lines_kept", last_lines_kept},
    {"meyers_singleton", meyers_singleton},
    {nullptr, nullptr},
};

int main(int argc, char **argv)
{
    return argc > 1 ? run_scenario(all, argv[1]) : 2;
}
