// C++ programs that leak, one a scenario. The line that leaks bears the
// scenario's name: LEAK: name.
#include "corpus.h"

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

static const int STEPS = 1500;

struct Shape {
    int corners = 3;
    char name[40];
};

APART static void fill(std::vector<Shape *> &shapes)
{
    for (int i = 0; i < 4; i++)
        shapes.push_back(new Shape); // LEAK: container_of_pointers
}

static void container_of_pointers()
{
    for (int i = 0; i < STEPS; i++) {
        std::vector<Shape *> shapes;
        if (i % 8 == 0)
            fill(shapes);
        work();
    }
}

APART static void risky(int i)
{
    auto *shape = new Shape; // LEAK: exception
    sink = shape;
    if (i % 7 == 0)
        throw std::runtime_error("no shape");
    delete shape;
}

static void exception()
{
    for (int i = 0; i < STEPS; i++) {
        try {
            risky(i);
        } catch (const std::exception &) {
        }
        work();
    }
}

struct Peer {
    std::shared_ptr<Peer> other;
    char data[64];
};

APART static void pair_up()
{
    auto a = std::make_shared<Peer>(); // LEAK: shared_cycle
    auto b = std::make_shared<Peer>(); // LEAK: shared_cycle
    a->other = b;
    b->other = a;
}

static void shared_cycle()
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 4 == 0)
            pair_up();
        work();
    }
}

static std::unordered_map<int, std::string> *known;

APART static void learn(int key)
{
    (*known)[key] = "a text that is too long for the small string"; // LEAK: hash_map_grows
}

static void hash_map_grows()
{
    known = new std::unordered_map<int, std::string>;
    for (int i = 0; i < STEPS; i++) {
        learn(i);
        work();
    }
}

struct Base {
    int number = 0;
};
struct Derived : Base {
    std::string text;
    explicit Derived(const char *t) : text(t) {} // LEAK: no_virtual_destructor
};

APART static Base *make()
{
    return new Derived("a text that is too long for the small string"); // LEAK: no_virtual_destructor
}

static void no_virtual_destructor()
{
    for (int i = 0; i < STEPS; i++) {
        // As sloppy code does it: the string inside is never destroyed.
        ::operator delete(static_cast<void *>(make()));
        work();
    }
}

APART static void numbers()
{
    sink = new int[100]; // LEAK: array
}

static void array()
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 6 == 0)
            numbers();
        work();
    }
}

static std::vector<std::function<int()>> *callbacks;

APART static void on_event(int i)
{
    std::string text = "a text that is too long for the small string";
    auto callback = [text, i] { return i + static_cast<int>(text.size()); }; // LEAK: callbacks
    callbacks->push_back(callback); // LEAK: callbacks
}

static void callbacks_grow()
{
    callbacks = new std::vector<std::function<int()>>;
    callbacks->reserve(4096);
    for (int i = 0; i < STEPS; i++) {
        if (i % 2 == 0)
            on_event(i);
        work();
    }
}

APART static void let_go()
{
    auto shape = std::make_unique<Shape>(); // LEAK: released
    sink = shape.release();
}

static void released()
{
    for (int i = 0; i < STEPS; i++) {
        if (i % 3 == 0)
            let_go();
        work();
    }
}

// Destroyed when the program ends: no leak checker sees it.
static std::map<int, Shape> seen;

APART static void see(int i)
{
    seen[i]; // LEAK: global_map
}

static void global_map()
{
    for (int i = 0; i < STEPS; i++) {
        see(i);
        work();
    }
}

static const scenario all[] = {
    {"container_of_pointers", container_of_pointers},
    {"exception", exception},
    {"shared_cycle", shared_cycle},
    {"hash_map_grows", hash_map_grows},
    {"no_virtual_destructor", no_virtual_destructor},
    {"array", array},
    {"callbacks", callbacks_grow},
    {"released", released},
    {"global_map", global_map},
    {nullptr, nullptr},
};

int main(int argc, char **argv)
{
    return argc > 1 ? run_scenario(all, argv[1]) : 2;
}
