//! Totals of real programs are valgrind's and heaptrack's, to the byte.

use std::path::{Path, PathBuf};

use highwater_tests::highwater::record_with;
use highwater_tests::tools::{self, Counter, HeapUsage};
use highwater_tests::{Child, Highwater, number};

/// Runs the program by both tools with the same variables; both counts.
#[track_caller]
fn both(program: &Path, args: &[&str], prepare: impl Fn(Child) -> Child) -> (HeapUsage, HeapUsage) {
    let theirs = tools::valgrind(program, args, &prepare);
    let recorded = record_with(&["-q"], |child| {
        let child = tools::with_valgrinds_environment(child, &prepare);
        prepare(child).arg("--").arg(program).args(args)
    });
    let stats = recorded.stats();
    assert_eq!(stats["complete"], true, "{stats:#}");
    (HeapUsage::from_stats(&stats), theirs)
}

/// The program's calls in this very run, counted by a library beside the agent.
#[track_caller]
fn equal_to_the_counter(program: &Path, args: &[&str], prepare: impl Fn(Child) -> Child) {
    let folder = highwater_tests::folder();
    let counter = Counter::new(program, folder.path());
    let recorded =
        record_with(&["-q"], |child| prepare(counter.beside(child)).arg("--").arg(program).args(args))
            .expect_code(0);
    let ours = HeapUsage::from_stats(&recorded.stats());
    assert_eq!(ours, counter.usage(), "ours is left");
    assert!(ours.allocs > 30, "too small to mean anything: {ours:?}");
}

#[track_caller]
fn equal(program: &Path, args: &[&str], prepare: impl Fn(Child) -> Child) {
    let (ours, theirs) = both(program, args, prepare);
    assert_eq!(ours, theirs, "ours is left");
    assert!(ours.allocs > 100, "too small to mean anything: {ours:?}");
}

/// Python with nothing in it that changes from run to run.
fn deterministic_python(child: Child) -> Child {
    child.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1")
}

#[test]
fn python_with_its_objects_on_the_heap() {
    let code = "print(sum(len(str(i)) for i in range(20000)))";
    // Not equal to another run's: python makes numbers of addresses, which are
    // smaller objects where the heap lies low, as it does under valgrind.
    equal_to_the_counter(Path::new("/usr/bin/python3"), &["-S", "-c", code], deterministic_python);
}

#[test]
fn python_with_its_own_pools() {
    let code = "x = {i: str(i) * (i % 50) for i in range(5000)}";
    equal(Path::new("/usr/bin/python3"), &["-S", "-c", code], |child| child.env("PYTHONHASHSEED", "0"));
}

#[test]
fn perl() {
    let code = "my %h; $h{$_ % 700} .= 'x' x ($_ % 90) for 1..20000; print scalar(keys %h), qq(\\n);";
    equal(&tools::need("perl"), &["-e", code], |child| {
        child.env("PERL_HASH_SEED", "0").env("PERL_PERTURB_KEYS", "0")
    });
}

#[test]
fn sqlite() {
    let sql = "create table t(a integer primary key, b text); \
               with recursive n(x) as (select 1 union all select x+1 from n where x<20000) \
               insert into t select x, printf('%020d',x*7919%10007) from n; \
               create index i on t(b); select count(distinct b), sum(length(b)) from t;";
    equal(&tools::need("sqlite3"), &[":memory:", sql], |child| child);
}

#[test]
fn jq() {
    let input: String = (0..3000).map(|i| format!("{{\"id\":{i},\"tags\":[\"a{i}\",\"b\"]}}\n")).collect();
    equal(&tools::need("jq"), &["-c", "{(.tags[0]): [.id, (.id*2)]}"], |child| child.input(input.as_bytes()));
}

/// A small repository whose objects are the same each time.
fn repository(folder: &Path) -> PathBuf {
    let home = folder.join("repository");
    std::fs::create_dir(&home).expect("a folder");
    for i in 0..120 {
        std::fs::write(home.join(format!("file{i}.txt")), format!("line {i}\n").repeat(i + 1))
            .expect("a file");
    }
    let git = |args: &[&str]| {
        quiet_git(Child::new(tools::need("git")), &home).args(args).run().expect_code(0);
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "all"]);
    home
}

/// git without the user's settings, and with fixed names and dates.
fn quiet_git(child: Child, home: &Path) -> Child {
    let fixed = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "n"),
        ("GIT_AUTHOR_EMAIL", "e@example.org"),
        ("GIT_AUTHOR_DATE", "1700000000 +0000"),
        ("GIT_COMMITTER_NAME", "n"),
        ("GIT_COMMITTER_EMAIL", "e@example.org"),
        ("GIT_COMMITTER_DATE", "1700000000 +0000"),
        ("GIT_PAGER", "cat"),
    ];
    fixed.into_iter().fold(child.env("HOME", home).cwd(home), |child, (name, value)| child.env(name, value))
}

#[test]
fn git_log_and_fsck() {
    let folder = highwater_tests::folder();
    let home = repository(folder.path());
    let git = tools::need("git");
    equal(&git, &["log", "--stat", "--no-color"], |child| quiet_git(child, &home));
    equal(&git, &["fsck", "--full", "--no-progress"], |child| quiet_git(child, &home));
}

#[test]
fn the_c_compiler_proper() {
    let folder = highwater_tests::folder();
    let text =
        "#include <vector>\n#include <string>\nint f(std::vector<std::string> v) { return (int)v.size(); }\n";
    let (compiler, source) = tools::cc1plus(folder.path(), text);
    let source = source.to_str().expect("ASCII");
    // Not equal to another run's: some of its tables are ordered by address.
    equal_to_the_counter(
        &compiler,
        &["-fpreprocessed", "-quiet", "-O1", "-o", "/dev/null", source],
        |child| child,
    );
}

#[test]
fn leaks_of_a_c_program_are_heaptracks_and_valgrinds() {
    let program = highwater_tests::Program::new("threads.c").build();
    let folder = highwater_tests::folder();
    let counts = folder.path().join("counts").display().to_string();
    let recorded =
        record_with(&["-q"], |child| child.arg("--").arg(&program).args([&counts, "500"])).expect_code(0);
    let stats = recorded.stats();
    let raw = folder.path().join("heaptrack");
    Child::new(tools::need("heaptrack"))
        .arg("-o")
        .arg(&raw)
        .arg(&program)
        .args([&counts, "500"])
        .run()
        .expect_code(0);
    let file = ["zst", "gz"].map(|ending| raw.with_extension(ending)).into_iter().find(|file| file.exists());
    let print =
        Child::new(tools::need("heaptrack_print")).arg(file.expect("heaptrack's file")).run().expect_code(0);
    let calls = print.stdout().lines().find_map(|line| {
        line.strip_prefix("calls to allocation functions: ")?.split_whitespace().next()?.parse::<i64>().ok()
    });
    // heaptrack brings libstdc++ into this C program, whose start-up makes one
    // block for exceptions: that allocation is heaptrack's own doing.
    assert_eq!(Some(number(&stats, "allocations") + 1), calls, "{}", print.stdout());
    // 4 threads x 50 blocks, and the table of each thread.
    assert_eq!(number(&stats, "live_blocks"), 204, "{stats:#}");
    let memcheck = Child::new(tools::need("valgrind"))
        .arg("--run-libc-freeres=no")
        .arg(&program)
        .args([&counts, "500"])
        .run();
    let line = memcheck.stderr().lines().find(|line| line.contains("in use at exit")).map(String::from);
    let numbers: Vec<i64> = line
        .as_deref()
        .unwrap_or_default()
        .rsplit(": ")
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.replace(',', "").parse().ok())
        .collect();
    // The agent has one thread-local word: one more module in each thread's
    // table, which makes the C library ask for 16 bytes more a thread.
    assert_eq!(numbers, [number(&stats, "live_bytes") - 4 * 16, 204], "{line:?}");
}

/// `peak heap memory consumption: 272.13K` of heaptrack_print, in bytes (its
/// units are powers of 1000), and half of its last digit.
fn heaptracks_peak(report: &str) -> Option<(f64, f64)> {
    let text = report.lines().find_map(|line| line.strip_prefix("peak heap memory consumption: "))?;
    let (digits, unit) = text.trim().split_at(text.trim().find(|c: char| c.is_ascii_alphabetic())?);
    let unit = match unit {
        "B" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * unit, unit * 0.0051))
}

#[test]
fn the_peak_is_heaptracks() {
    // What heaptrack brings along: libstdc++'s pool for exceptions.
    const POOL: f64 = 72_704.0;
    let sql = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<9000) \
               insert into t select x, hex(x) from c; select count(*) from t group by a%7;";
    for command in [vec!["sqlite3", ":memory:", sql], vec!["xz", "--version"]] {
        let recorded = record_with(&["-q"], |child| child.arg("--").args(&command)).expect_code(0);
        let folder = highwater_tests::folder();
        let raw = folder.path().join("heaptrack");
        let program = tools::need(command[0]);
        Child::new(tools::need("heaptrack"))
            .arg("-o")
            .arg(&raw)
            .arg(&program)
            .args(&command[1..])
            .run()
            .expect_code(0);
        let file =
            ["zst", "gz"].map(|ending| raw.with_extension(ending)).into_iter().find(|file| file.exists());
        let print = Child::new(tools::need("heaptrack_print"))
            .arg(file.expect("heaptrack's file"))
            .run()
            .expect_code(0);
        let (theirs, rounding) = heaptracks_peak(&print.stdout()).expect("a peak");
        let ours = number(&recorded.stats(), "peak_bytes") as f64;
        assert!(ours > 1000.0 && (ours + POOL - theirs).abs() <= rounding, "{command:?}: {ours} {theirs}");
    }
}

#[test]
fn the_blocks_alive_at_the_peak_add_up_to_it() {
    let program = highwater_tests::Program::new("churn.c").build();
    let folder = highwater_tests::folder();
    let counts = folder.path().join("counts");
    let recorded =
        record_with(&["-q"], |child| child.arg("--").arg(&program).arg(&counts).arg("400")).expect_code(0);
    let sites = Highwater::json(&["peak"], &recorded.trace);
    let bytes: i64 =
        sites["sites"].as_array().map_or(0, |all| all.iter().map(|site| number(site, "bytes")).sum());
    assert_eq!(bytes, number(&recorded.stats(), "peak_bytes"), "{sites:#}");
}

#[test]
fn node_with_its_threads() {
    let code = "const a = []; for (let i = 0; i < 500; i++) a.push(Buffer.alloc(9000 + i)); \
                require('zlib').gzipSync(Buffer.concat(a));";
    equal_to_the_counter(&tools::need("node"), &["-e", code], |child| child);
}

#[test]
fn threads_of_a_compressor() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("data");
    let text: String = (0..200_000).map(|i| format!("{} ", i * 7919 % 10_007)).collect();
    std::fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("ASCII");
    let args = ["-c", "-T2", "--block-size=100KiB", file];
    equal_to_the_counter(&tools::need("xz"), &args, |child| child);
}
