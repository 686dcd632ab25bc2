//! The verified stack cache answers exactly what a fresh walk would: with
//! `--validate` each stack is walked again and a difference ends the program.

use std::time::Duration;

use highwater_tests::scale::{note, times};
use highwater_tests::{Highwater, Program, folder, number};

/// Runs a command under `--validate`; how many stacks were compared.
#[track_caller]
fn validated(command: &[&str]) -> i64 {
    let place = folder();
    let trace = place.path().join("x.hwt");
    let mut arguments = vec!["run", "-q", "--validate", "-o"];
    let trace_name = trace.to_str().unwrap();
    arguments.extend([trace_name, "--"]);
    arguments.extend(command);
    let limit = Duration::from_secs(times(120, 3600) as u64);
    Highwater::command(arguments).limit(limit).run().expect_code(0);
    let counters = Highwater::json(&["stats", "--self"], &trace);
    let compared = number(&counters["counters"], "validated");
    let stats = Highwater::json(&["stats"], &trace);
    assert!(compared >= number(&stats, "allocations"), "{counters} {stats}");
    compared
}

#[test]
fn stacks_made_to_deceive_a_cache_do_not() {
    let rounds = times(100_000, 500_000).to_string();
    let mut compared = 0;
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"], &["-Os"]] {
        let program = Program::new("torture.cpp").flags(flags).build();
        compared += validated(&[program.to_str().unwrap(), &rounds]);
    }
    assert!(compared > 20_000_000, "only {compared} stacks were compared");
    note("verified cache, torture", &format!("{compared} stacks, no difference"));
}

#[test]
fn stacks_that_take_turns_are_walked_once_and_not_each_time() {
    let place = folder();
    let trace = place.path().join("x.hwt");
    let program = Program::new("turns.c").build();
    let arguments = ["run", "-q", "-o", trace.to_str().unwrap(), "--", program.to_str().unwrap(), "100000"];
    Highwater::command(arguments).run().expect_code(0);
    let walks = number(&Highwater::json(&["stats", "--self"], &trace)["counters"], "walks");
    let stats = Highwater::json(&["stats"], &trace);
    let events = number(&stats, "events");
    assert!(events >= 400_000, "{stats}");
    // 32 stacks in all; the last one alone would be met again one time in eight.
    assert!(walks < events / 100, "{walks} walks for {events} events");
}

#[test]
fn code_made_at_run_time_never_gets_the_frames_of_what_was_there_before() {
    let rounds = times(5_000, 500_000).to_string();
    let program = Program::new("jit.c").build();
    let compared = validated(&[program.to_str().unwrap(), &rounds]);
    note("verified cache, code made at run time", &format!("{compared} stacks, no difference"));
}

#[test]
fn libraries_that_come_to_the_address_of_an_unloaded_one_deceive_no_cache() {
    let flags = |name: &'static str, size: &'static str| vec!["-shared", "-fPIC", name, size];
    let alpha = Program::new("plugin.c").flags(&flags("-DNAME=alpha", "-DSIZE=1111")).build();
    let beta = Program::new("plugin.c").flags(&flags("-DNAME=beta", "-DSIZE=2222")).build();
    let program = Program::new("plugins.c").build();
    let mut command = vec![program.to_str().unwrap()];
    for _ in 0..times(50, 500) {
        command.extend([alpha.to_str().unwrap(), beta.to_str().unwrap()]);
    }
    let compared = validated(&command);
    note("verified cache, libraries unloaded", &format!("{compared} stacks, no difference"));
}

#[test]
fn real_programs_have_the_stacks_of_a_fresh_walk() {
    let python = "d={}\nfor i in range(20000): d[i%100]=[str(i),(i,i+1)]";
    let mut compared = validated(&["env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "-c", python]);
    compared += validated(&["perl", "-e", "my %h; $h{$_ % 500} = [$_ x 3] for 1..50000"]);
    compared += validated(&[
        "sqlite3",
        ":memory:",
        "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, hex(x) from c; select count(*) from t group by a%7;",
    ]);
    compared += validated(&["jq", "-n", "[range(20000)|tostring]|length"]);
    compared += validated(&[
        "node",
        "-e",
        "let a=[];for(let i=0;i<2000;i++){a.push(JSON.stringify({i}))};require('zlib').gzipSync(a.join())",
    ]);
    assert!(compared > 300_000, "only {compared} stacks were compared");
    note("verified cache, programs", &format!("{compared} stacks, no difference"));
}
