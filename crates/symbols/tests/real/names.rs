//! Names of C++ and Rust, out of DWARF and out of symbol tables.

use highwater_symbols::Options;

use crate::support::{Program, only, summary};

const CPP: &str = r#"extern "C" void where();
namespace space {
template <typename T, int N> struct Widget {
  T items[N];
  __attribute__((noinline)) T grow(T by) {
    where();
    return by + items[0];
  }
  inline __attribute__((always_inline)) int deep() {
    where();
    return N;
  }
};
}
__attribute__((noinline)) int twice(space::Widget<long, 3> &w) {
  auto lambda = [&](int x) __attribute__((noinline)) {
    where();
    return x + 1;
  };
  int sum = w.deep();
  return sum + lambda(sum);
}
int main(int argc, char **argv) {
  space::Widget<long, 3> w{};
  long a = w.grow(argc);
  return twice(w) + a == 0;
}
"#;

#[test]
fn cpp() {
    let program = Program::new("g++", "program.cc", CPP, &["-O2", "-g"]);
    let frames = program.frames(Options::default());
    let source = program.path("program.cc");
    let source = source.to_str().unwrap();
    assert_eq!(summary(&frames[0]), [("space::Widget<long, 3>::grow(long)", source, 6, false)]);
    let deep = [
        ("space::Widget<long, 3>::deep()", source, 10, true),
        ("twice(space::Widget<long, 3>&)", source, 20, false),
    ];
    assert_eq!(summary(&frames[1]), deep);
    // GCC's DWARF calls it `operator()`; the symbol table knows better.
    let lambda = "twice(space::Widget<long, 3>&)::{lambda(int)#1}::operator()(int) const";
    assert_eq!(summary(&frames[2]), [(lambda, source, 17, false)]);
    assert_eq!(frames[0][0].raw_name.as_deref(), Some("_ZN5space6WidgetIlLi3EE4growEl"));

    // Out of the symbol table alone.
    program.objcopy(&["--strip-debug"], None);
    let frames = program.frames(only(&[]));
    assert_eq!(frames[0][0].function.as_deref(), Some("space::Widget<long, 3>::grow(long)"));
    let raw = program.frames(Options { demangle: false, ..only(&[]) });
    assert_eq!(raw[0][0].function.as_deref(), Some("_ZN5space6WidgetIlLi3EE4growEl"));
}

const RUST: &str = r#"unsafe extern "C" {
    safe fn r#where();
}
mod inside {
    pub struct Tree<T>(pub T);
    impl<T: Copy> Tree<T> {
        #[inline(never)]
        pub fn grow(&self) -> T {
            super::r#where();
            std::hint::black_box(self.0)
        }
        #[inline(always)]
        pub fn inlined(&self) -> T {
            super::r#where();
            self.0
        }
    }
}
#[inline(never)]
fn outer(tree: &inside::Tree<u64>) -> u64 {
    let sum = tree.inlined();
    sum + tree.grow()
}
fn main() {
    assert_eq!(outer(&inside::Tree(21)), 42);
}
"#;

#[test]
fn rust_legacy_and_v0() {
    for (scheme, inlined, grow) in [
        ("legacy", "program::inside::Tree<T>::inlined", "program::inside::Tree<T>::grow"),
        ("v0", "<program::inside::Tree<u64>>::inlined", "<program::inside::Tree<u64>>::grow"),
    ] {
        let scheme = format!("symbol-mangling-version={scheme}");
        let args = ["--edition=2024", "-O", "-g", "-C", &scheme, "-Z", "unstable-options"];
        let program = Program::new("rustc", "program.rs", RUST, &args);
        let (mut symbols, module) = program.symbolizer(Options::default(), &[]);
        let first = symbols.frames(module, program.calls[0].1, true);
        let second = symbols.frames(module, program.calls[1].1, true);
        let source = program.path("program.rs");
        let source = source.to_str().unwrap();
        assert_eq!(
            summary(&first),
            [(inlined, source, 14, true), ("program::outer", source, 21, false)],
            "{scheme}"
        );
        assert_eq!(summary(&second), [(grow, source, 9, false)], "{scheme}");
    }
}

#[test]
fn rust_in_a_dwarf_5_package() {
    let args = ["--edition=2024", "-O", "-g", "-C", "split-debuginfo=packed", "-C", "dwarf-version=5"];
    let program = Program::new("rustc", "program.rs", RUST, &args);
    assert!(program.path("program.dwp").exists());
    let source = program.path("program.rs");
    let frames = program.frames(Options::default());
    assert_eq!(frames[0].len(), 2);
    assert_eq!((frames[0][0].line, frames[0][0].inlined), (Some(14), true));
    assert_eq!((frames[0][1].line, frames[0][1].file.as_deref()), (Some(21), source.to_str()));
}
