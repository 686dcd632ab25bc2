//! The port for FreeRTOS on the real kernel: four tasks on a simulated Cortex-M3.

use std::fs;
use std::path::Path;

use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::freertos;
use highwater_tests_embedded::session::*;
use tempfile::tempdir;

const WRAP: &str = "-Wl,--wrap=pvPortMalloc,--wrap=pvPortCalloc,--wrap=vPortFree";

/// What the tasks told: thread, event, address, size, line.
type Told = (String, String, u64, u64, String);

/// The console's lines, those of a task in its order.
fn told(console: &Path) -> Vec<Told> {
    let text = fs::read_to_string(console).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [task, "A" | "F", kind, address, size, at] = words[..] else { panic!("{line}: {text}") };
        let number = |n: &str, base| u64::from_str_radix(n, base).unwrap();
        (
            format!("worker{task}"),
            format!("{kind}()"),
            number(address, 16),
            number(size, 10),
            format!("kernel.c:{at}"),
        )
    };
    text.lines().map(line).collect()
}

/// The dumps' complete history, in the same words.
fn recorded(elf: &Path, folder: &Path) -> Vec<Told> {
    let dumps = dump_files(folder);
    let mut files = vec![elf];
    files.extend(dumps.iter().map(|d| d.as_path()));
    let (status, out, err) = mdd(&["history", "-f", "%N|%a|%p|%n|%w1"], &files);
    assert_eq!(status, 0, "{err}");
    assert!(!out.contains("Caution"), "the history is not complete: {err}");
    let line = |line: &str| {
        let words: Vec<&str> = line.split('|').collect();
        let [thread, event, address, size, place] = words[..] else { panic!("{line}") };
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        let place = place.rsplit('/').next().unwrap_or_default().to_string();
        (thread.to_string(), event.to_string(), address, size.parse().unwrap(), place)
    };
    out.lines().map(line).collect()
}

fn run(firmware: &Firmware, folder: &Path) -> (Vec<Told>, Vec<Told>) {
    let elf = firmware.link(folder, "kernel.elf");
    let commands = "break finished\nmdd_watch_overflow\ncontinue\nmdd_dump";
    let text = session(Target::Nano, folder, &elf, commands);
    assert!(!dump_files(folder).is_empty(), "{text}");
    (told(&folder.join("console")), recorded(&elf, folder))
}

#[test]
fn every_task_is_told_by_name_and_its_history_is_what_it_did() {
    let folder = tempdir().unwrap();
    let Some(kernel) = freertos::kernel(folder.path()) else { return };
    let firmware = freertos::firmware(&kernel, 4)
        .set("HISTORY=1")
        .set("HISTORY_RECORDS=64")
        .set("STACKS=4")
        .app_with(WRAP);
    let (told, recorded) = run(&firmware, folder.path());
    let of = |all: &[Told], name: &str| all.iter().filter(|t| t.0 == name).cloned().collect::<Vec<_>>();
    for task in 0..4 {
        let name = format!("worker{task}");
        let (a, b) = (of(&told, &name), of(&recorded, &name));
        assert_eq!(a.len(), 150);
        assert_eq!(a, b, "{name}");
    }
    // the tasks were not one after the other: the kernel switched between them
    let switches = recorded.windows(2).filter(|w| w[0].0 != w[1].0).count();
    assert!(switches > 20, "{switches}");
    // stacks and control blocks of four tasks and the idle one; four were deleted again
    let boot = of(&recorded, "boot");
    assert_eq!(boot.len(), 10, "{boot:?}");
    assert!(boot.iter().all(|b| b.1 == "pvPortMalloc()" && b.4.starts_with("tasks.c:")), "{boot:?}");
    let idle = of(&recorded, "IDLE");
    assert_eq!(idle.len(), 8, "{idle:?}");
    assert!(idle.iter().all(|b| b.1 == "vPortFree()" && b.4.starts_with("tasks.c:")), "{idle:?}");
    assert_eq!(recorded.len(), 4 * 150 + 10 + 8);

    let dumps = dump_files(folder.path());
    assert!(dumps.len() > 3, "the ring overflowed");
    let last = &flawless(&dumps)[dumps.len() - 1];
    assert_eq!((last.tick_hz, last.counters.foreign), (1000, 0));
    assert!(last.live.iter().filter_map(|b| b.made.time).max() > Some(20), "ticks went by");
    assert!(last.stacks.iter().all(|s| (100..2048).contains(&(s.high - s.low - s.untouched))));
    assert_eq!(last.stacks.len(), 4);
}

#[test]
fn the_kernels_trace_macros_serve_as_well_as_the_linker() {
    let folder = tempdir().unwrap();
    let Some(kernel) = freertos::kernel(folder.path()) else { return };
    let firmware = freertos::firmware(&kernel, 4).set("HISTORY=1").set("HISTORY_RECORDS=64");
    let firmware = firmware.set("STACKS=4").set("FREERTOS_TRACE").with("-fno-inline");
    let (told, recorded) = run(&firmware, folder.path());
    for task in 0..4 {
        let name = format!("worker{task}");
        let of = |all: &[Told]| all.iter().filter(|t| t.0 == name).cloned().collect::<Vec<_>>();
        let (a, b) = (of(&told), of(&recorded));
        assert_eq!(a.len(), b.len());
        for (told, found) in a.iter().zip(&b) {
            assert_eq!(told.2, found.2);
            // the sizes are what the heap uses, a calloc is the malloc that it calls
            assert!(found.3 >= told.3 + 8 && found.3 < told.3 + 32, "{told:?} {found:?}");
            match told.1.as_str() {
                "pvPortCalloc()" => {
                    assert_eq!(found.1, "pvPortMalloc()");
                    assert!(found.4.starts_with("heap_4.c:"), "{found:?}");
                }
                same => assert_eq!((same, &told.4), (found.1.as_str(), &found.4)),
            }
        }
    }
}

#[test]
fn the_kernels_other_heaps_are_recorded_too() {
    let folder = tempdir().unwrap();
    let Some(kernel) = freertos::kernel(folder.path()) else { return };
    // heap_3 is malloc's, which is wrapped as well: each block once all the same
    for (heap, options) in [
        (1, &["-DNO_FREE", "-DNO_CALLOC"][..]),
        (2, &[]),
        (3, &["-DNO_CALLOC", "-DHIGHWATER_MDD_FREERTOS_HEAP_3"]),
        (5, &["-DREGIONS"]),
    ] {
        let folder = tempdir().unwrap();
        let firmware = freertos::firmware(&kernel, heap).set("HISTORY=1").set("STACKS=4").app_with(WRAP);
        let firmware = options.iter().fold(firmware, |f, o| f.with(o));
        let (told, recorded) = run(&firmware, folder.path());
        assert!(told.len() >= 4 * 12);
        for task in 0..4 {
            let name = format!("worker{task}");
            let of = |all: &[Told]| all.iter().filter(|t| t.0 == name).cloned().collect::<Vec<_>>();
            assert_eq!(of(&told), of(&recorded), "heap_{heap}");
        }
        let dump = &flawless(&dump_files(folder.path()))[0];
        assert_eq!(dump.counters.foreign, 0, "heap_{heap}");
    }
}
