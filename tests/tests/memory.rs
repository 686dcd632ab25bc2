//! What highwater itself costs in memory, in the target and afterwards.

use highwater_tests::scale::note;
use highwater_tests::{Child, Highwater, Program, number, record};

fn kib(text: &str) -> i64 {
    text.trim().parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

#[test]
fn a_one_thread_program_grows_by_less_than_sixteen_mebibytes() {
    let program = Program::new("footprint.c").build();
    let args = ["2000000", "1000"];
    let plain = kib(&Child::new(&program).args(args).run().expect_code(0).stdout());
    let recorded = record(&program, args).expect_code(0);
    let grown = kib(&recorded.ended.stdout()) - plain;
    assert!(grown < 16 * 1024, "{grown} KiB more than the {plain} KiB without highwater");
    note("memory added to a one-thread target", &format!("{grown} KiB, shared pages included"));
}

#[test]
fn replay_needs_forty_eight_bytes_a_live_block_and_a_constant() {
    let program = Program::new("footprint.c").build();
    let peak = |live: &str| -> i64 {
        let recorded = record(&program, ["0", live]).expect_code(0);
        assert_eq!(number(&recorded.stats(), "live_blocks"), live.parse::<i64>().expect("a number"));
        let ended = Highwater::plain("/usr/bin/time")
            .args(["-f", "%M"])
            .arg(Highwater::path())
            .args(["stats", "--json"])
            .arg(&recorded.trace)
            .run()
            .expect_code(0);
        kib(ended.stderr().lines().last().unwrap_or_default())
    };
    // The constant: buffers of reading and decompressing, and the program itself.
    let constant = 16 * 1024;
    // From a million events on a trace may get keyframes: what is packed for one that
    // does not fit must not take memory.
    let (few, many) = (peak("1000"), peak("1000000"));
    assert!(few <= constant, "{few} KiB for a thousand blocks");
    assert!(many <= constant + 48 * 1_000_000 / 1024, "{many} KiB for a million blocks");
    note("memory of replay", &format!("{few} KiB with a thousand live blocks, {many} KiB with a million"));
}
