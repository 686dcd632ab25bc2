//! Chores of the work tree: `cargo xtask` lists them.

mod bench;
mod packages;
mod soak;
mod suite;

use std::process::ExitCode;

const HELP: &str = "\
Chores of the highwater work tree.

Usage: cargo xtask COMMAND

Commands:
  test [--only NAME]  install what the tests need, then check format and lints,
                      build and run every test; NAME runs the matching tests only.
                      The last line is \"N passed, N failed\"; exit 1 on a failure
  soak [--only NAME]  the end-to-end tests at their full counts (SIGKILL 200 times,
                      real servers, long runs); writes docs/soak.md
  bench [--only NAME] [--quick] [--runs N] [--slow]
                      speed and memory against native and the peers that are
                      installed; a full run writes docs/performance.md
  bench-query [--events 10M,100M]
                      the views on long traces, beside heaptrack_print; with no
                      option it writes docs/analysis.md
  packages            install what the tests need, or say what to install
  help                this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Does one chore; `false` means that something that was checked is not right.
fn run(args: &[String]) -> anyhow::Result<bool> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "test" => suite::test(only(rest)?),
        "soak" => soak::soak(only(rest)?),
        "bench" => bench::bench(rest),
        "bench-query" => bench::query::bench_query(rest),
        "packages" => packages::install_missing(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(true)
        }
        other => anyhow::bail!("there is no chore `{other}`; `cargo xtask` lists them"),
    }
}

/// The value of `--only`, the one option that chores take.
fn only(args: &[String]) -> anyhow::Result<Option<&str>> {
    match args {
        [] => Ok(None),
        [option, name] if option == "--only" => Ok(Some(name)),
        [option] if option.starts_with("--only=") => Ok(option.strip_prefix("--only=")),
        _ => anyhow::bail!("expected nothing or `--only NAME`, not `{}`", args.join(" ")),
    }
}
