//! Writing slices while a program runs: edleak's two file layouts.
//!
//! The file is JSON after every slice. A slice goes to where the end of the file
//! was, with the new end behind it, in one write: whoever reads at another
//! moment, or after the writer was killed, finds a whole file. The layout of 2012
//! has `times` and `period` beside edleak's own keys, and `blocks` beside `mem`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde_json::json;

use super::SliceFrame;

/// Which of edleak's layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// `[[{"eip", "memory"}, …], …]`
    Of2011,
    /// `{"slice": […], "allocer": […]}`
    #[default]
    Of2012,
}

/// What a site holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// A file of slices that grows.
#[derive(Debug)]
pub struct Writer {
    file: File,
    layout: Layout,
    /// Where the next slice goes: all behind it is written anew.
    end: u64,
    slices: u64,
    /// The innermost frame of each site, for the layout of 2011.
    names: Vec<String>,
    /// The table of sites, entries with commas between them.
    allocers: String,
    times: String,
    period: Option<f64>,
}

impl Writer {
    /// Makes the file; with the first slice it has something in it. Only its
    /// owner may read it.
    ///
    /// # Errors
    /// There is such a file and `overwrite` is not set; the system's.
    pub fn create(path: &Path, layout: Layout, period: Option<f64>, overwrite: bool) -> io::Result<Writer> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let file = if overwrite { options.create(true).truncate(true) } else { options.create_new(true) };
        let file = file.open(path)?;
        Ok(Writer {
            file,
            layout,
            end: 0,
            slices: 0,
            names: Vec::new(),
            allocers: String::new(),
            times: String::new(),
            period,
        })
    }

    /// Writes a slice. Sites that are new since the last one come with their
    /// stacks; `values` has all sites, the old ones first.
    ///
    /// # Errors
    /// The system's; the file then has the slices before this one.
    pub fn slice(&mut self, seconds: f64, fresh: &[Vec<SliceFrame>], values: &[Value]) -> io::Result<()> {
        let old_end = self.tail();
        for stack in fresh {
            self.site(stack);
        }
        let comma = if self.times.is_empty() { "" } else { "," };
        self.times += &format!("{comma}{seconds:.6}");
        let mut text = String::new();
        if self.slices == 0 {
            text += match self.layout {
                Layout::Of2011 => "[",
                Layout::Of2012 => "{\"slice\":[",
            };
        } else {
            text.push(',');
        }
        text += "\n[";
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text += &self.value(at, *value);
        }
        text.push(']');
        let start = self.end;
        let next = start + text.len() as u64;
        text += &self.tail();
        match self.file.write_all_at(text.as_bytes(), start) {
            Ok(()) => {
                (self.end, self.slices) = (next, self.slices + 1);
                Ok(())
            }
            Err(error) => {
                // What was there before was whole.
                let old = if self.slices > 0 { old_end.as_bytes() } else { &[] };
                let _ = self.file.set_len(start).and_then(|()| self.file.write_all_at(old, start));
                Err(error)
            }
        }
    }

    fn site(&mut self, stack: &[SliceFrame]) {
        let id = self.names.len();
        let names: Vec<String> = stack.iter().map(frame_text).collect();
        if self.layout == Layout::Of2012 {
            let soname: Vec<String> = stack.iter().map(module_text).collect();
            let comma = if id > 0 { ",\n" } else { "" };
            self.allocers += &format!("{comma}{}", json!({"id": id, "stack": names, "soname": soname}));
        }
        self.names.push(names.into_iter().next().unwrap_or_else(|| "0x0".to_owned()));
    }

    fn value(&self, at: usize, value: Value) -> String {
        match self.layout {
            Layout::Of2011 => {
                let name = self.names.get(at).map_or("0x0", String::as_str);
                json!({"eip": name, "memory": value.bytes}).to_string()
            }
            // Numbers only.
            Layout::Of2012 => {
                format!("{{\"mem\":{},\"alc\":{at},\"blocks\":{}}}", value.bytes, value.blocks)
            }
        }
    }

    /// All that comes behind the last slice.
    fn tail(&self) -> String {
        match self.layout {
            Layout::Of2011 => "\n]\n".to_owned(),
            Layout::Of2012 => {
                let period = self.period.map_or(String::new(), |period| format!(",\n\"period\":{period}"));
                format!("\n],\n\"times\":[{}]{period},\n\"allocer\":[\n{}\n]}}\n", self.times, self.allocers)
            }
        }
    }
}

/// `0x4005d0:parse`: the whole name, escaped by whoever writes it.
fn frame_text(frame: &SliceFrame) -> String {
    match &frame.function {
        Some(function) => format!("{:#x}:{function}", frame.address),
        None => format!("{:#x}", frame.address),
    }
}

/// `0x400000:/usr/bin/app`
fn module_text(frame: &SliceFrame) -> String {
    match &frame.module {
        Some(module) => format!("{:#x}:{module}", frame.base),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Slices, read};
    use super::*;

    fn frame(address: u64, function: &str) -> SliceFrame {
        SliceFrame {
            address,
            function: Some(function.to_owned()),
            module: Some("/usr/bin/app".to_owned()),
            base: 0x40_0000,
        }
    }

    fn value(bytes: u64, blocks: u64) -> Value {
        Value { bytes, blocks }
    }

    fn written(layout: Layout) -> (Vec<String>, Vec<Slices>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slices.json");
        let mut writer = Writer::create(&path, layout, Some(2.5), false).unwrap();
        let quoted = "operator\"\" _s\\".to_owned() + &"x".repeat(200);
        let (mut texts, mut slices) = (Vec::new(), Vec::new());
        let mut look = || {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
            slices.push(read(text.as_bytes()).unwrap());
            texts.push(text);
        };
        writer.slice(2.5, &[vec![frame(0x1000, "a"), frame(0x2000, "main")]], &[value(100, 2)]).unwrap();
        look();
        writer
            .slice(5.0, &[vec![frame(0x3000, &quoted)], vec![]], &[value(0, 0), value(7, 1), value(1, 1)])
            .unwrap();
        look();
        // Fewer digits than before: nothing of the old end may be left over.
        writer.slice(7.5, &[], &[value(9, 1), value(0, 0), value(0, 0)]).unwrap();
        look();
        (texts, slices)
    }

    #[test]
    fn the_file_is_json_after_every_slice_and_reads_as_it_was_written() {
        for layout in [Layout::Of2012, Layout::Of2011] {
            let (_, slices) = written(layout);
            for (at, slices) in slices.iter().enumerate() {
                assert_eq!(slices.times.len(), at + 1);
                assert!(!slices.cut && !slices.mended);
            }
            let last = slices.last().unwrap();
            let name = |at: usize| last.sites[at].stack.first().and_then(|f| f.function.as_deref());
            assert_eq!(last.sites[0].sizes(), [100, 0, 9]);
            assert_eq!(last.sites[1].sizes(), [7, 0]);
            assert_eq!(name(0), Some("a"));
            assert_eq!(name(1).map(str::len), Some(14 + 200), "names are whole");
            if layout == Layout::Of2012 {
                assert!(last.timed);
                assert_eq!(last.times, [2.5, 5.0, 7.5]);
                assert_eq!(last.sites[0].stack[1].module.as_deref(), Some("/usr/bin/app"));
                assert_eq!(last.sites[0].stack[1].base, 0x40_0000);
                assert_eq!(last.sites[0].points[0].blocks, Some(2));
            }
        }
    }

    #[test]
    fn a_disk_that_is_full_leaves_the_slices_that_there_are() {
        let Ok(mut writer) = Writer::create(Path::new("/dev/full"), Layout::Of2012, None, true) else {
            return;
        };
        assert!(writer.slice(1.0, &[], &[]).is_err());
        assert_eq!(writer.slices, 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("there.json");
        std::fs::write(&path, "mine").unwrap();
        assert!(Writer::create(&path, Layout::Of2012, None, false).is_err(), "it is not overwritten");
    }
}
