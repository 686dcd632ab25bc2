//! The recorder's side of the control socket. There is no thread: the loop that
//! drains the rings looks whether somebody has written, which costs one system
//! call and never waits.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use super::place::{self, ENDING, Folder};
use super::protocol::{self, MAX_LINE, Reply, Request};
use crate::live::Answer;

/// Clients at a time; more wait in the socket's queue.
const MOST_CLIENTS: usize = 8;
/// How long a client may say nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the socket is looked at.
const LOOKS: Duration = Duration::from_millis(1);
/// A socket that nobody answers may be a moment old: bound, not yet listening.
const STALE: Duration = Duration::from_secs(5);

/// Who asked, for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(u64);

struct Client {
    caller: Caller,
    stream: UnixStream,
    line: Vec<u8>,
    heard: Instant,
    /// It waits for a reply; what it says meanwhile waits too.
    waits: bool,
}

/// A listening control socket. Its file goes away with it.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Keeps the path valid.
    folder: Folder,
    inode: u64,
    clients: Vec<Client>,
    /// Slices that are being written: for whom, the answer, its time.
    slices: Vec<(Caller, Answer, u64)>,
    next: u64,
    looked: Instant,
}

impl Server {
    /// Listens as `PID.sock`.
    ///
    /// # Errors
    /// There is no folder for it, or the system refuses the socket.
    pub fn start(pid: u32) -> io::Result<Server> {
        Server::start_in(Folder::provide()?, pid)
    }

    /// Listens in this folder.
    ///
    /// # Errors
    /// As the system says.
    pub fn start_in(folder: Folder, pid: u32) -> io::Result<Server> {
        sweep(&folder);
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        // Only a process of another name space can have the same number.
        for attempt in 0..16 {
            let name = match attempt {
                0 => format!("{pid}{ENDING}"),
                n => format!("{pid}.{n}{ENDING}"),
            };
            let path = folder.path_of(&OsString::from(name));
            if is_dead(&path) {
                // Left by a recorder that was killed; its target's number is ours now.
                let _ = fs::remove_file(&path);
            }
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                    listener.set_nonblocking(true)?;
                    let inode = fs::symlink_metadata(&path)?.ino();
                    let clients = Vec::new();
                    let looked = Instant::now();
                    let slices = Vec::new();
                    return Ok(Server { listener, path, folder, inode, clients, slices, next: 0, looked });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Where it is, for people.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(self.path.file_name().unwrap_or_default())
    }

    /// The next request, if there is one. Never waits; looks at the socket once
    /// a millisecond at most. Every request wants one [`Server::reply`].
    pub fn next_request(&mut self) -> Option<(Caller, Request)> {
        if self.looked.elapsed() < LOOKS {
            return None;
        }
        let found = self.look();
        if found.is_none() {
            // With more to do the next look comes at once.
            self.looked = Instant::now();
        }
        found
    }

    /// Does somebody want to be accepted? (To accept nobody costs several times as
    /// much: the kernel makes a socket first, and throws it away.)
    fn is_called(&self) -> bool {
        let mut listener = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, alive; no waiting.
        unsafe { libc::poll(&raw mut listener, 1, 0) == 1 }
    }

    fn look(&mut self) -> Option<(Caller, Request)> {
        while self.clients.len() < MOST_CLIENTS && self.is_called() {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if !is_allowed(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let caller = Caller(self.next);
            self.next += 1;
            let heard = Instant::now();
            self.clients.push(Client { caller, stream, line: Vec::new(), heard, waits: false });
        }
        let mut found = None;
        self.clients.retain_mut(|client| {
            if found.is_some() || client.waits {
                return true;
            }
            match client.hear() {
                Heard::Nothing => client.heard.elapsed() < PATIENCE,
                Heard::End => false,
                Heard::Line(line) => match protocol::from_line(&line) {
                    Ok(request) => {
                        client.waits = true;
                        found = Some((client.caller, request));
                        true
                    }
                    Err(reason) => client.say(&Reply::Refused { reason }),
                },
            }
        });
        found
    }

    /// A request is answered when the slice of this time is written.
    pub fn wait_for(&mut self, caller: Caller, answer: Answer, ns: u64) {
        self.slices.push((caller, answer, ns));
    }

    /// Answers requests whose slices are written by now.
    pub fn reply_later(&mut self) {
        let mut ready = Vec::new();
        self.slices.retain(|(caller, answer, ns)| {
            let reply = match answer.try_recv() {
                Err(TryRecvError::Empty) => return true,
                Ok(Ok(())) => Reply::Sliced { ns: *ns },
                Ok(Err(reason)) => Reply::Refused { reason },
                Err(TryRecvError::Disconnected) => {
                    Reply::Refused { reason: "the thread that makes slices has failed".to_owned() }
                }
            };
            ready.push((*caller, reply));
            false
        });
        for (caller, reply) in ready {
            self.reply(caller, &reply);
        }
    }

    /// Answers a request.
    pub fn reply(&mut self, to: Caller, reply: &Reply) {
        // A client that has gone has no use for it.
        self.clients.retain_mut(|client| client.caller != to || client.say(reply));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Somebody may have put a socket of their own there.
        if fs::symlink_metadata(&self.path).is_ok_and(|facts| facts.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

enum Heard {
    Nothing,
    Line(Vec<u8>),
    End,
}

impl Client {
    fn hear(&mut self) -> Heard {
        loop {
            if let Some(at) = self.line.iter().position(|&byte| byte == b'\n') {
                let rest = self.line.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.line, rest);
                line.pop();
                return Heard::Line(line);
            }
            if self.line.len() > MAX_LINE {
                return Heard::End;
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::End,
                Ok(n) => {
                    self.heard = Instant::now();
                    self.line.extend_from_slice(buffer.get(..n).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
                Err(_) => return Heard::End,
            }
        }
    }

    /// Says something; false if the client is not worth keeping.
    fn say(&mut self, reply: &Reply) -> bool {
        self.waits = false;
        self.heard = Instant::now();
        // A reply is far smaller than a socket's buffer: what does not go in at
        // once goes to somebody who does not read.
        self.stream.write_all(protocol::to_line(reply).as_bytes()).is_ok()
    }
}

/// Is the other end ours (or root's)?
fn is_allowed(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: our own descriptor and a buffer of the type and size that the option fills.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    result == 0 && (peer.uid == 0 || peer.uid == place::user())
}

/// Is this a socket at which nobody listens?
pub(super) fn is_dead(path: &std::path::Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes sockets of recorders that were killed.
pub(super) fn sweep(folder: &Folder) {
    for name in folder.names() {
        let path = folder.path_of(&name);
        let old = fs::symlink_metadata(&path)
            .and_then(|facts| facts.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE));
        if old && is_dead(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{from_line, to_line};

    fn server(base: &std::path::Path) -> Server {
        fs::set_permissions(base, fs::Permissions::from_mode(0o700)).unwrap();
        Server::start_in(Folder::open(base).unwrap(), 77).unwrap()
    }

    fn next(server: &mut Server) -> (Caller, Request) {
        for _ in 0..2000 {
            if let Some(found) = server.next_request() {
                return found;
            }
            std::thread::sleep(LOOKS);
        }
        panic!("no request came");
    }

    fn answer(stream: &mut UnixStream) -> Reply {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            bytes.push(byte[0]);
        }
        from_line(&bytes).unwrap()
    }

    #[test]
    fn requests_come_one_by_one_and_replies_go_to_who_asked() {
        let base = tempfile::tempdir().unwrap();
        let mut server = server(base.path());
        let path = base.path().join("77.sock");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(server.path(), path);
        let mut one = UnixStream::connect(&path).unwrap();
        let mut two = UnixStream::connect(&path).unwrap();
        let mark = |name: &str| Request::Mark { name: name.to_owned() };
        // Two requests in one go, then one in two goes.
        let both = to_line(mark("a")) + &to_line(mark("b"));
        one.write_all(both.as_bytes()).unwrap();
        let (caller, request) = next(&mut server);
        assert_eq!(request, mark("a"));
        let line = to_line(Request::Status);
        let (front, back) = line.split_at(9);
        two.write_all(front.as_bytes()).unwrap();
        assert!(server.look().is_none(), "the first waits for its reply, the second has said half");
        two.write_all(back.as_bytes()).unwrap();
        let (other, request) = next(&mut server);
        assert_eq!(request, Request::Status);
        server.reply(other, &Reply::Marked { ns: 2 });
        server.reply(caller, &Reply::Marked { ns: 1 });
        assert_eq!(answer(&mut two), Reply::Marked { ns: 2 });
        assert_eq!(answer(&mut one), Reply::Marked { ns: 1 });
        assert_eq!(next(&mut server).1, mark("b"));
    }

    #[test]
    fn nonsense_is_answered_and_a_flood_is_cut_off() {
        let base = tempfile::tempdir().unwrap();
        let mut server = server(base.path());
        let mut stream = UnixStream::connect(base.path().join("77.sock")).unwrap();
        stream.write_all(b"what?\n").unwrap();
        std::thread::sleep(2 * LOOKS);
        assert!(server.next_request().is_none());
        assert!(matches!(answer(&mut stream), Reply::Refused { .. }));
        stream.set_nonblocking(true).unwrap();
        let flood = [b'x'; 4096];
        for _ in 0..1000 {
            let _ = stream.write(&flood);
            assert!(server.look().is_none());
        }
        assert!(server.clients.is_empty(), "a line without an end is no request");
    }

    #[test]
    fn the_socket_goes_with_its_server_and_a_killed_ones_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("77.sock");
        drop(server(base.path()));
        assert!(!path.exists());
        // A killed recorder leaves its file behind.
        drop(UnixListener::bind(&path).unwrap());
        assert!(is_dead(&path));
        let alive = server(base.path());
        assert_eq!(alive.path(), path);
        assert!(!is_dead(&path));
        // A second one of the same number steps aside.
        let second = server(base.path());
        assert_eq!(second.path(), base.path().join("77.1.sock"));
        drop(alive);
        drop(second);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn old_sockets_of_others_that_died_are_swept_and_fresh_ones_are_not() {
        let base = tempfile::tempdir().unwrap();
        let (old, fresh) = (base.path().join("1.sock"), base.path().join("2.sock"));
        drop(UnixListener::bind(&old).unwrap());
        drop(UnixListener::bind(&fresh).unwrap());
        let file = fs::File::open(base.path()).unwrap();
        let past = libc::timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        // SAFETY: an open folder, a zero-terminated name, two times.
        let result = unsafe { libc::utimensat(file.as_raw_fd(), c"1.sock".as_ptr(), [past; 2].as_ptr(), 0) };
        assert_eq!(result, 0);
        let _server = server(base.path());
        assert!(!old.exists());
        assert!(fresh.exists());
    }
}
