//! `highwater mdd …`: the four commands of eCos, and what the GDB macros and
//! targets without a debugger need.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use highwater_trace::WriterOptions;

use super::image::Image;
use super::receive::{Received, Receiver};
use super::{ecos, layout, number, raw, read};

/// How the commands that ecosmdd does not have are used.
pub const USAGE: &str = "\
usage: highwater mdd stats|dump|history|diff ...   as ecosmdd; see highwater mdd dump --help
       highwater mdd check FILE...                 what is wrong with dumps; 0: nothing, 1: something
       highwater mdd stacks FILE                   how deep each task's stack has been
       highwater mdd next [--gdb] [FOLDER]         the next free number of mddout.N
       highwater mdd extract [--base ADDRESS] IMAGE [-o FILE]
                                                   a dump out of an ELF core, RAM image, Intel hex, S-records
       highwater mdd import [EXE] FILE... -o OUT.hwt
                                                   the dumps of one run as a trace, for all other commands
       highwater mdd receive --tcp HOST:PORT | --listen HOST:PORT | --file F | --serial DEVICE
                             [--count N] [FOLDER]  dumps out of frames, to mddout.N
";

enum Failure {
    Usage(String),
    Words(String),
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

fn words(what: &dyn std::fmt::Display, why: &dyn std::fmt::Display) -> Failure {
    Failure::Words(format!("{what}: {why}"))
}

/// Runs `highwater mdd ARGS`. Data go to `out`, words to `err`.
///
/// Returns the exit status: 0 done, 1 `check` found something, 2 usage or
/// unreadable input.
pub fn run(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    let name = args.first().map(|a| a.to_string_lossy().into_owned());
    let rest: Vec<&OsString> = args.iter().skip(1).collect();
    let done = match name.as_deref() {
        Some("check") => check(&rest, out),
        Some("stacks") => stacks(&rest, out),
        Some("next") => next(&rest, out),
        Some("extract") => extract(&rest, err),
        Some("import") => import(&rest, err),
        Some("receive") => receive(&rest, out, err),
        Some("-h" | "--help" | "help") => {
            write!(out, "{USAGE}{}", ecos::USAGE).map(|()| 0).map_err(Failure::from)
        }
        None => Err(Failure::Usage("a command is missing".into())),
        Some(_) => return ecos::run(args, out, err),
    };
    let text = match done {
        Ok(status) => return status,
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return 0,
        Err(Failure::Output(e)) => e.to_string(),
        Err(Failure::Words(text)) => text,
        Err(Failure::Usage(text)) => format!("{text}\n{USAGE}"),
    };
    // if stderr is gone, too, there is nobody to tell
    let _ = writeln!(err, "highwater: mdd: {}", text.trim_end());
    2
}

fn check(files: &[&OsString], out: &mut dyn Write) -> Result<i32, Failure> {
    if files.is_empty() {
        return Err(Failure::Usage("check: a file is missing".into()));
    }
    let mut status = 0;
    for file in files {
        let name = file.to_string_lossy();
        let dump = read(Path::new(file)).map_err(|e| words(&name, &e))?;
        let state = if dump.is_damaged() { "DAMAGED" } else { "good" };
        let (live, past) = (dump.live.len(), dump.history.len());
        writeln!(out, "{name}: {state}: {live} live blocks of {} bytes, {past} released", dump.live_bytes())?;
        for problem in &dump.problems {
            writeln!(out, "{name}: {problem}")?;
            status = 1;
        }
    }
    Ok(status)
}

fn stacks(files: &[&OsString], out: &mut dyn Write) -> Result<i32, Failure> {
    let [file] = files else { return Err(Failure::Usage("stacks: one file".into())) };
    let name = file.to_string_lossy();
    let dump = read(Path::new(file)).map_err(|e| words(&name, &e))?;
    if dump.stacks.is_empty() {
        return Err(words(&"no task stacks in", &name));
    }
    writeln!(out, "  used of bytes  percent  task")?;
    for s in &dump.stacks {
        let size = s.high.saturating_sub(s.low);
        let used = size.saturating_sub(s.untouched);
        let name = dump.threads.iter().find(|t| t.handle == s.handle).map_or("", |t| &t.name);
        let percent = u128::from(used) * 100 / u128::from(size.max(1));
        writeln!(out, "{used:6} of {size:<6} {percent:6}%  {:#x} {name}", s.handle)?;
    }
    Ok(0)
}

fn next(args: &[&OsString], out: &mut dyn Write) -> Result<i32, Failure> {
    let gdb = args.iter().any(|a| *a == "--gdb");
    let folder = args.iter().find(|a| **a != "--gdb").map_or(Path::new("."), |a| Path::new(a));
    let n = number::next(folder).map_err(|e| words(&folder.display(), &e))?;
    if gdb {
        writeln!(out, "set $mdd_next = {n}")?
    } else {
        writeln!(out, "mddout.{n}")?
    }
    Ok(0)
}

fn extract(args: &[&OsString], err: &mut dyn Write) -> Result<i32, Failure> {
    let (mut base, mut to, mut from) = (None, None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if *arg == "--base" {
            let text = rest.next().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
            let digits = text.strip_prefix("0x").unwrap_or(&text);
            let value = u64::from_str_radix(digits, 16);
            base = Some(value.map_err(|_| Failure::Usage(format!("extract: {text} is no address")))?);
        } else if *arg == "-o" {
            to = rest.next().map(PathBuf::from);
        } else if from.is_none() {
            from = Some(PathBuf::from(arg));
        } else {
            return Err(Failure::Usage("extract: one image".into()));
        }
    }
    let Some(from) = from else { return Err(Failure::Usage("extract: an image is missing".into())) };
    let shown = from.display();
    let bytes = fs::read(&from).map_err(|e| words(&shown, &e))?;
    let found = if bytes.starts_with(&layout::MAGIC) && base.is_none() {
        raw::split(&bytes).map(|r| (r.to_file(), r.problems.clone()))
    } else {
        let image = match base {
            Some(base) => Ok(Image::raw(&bytes, Some(base))),
            None => Image::parse(&bytes),
        };
        image.and_then(|image| image.find().map(|r| (r.to_file(), r.problems.clone())))
    };
    let (file, problems) = found.map_err(|e| words(&shown, &e))?;
    for problem in problems {
        writeln!(err, "highwater: {shown}: {problem}")?;
    }
    let to = match to {
        Some(to) => to,
        None => next_file(Path::new("."))?,
    };
    fs::write(&to, &file).map_err(|e| words(&to.display(), &e))?;
    writeln!(err, "highwater: wrote {}, {} bytes", to.display(), file.len())?;
    Ok(0)
}

fn import(args: &[&OsString], err: &mut dyn Write) -> Result<i32, Failure> {
    let (mut to, mut files) = (None, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if *arg == "-o" { to = rest.next().map(PathBuf::from) } else { files.push(PathBuf::from(arg)) }
    }
    let Some(to) = to else { return Err(Failure::Usage("import: -o OUT.hwt is missing".into())) };
    let exe = files.first().filter(|f| ecos::is_executable(f.as_os_str())).cloned();
    let files = files.split_off(usize::from(exe.is_some()));
    if files.is_empty() {
        return Err(Failure::Usage("import: a dump is missing".into()));
    }
    let done = crate::import::read(crate::import::Format::Mddout, &files, exe.as_deref());
    let done = done.map_err(|e| Failure::Words(e.to_string()))?;
    let written = done.recording.write(&to, WriterOptions::default());
    written.map_err(|e| Failure::Words(e.to_string()))?;
    writeln!(err, "highwater: wrote {}: {} events", to.display(), done.recording.events.len())?;
    for warning in &done.warnings {
        writeln!(err, "highwater: {warning}")?;
    }
    Ok(0)
}

fn next_file(folder: &Path) -> Result<PathBuf, Failure> {
    let n = number::next(folder).map_err(|e| words(&folder.display(), &e))?;
    Ok(folder.join(format!("mddout.{n}")))
}

/// Where frames come from.
fn source(kind: &str, name: &str) -> io::Result<Box<dyn Read>> {
    Ok(match kind {
        "--tcp" => Box::new(TcpStream::connect(name)?),
        "--listen" => Box::new(TcpListener::bind(name)?.accept()?.0),
        // a serial device is set to its speed by stty beforehand
        _ => Box::new(fs::File::open(name)?),
    })
}

/// Where `receive` keeps what is not whole yet.
const PART: &str = "mddout.part";

fn receive(args: &[&OsString], out: &mut dyn Write, err: &mut dyn Write) -> Result<i32, Failure> {
    let (mut from, mut count, mut folder) = (None, None, PathBuf::from("."));
    let mut rest = args.iter().map(|a| a.to_string_lossy());
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().ok_or(Failure::Usage(format!("receive: {arg} needs a value")));
        match &*arg {
            "--tcp" | "--listen" | "--file" | "--serial" => from = Some((arg.to_string(), value()?)),
            "--count" => {
                let text = value()?;
                let n = text.parse::<u64>();
                count = Some(n.map_err(|_| Failure::Usage(format!("receive: {text} is no number")))?);
            }
            other => folder = PathBuf::from(other),
        }
    }
    let Some((kind, name)) = from else { return Err(Failure::Usage("receive: from where?".into())) };
    let mut line = source(&kind, &name).map_err(|e| words(&name, &e))?;
    let mut receiver = Receiver::new();
    // what an earlier receiver had of a dump that was cut off
    let kept = folder.join(PART);
    if let Ok(bytes) = fs::read(&kept) {
        receiver.push(&bytes);
    }
    let mut buffer = vec![0; 4096];
    let mut dumps = 0;
    while count != Some(dumps) {
        let n = match line.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(words(&name, &e)),
        };
        for event in receiver.push(buffer.get(..n).unwrap_or_default()) {
            match event {
                Received::Dump(bytes) => {
                    let to = next_file(&folder)?;
                    fs::write(&to, &bytes).map_err(|e| words(&to.display(), &e))?;
                    writeln!(out, "{}", to.display())?;
                    dumps += 1;
                }
                Received::Holes { dump, missing, length } => {
                    let text = "send it again and only they will be taken";
                    writeln!(err, "highwater: dump {dump}: {missing} of {length} bytes are missing; {text}")?;
                }
            }
        }
    }
    let unfinished: Vec<_> = receiver.unfinished().collect();
    if unfinished.is_empty() {
        match fs::remove_file(&kept) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(words(&kept.display(), &e)),
            _ => {}
        }
    } else {
        fs::write(&kept, receiver.keep()).map_err(|e| words(&kept.display(), &e))?;
    }
    for (dump, bytes) in &unfinished {
        writeln!(err, "highwater: dump {dump} is not whole: {bytes} bytes of it came, kept in {PART}")?;
    }
    Ok(if dumps == 0 || !unfinished.is_empty() { 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::receive::frames;
    use crate::mddout::{parse, write};

    fn runs(args: &[&str]) -> (i32, String, String) {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&args, &mut out, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn check_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mddout.0");
        let name = path.to_str().unwrap();
        let bytes = write::file(&write::sample());
        fs::write(&path, &bytes).unwrap();
        let (status, out, _) = runs(&["check", name]);
        assert_eq!((status, out), (0, format!("{name}: good: 2 live blocks of 30 bytes, 1 released\n")));
        fs::write(&path, &bytes[..bytes.len() - 80]).unwrap();
        let (status, out, _) = runs(&["check", name]);
        assert!(status == 1 && out.contains("DAMAGED") && out.contains("ends inside"), "{out}");
        assert_eq!(runs(&["check", "/nowhere"]).0, 2);
    }

    #[test]
    fn next_counts_and_speaks_gdb() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mddout.4"), "").unwrap();
        let name = folder.path().to_str().unwrap();
        assert_eq!(runs(&["next", name]).1, "mddout.5\n");
        assert_eq!(runs(&["next", "--gdb", name]).1, "set $mdd_next = 5\n");
    }

    #[test]
    fn extract_makes_a_file_of_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let dump = write::sample();
        let (image, to) = (folder.path().join("ram.bin"), folder.path().join("mddout.0"));
        let base = dump.self_addr - 100;
        fs::write(&image, write::memory(&dump, base)).unwrap();
        let (image, to) = (image.to_str().unwrap(), to.to_str().unwrap());
        assert_eq!(runs(&["extract", image, "-o", to]).0, 0);
        assert_eq!(parse(&fs::read(to).unwrap()).unwrap(), dump);
        assert_eq!(runs(&["extract", "--base", &format!("{base:#x}"), image, "-o", to]).0, 0);
        // at the wrong place the header does not lie where it says
        assert_eq!(runs(&["extract", "--base", "0x100", image, "-o", to]).0, 2);
    }

    #[test]
    fn receive_out_of_a_file_and_over_tcp() {
        let folder = tempfile::tempdir().unwrap();
        let file = write::file(&write::sample());
        let mut line = b"boot messages\n".to_vec();
        line.extend(frames(4, &file, 100).concat());
        let log = folder.path().join("line.log");
        fs::write(&log, &line).unwrap();
        let (status, out, _) =
            runs(&["receive", "--file", log.to_str().unwrap(), folder.path().to_str().unwrap()]);
        assert_eq!((status, out.trim()), (0, folder.path().join("mddout.0").to_str().unwrap()));
        assert_eq!(fs::read(folder.path().join("mddout.0")).unwrap(), file);

        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let sender = std::thread::spawn(move || server.accept().unwrap().0.write_all(&line).unwrap());
        let (status, ..) = runs(&["receive", "--tcp", &address, folder.path().to_str().unwrap()]);
        sender.join().unwrap();
        assert_eq!(status, 0);
        assert_eq!(fs::read(folder.path().join("mddout.1")).unwrap(), file);
    }

    #[test]
    fn receive_takes_up_where_it_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let file = write::file(&write::sample());
        let line = frames(4, &file, 100).concat();
        let log = folder.path().join("line.log");
        let (log, to) = (log.to_str().unwrap(), folder.path().to_str().unwrap());
        fs::write(log, &line[..300]).unwrap();
        let (status, _, err) = runs(&["receive", "--file", log, to]);
        assert!(status == 1 && err.contains("200 bytes of it came"), "{err}");
        fs::write(log, &line[240..]).unwrap();
        assert_eq!(runs(&["receive", "--file", log, to]).0, 0);
        assert_eq!(fs::read(folder.path().join("mddout.0")).unwrap(), file);
        assert!(!folder.path().join(PART).exists());
    }

    #[test]
    fn stacks_are_listed_and_the_four_commands_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mddout.0");
        fs::write(&path, write::file(&write::sample())).unwrap();
        let name = path.to_str().unwrap();
        assert!(runs(&["stacks", name]).1.contains("424 of 1024       41%  0x20000200 main"));
        assert!(runs(&["stats", name]).1.contains("History   : 3 memory allocations, 1 frees"));
        assert_eq!((runs(&[]).0, runs(&["--help"]).0, runs(&["frob"]).0), (2, 0, 2));
    }
}
