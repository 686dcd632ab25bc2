//! Where a site is, as other programs want it: a path relative to a folder.

use std::path::Path;

use highwater_query::stack::function_name;
use highwater_query::{Frame, Stack};

/// The file relative to `base` where it lies below it, else as it is.
pub fn relative<'a>(file: &'a str, base: &Path) -> &'a str {
    let below = Path::new(file).strip_prefix(base).ok().and_then(Path::to_str);
    below.filter(|below| !below.is_empty()).unwrap_or(file)
}

/// The last word of a path, for module names.
pub fn module(frame: &Frame) -> &str {
    frame.module.rsplit('/').next().unwrap_or(&frame.module)
}

/// `function (file:line)`, without colours or limits.
pub fn line(frame: &Frame, base: &Path) -> String {
    let name = function_name(frame);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{name} ({}:{line})", relative(file, base)),
        (Some(file), None) => format!("{name} ({})", relative(file, base)),
        (None, _) if frame.module.is_empty() => name,
        (None, _) => format!("{name} ({})", module(frame)),
    }
}

/// The frames of a stack from the one to blame outwards, a line each.
pub fn callers(stack: &Stack, base: &Path) -> String {
    let lines: Vec<String> = stack.frames.iter().skip(stack.site).map(|frame| line(frame, base)).collect();
    lines.join("\n")
}

/// `300 bytes in 1 block`.
pub fn amount(bytes: u64, blocks: u64) -> String {
    let word = |n: u64, one: &'static str, many: &'static str| if n == 1 { one } else { many };
    format!("{bytes} {} in {blocks} {}", word(bytes, "byte", "bytes"), word(blocks, "block", "blocks"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use highwater_query::Group;
    use highwater_query::leaks::report;
    use highwater_query::leaks::suppressions::Suppressions;
    use highwater_query::session::made::Made;

    /// Two leaks: one below /src with names that need escapes, one elsewhere.
    pub(crate) fn groups() -> Vec<Group> {
        let mut session = Made::default()
            .node(1, 0, "main", "/src/app/main.c", 3)
            .node(2, 1, "T<a&b>::\"f\"", "/src/a dir/50%,x.cc", 70)
            .node(3, 0, "other", "/usr/include/b.h", 9)
            .alloc(0, 0x10, 100, 2)
            .alloc(0, 0x400, 200, 2)
            .alloc(0, 0x200, 30, 3)
            .session();
        let found = session.outcome().expect("made in memory");
        report::by_site(&mut session, &found, &Suppressions::default()).groups
    }

    #[test]
    fn files_below_the_folder_lose_it() {
        let base = Path::new("/src");
        assert_eq!(super::relative("/src/a/b.c", base), "a/b.c");
        assert_eq!(super::relative("/srcs/b.c", base), "/srcs/b.c");
        assert_eq!(super::relative("b.c", base), "b.c");
        let groups = groups();
        assert_eq!(super::callers(&groups[1].stack, base), "other (/usr/include/b.h:9)");
        assert_eq!(super::amount(1, 1), "1 byte in 1 block");
    }
}
