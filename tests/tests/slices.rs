//! Slices written while a program runs, and edleak's own mistakes with them.

use std::path::Path;
use std::time::Duration;

use highwater_tests::child::{Running, wait_until};
use highwater_tests::{Highwater, Program, TempDir, schema};
use serde_json::Value;

struct Live {
    run: Running,
    folder: TempDir,
    done: usize,
}

fn start(options: &[&str]) -> Live {
    let folder = highwater_tests::folder();
    let run = Highwater::command(["run", "-o", "trace.hwt", "--slices", "slices.json"])
        .args(options)
        .arg("--")
        .arg(Program::new("actions.c").build())
        .cwd(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .talks()
        .start();
    wait_until("the program is ready", Duration::from_secs(30), || run.stdout_so_far().contains("ready"));
    Live { run, folder, done: 0 }
}

impl Live {
    fn act(&mut self, word: &str) {
        self.run.say(&format!("{word}\n"));
        self.done += 1;
        let (done, run) = (self.done, &self.run);
        wait_until(word, Duration::from_secs(30), || run.stdout_so_far().matches("done ").count() >= done);
    }

    fn ask(&self, args: &[&str]) -> highwater_tests::Ended {
        let folder = self.folder.path();
        let command = Highwater::command(args).arg("--trace").arg(folder.join("trace.hwt"));
        command.env("XDG_RUNTIME_DIR", folder).run()
    }

    fn end(mut self) -> (TempDir, String) {
        self.run.say("end\n");
        let ended = self.run.wait().expect_code(3);
        (self.folder, ended.stderr())
    }
}

/// The file, which has to be JSON whenever it is looked at. (A look may meet the
/// very write; the next one, a moment later, does not.)
fn slices(folder: &Path) -> Option<Value> {
    let read = || std::fs::read_to_string(folder.join("slices.json")).ok().filter(|text| !text.is_empty());
    if let Ok(value) = serde_json::from_str(&read()?) {
        return Some(value);
    }
    std::thread::sleep(Duration::from_millis(7));
    let text = read()?;
    match serde_json::from_str(&text) {
        Ok(value) => Some(value),
        Err(error) => panic!("no JSON between two slices: {error}\n{text}"),
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// Bytes and blocks of a slice together.
fn sum(slice: &Value) -> (u64, u64) {
    let of = |key: &str| list(slice).iter().filter_map(|entry| entry[key].as_u64()).sum();
    (of("mem"), of("blocks"))
}

#[test]
fn a_slice_on_request_holds_what_is_alive_by_stack_with_the_names_of_static_functions() {
    let mut live = start(&["--period", "0"]);
    for mark in ["one", "two"] {
        live.act("bad");
        live.act("grow");
        live.act("race");
        wait_until("a slice is written", Duration::from_secs(60), || live.ask(&["slice"]).code() == 0);
        live.ask(&["mark", mark]).expect_code(0);
    }
    let slice = schema::document(&live.ask(&["slice", "--json"]).expect_code(0).out);
    assert_eq!(slice["schema"], "highwater.slice/1");
    let (folder, said) = live.end();
    assert!(!said.contains("slice"), "{said}");
    let file = slices(folder.path()).expect("slices");
    let all = list(&file["slice"]);
    assert_eq!(all.len(), 3);
    for (slice, mark) in all.iter().zip(["one", "two"]) {
        let dump = Highwater::command(["dump", "--json", "--at", &format!("@{mark}")])
            .arg(folder.path().join("trace.hwt"))
            .run()
            .expect_code(0);
        let dump = schema::document(&dump.out);
        let blocks = list(&dump["blocks"]);
        let bytes = blocks.iter().filter_map(|block| block["size"].as_u64()).sum();
        assert_eq!(sum(slice), (bytes, blocks.len() as u64), "at {mark}");
    }
    assert!(list(&all[1]).len() >= list(&all[0]).len(), "a site never goes away");
    let times: Vec<f64> = list(&file["times"]).iter().map(|time| time.as_f64().unwrap()).collect();
    assert!(times[0] > 0.0 && times[1] > times[0]);
    // A static function has its name, and each of its callers a stack of its own.
    let allocers = list(&file["allocer"]);
    let forget: Vec<u64> = allocers
        .iter()
        .filter(|site| site["stack"][0].as_str().is_some_and(|name| name.ends_with(":forget")))
        .map(|site| site["id"].as_u64().unwrap())
        .collect();
    assert_eq!(forget.len(), 2, "from main and from a thread: {allocers:#?}");
    for (slice, bytes) in all.iter().zip([100, 200]) {
        for id in &forget {
            let held = list(slice).iter().find(|entry| entry["alc"].as_u64() == Some(*id)).unwrap();
            assert_eq!(held["mem"], bytes);
        }
    }
    assert!(allocers[0]["soname"][0].as_str().unwrap().starts_with("0x"));
}

#[test]
fn the_file_is_json_after_each_period_and_the_recorders_death_does_not_change_that() {
    let mut live = start(&["--period", "50ms", "-q"]);
    let folder = live.folder.path().to_path_buf();
    let count = || slices(&folder).map_or(0, |file| list(&file["slice"]).len());
    let mut seen = 0;
    while seen < 12 {
        live.act("bad");
        let now = count();
        assert!(now >= seen);
        seen = now;
    }
    live.run.signal(libc::SIGKILL);
    live.run.hang_up();
    let left = count();
    assert!(left >= seen);
    let file = slices(&folder).unwrap();
    assert_eq!(list(&file["times"]).len(), left);
    assert_eq!(file["period"], 0.05);
}

#[test]
fn the_layout_of_2011_has_sites_by_name_and_no_stacks() {
    let mut live = start(&["--period", "0", "--slice-layout", "2011"]);
    live.act("bad");
    wait_until("a slice is written", Duration::from_secs(60), || live.ask(&["slice"]).code() == 0);
    let (folder, _) = live.end();
    let file = slices(folder.path()).expect("slices");
    let forgotten: u64 = list(&list(&file)[0])
        .iter()
        .filter(|entry| entry["eip"].as_str().is_some_and(|name| name.ends_with(":forget")))
        .map(|entry| entry["memory"].as_u64().unwrap())
        .sum();
    assert_eq!(forgotten, 200);
}

#[test]
fn what_cannot_be_sliced_is_told() {
    let live = start(&["--period", "1h"]);
    let (folder, said) = live.end();
    assert!(said.contains("no slice was made: the program ended within the first period"), "{said}");
    assert!(!folder.path().join("slices.json").exists());
    std::fs::write(folder.path().join("there.json"), "mine").unwrap();
    let run = |args: &[&str]| {
        Highwater::command(["run", "--slices", "there.json"])
            .args(args)
            .args(["--", "true"])
            .cwd(folder.path())
            .run()
    };
    let said = run(&[]).expect_code(125).stderr();
    assert!(said.contains("there.json exists already; --force overwrites it"), "{said}");
    let said = run(&["--force", "--sample", "512k"]).expect_code(125).stderr();
    assert!(said.contains("neither with --sample"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("there.json")).unwrap(), "mine");
}
