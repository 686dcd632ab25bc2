//! Options from variables and files.

use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Ended, Highwater, Program};

/// A recording of `leaks.c` with a `highwater.toml` beside it.
struct Folder {
    recorded: highwater_tests::Recorded,
}

impl Folder {
    fn new() -> Folder {
        let program = Program::new("leaks.c").build();
        Folder { recorded: record_with(&["-q"], |child| child.arg("--").arg(program)) }
    }

    fn file(&self, text: &str) {
        std::fs::write(self.recorded.folder().join("highwater.toml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Child {
        Highwater::command(args).cwd(self.recorded.folder())
    }

    /// `leaks ARGS`
    fn leaks(&self, args: &[&str], change: impl FnOnce(Child) -> Child) -> Ended {
        change(self.command(&["leaks"]).arg(&self.recorded.trace).args(args)).run()
    }
}

#[test]
fn the_command_line_goes_before_variables_and_they_before_files() {
    let folder = Folder::new();
    let lines = |ended: Ended| ended.expect_code(0).stdout().lines().count();
    let plain = lines(folder.leaks(&[], |child| child));
    let gcc = 3;
    assert_ne!(plain, gcc);
    folder.file("[leaks]\nformat = \"gcc\"\n");
    assert_eq!(lines(folder.leaks(&[], |child| child)), gcc);
    // From a folder below, too.
    let below = folder.recorded.folder().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    assert_eq!(lines(folder.leaks(&[], |child| child.cwd(&below))), gcc);
    assert_eq!(lines(folder.leaks(&["--format", "text"], |child| child)), plain);
    assert_eq!(lines(folder.leaks(&[], |child| child.env("HIGHWATER_FORMAT", "text"))), plain);
    // What contradicts the command line gives way.
    let json = folder.leaks(&["--json"], |child| child).expect_code(0);
    assert!(json.stdout().starts_with('{'), "{}", json.stdout());
    // The user's own file is the last.
    let home = folder.recorded.folder().join("home");
    std::fs::create_dir_all(home.join("highwater")).unwrap();
    std::fs::write(home.join("highwater/config.toml"), "limit = 1\n[leaks]\nformat = \"text\"\n").unwrap();
    assert_eq!(lines(folder.leaks(&[], |child| child.env("XDG_CONFIG_HOME", &home))), gcc);
    folder.file("");
    let short = folder.leaks(&[], |child| child.env("XDG_CONFIG_HOME", &home)).expect_code(0).stdout();
    assert!(short.contains("and 2 more"), "{short}");
}

#[test]
fn flags_lists_and_paths_come_from_files() {
    let folder = Folder::new();
    std::fs::write(folder.recorded.folder().join("known.supp"), "leak:fill_cache\n").unwrap();
    folder.file("[leaks]\nsuppressions = [\"known.supp\"]\nformat = \"gcc\"\n");
    let below = folder.recorded.folder().join("below");
    std::fs::create_dir(&below).unwrap();
    // The path is relative to the file, not to the folder of the command.
    let left = folder.leaks(&[], |child| child.cwd(&below)).expect_code(0).stdout();
    assert_eq!(left.lines().count(), 2, "{left}");
    folder.file("[leaks]\njson = true\n");
    assert!(folder.leaks(&[], |child| child).expect_code(0).stdout().starts_with('{'));
    let text = folder.leaks(&[], |child| child.env("HIGHWATER_JSON", "0")).expect_code(0).stdout();
    assert!(!text.starts_with('{'), "{text}");
    // And for run: a gate.
    folder.file("[run]\nfail-on = [\"leak\"]\nerror-exitcode = 7\nquiet = true\n");
    let program = Program::new("leaks.c").build();
    let run = |child: Child| child.args(["-o", "again.hwt", "--force", "--"]).arg(&program).run();
    let ended = run(folder.command(&["run"])).expect_code(7);
    assert_eq!(ended.stderr(), "");
    run(folder.command(&["run"]).env("HIGHWATER_ERROR_EXITCODE", "8")).expect_code(8);
}

#[test]
fn a_key_that_is_no_option_is_told_and_not_passed_over() {
    let folder = Folder::new();
    for (text, reason) in [
        ("[leaks]\nfromat = \"gcc\"\n", "`fromat` in [leaks] is no option of `highwater leaks`"),
        ("[leeks]\nformat = \"gcc\"\n", "[leeks] is no command"),
        ("nonsense = 1\n", "`nonsense` is no option of any command"),
        ("[leaks]\njson = \"yes\"\n", "`json` is true or false"),
        ("[leaks]\nformat = { a = 1 }\n", "has a value of a wrong kind"),
        ("[leaks\n", "highwater.toml"),
    ] {
        folder.file(text);
        let said = folder.leaks(&[], |child| child).expect_code(2).stderr();
        assert!(said.contains(reason) && said.contains("highwater.toml"), "{text}: {said}");
    }
    folder.file("[run]\ndepht = 3\n");
    folder.command(&["run", "--", "true"]).run().expect_code(125);
    folder.file("[leaks]\nlimit = \"x\"\n");
    let said = folder.leaks(&[], |child| child).expect_code(2).stderr();
    assert!(said.contains("--limit") && said.contains("highwater.toml"), "{said}");
    // A budget is for `check`; other commands leave it alone.
    folder.file("[budget]\nmax-leak = 0\n");
    folder.leaks(&[], |child| child).expect_code(0);
}
