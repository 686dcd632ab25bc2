//! Real programs: in servers that run for a while nothing grows where they are
//! clean, and a planted leak stands first; programs that only start leak nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_tests::child::wait_until;
use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Highwater, Program, number, tools};
use serde_json::Value;

/// Python's HTTP server on the loopback, its own client, and for each request a
/// call of the library that is named on the command line.
const HTTP: &str = "\
import sys, ctypes, http.server, threading, urllib.request
library = ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if library: library.leak_per_request()
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *rest): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
thread = threading.Thread(target=server.serve_forever, args=(0.01,))
thread.start()
for request in range(400):
    urllib.request.urlopen('http://127.0.0.1:%d/' % server.server_port).read()
server.shutdown()
thread.join()
server.server_close()
";

/// The same in node, four requests at a time.
const NODE: &str = "\
const http = require('http'); let left = 1200, busy = 4;
const server = http.createServer((request, reply) => reply.end('ok'));
server.listen(0, '127.0.0.1', () => {
    const port = server.address().port;
    const one = () => {
        if (left-- <= 0) { if (--busy === 0) server.close(); return; }
        http.get({port}, reply => { reply.resume(); reply.on('end', one); });
    };
    for (let i = 0; i < 4; i++) one();
});
";

/// Commands of redis-benchmark; each is another one's first.
const COMMANDS: &str = "ping,get,set,incr,lpush,lpop,sadd";

/// The suspects of a trace. `made` is the least that the server allocates.
#[track_caller]
fn suspects(trace: &Path, made: i64) -> Vec<Value> {
    let stats = Highwater::json(&["stats"], trace);
    assert!(number(&stats, "allocations") > made, "{stats:#}");
    Highwater::json(&["leaks"], trace)["suspects"].as_array().expect("suspects").clone()
}

/// No suspect grows or is lost.
#[track_caller]
fn clean(suspects: &[Value]) {
    let growing = suspects.iter().find(|one| one["verdict"] == "GROWTH" || one["verdict"] == "LEAK");
    assert!(growing.is_none(), "{growing:#?}");
}

/// The first suspect is `function`, which grows, and there is no other.
#[track_caller]
fn planted(suspects: &[Value], function: &str) -> String {
    let first = suspects.first().expect("a suspect");
    assert_eq!(first["function"], function, "{suspects:#?}");
    assert!(first["methods"].as_array().is_some_and(|methods| methods.iter().any(|one| one == "growth")));
    clean(&suspects[1..]);
    first["reason"].as_str().expect("a reason").to_string()
}

#[track_caller]
fn python(arguments: &[&str]) -> Vec<Value> {
    let recorded = record_with(&["-q"], |child| {
        child.args(["--", "/usr/bin/python3"]).args(["-c", HTTP]).args(arguments)
    })
    .expect_code(0);
    suspects(&recorded.trace, 10_000)
}

#[test]
fn an_http_server_does_not_grow() {
    clean(&python(&[]));
}

#[test]
fn what_an_http_server_loses_with_each_request_stands_first() {
    let library = Program::new("leak_per_request.c").flags(&["-shared", "-fPIC"]).build();
    let found = python(&[library.to_str().expect("a path")]);
    let first = found.first().expect("a suspect");
    assert_eq!(first["function"], "leak_per_request", "{found:#?}");
    assert!(first["methods"].as_array().is_some_and(|methods| methods.iter().any(|one| one == "growth")));
    let reason = first["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("every block made there stays"), "{reason}");
}

/// A library that loses a block with each reply.
fn leak_per_write() -> PathBuf {
    Program::new("leak_per_write.c").flags(&["-shared", "-fPIC"]).build()
}

/// Preloads it beside the agent, if there is one.
fn preload(child: Child, server: &str, library: Option<&Path>) -> Child {
    match library {
        Some(library) => child.env("LD_PRELOAD", library).env("LEAK_IN", server),
        None => child,
    }
}

/// The suspects of a redis server under its benchmark, through a Unix socket.
#[track_caller]
fn redis(options: &[&str], library: Option<&Path>) -> Vec<Value> {
    let folder = highwater_tests::folder();
    let (trace, socket) = (folder.path().join("redis.hwt"), folder.path().join("s"));
    let run = Highwater::command(["run", "-q", "-o"]).arg(&trace).args(options);
    let server = preload(run, "redis-server", library)
        .arg("--")
        .arg(tools::need("redis-server"))
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(&socket)
        .limit(Duration::from_secs(120))
        .start();
    let cli = |args: &[&str]| Child::new(tools::need("redis-cli")).arg("-s").arg(&socket).args(args).run();
    wait_until("redis answers", Duration::from_secs(30), || {
        socket.exists() && cli(&["ping"]).stdout() == "PONG\n"
    });
    Child::new(tools::need("redis-benchmark"))
        .arg("-s")
        .arg(&socket)
        .args(["-n", "2000", "-c", "10", "-q", "-t", COMMANDS])
        .limit(Duration::from_secs(90))
        .run()
        .expect_code(0);
    cli(&["shutdown", "nosave"]);
    server.wait().expect_code(0);
    suspects(&trace, 10_000)
}

#[test]
fn what_redis_makes_for_each_command_that_comes_up_first_was_called_growth() {
    clean(&redis(&[], None));
}

#[test]
fn a_clean_redis_loses_nothing() {
    clean(&redis(&["--leak-check"], None));
}

#[test]
fn what_redis_loses_with_each_reply_stands_first() {
    let reason = planted(&redis(&[], Some(&leak_per_write())), "lose_a_reply");
    assert!(reason.starts_with("every block made there stays"), "{reason}");
}

#[test]
fn what_interpreters_make_to_start_was_called_growth() {
    let perl = tools::need("perl");
    let python = Path::new("/usr/bin/python3");
    for (program, args) in [(perl.as_path(), ["-e", "print 1"]), (python, ["-c", "import json, http.client"])]
    {
        let recorded = record_with(&["-q"], |child| child.arg("--").arg(program).args(args)).expect_code(0);
        clean(&suspects(&recorded.trace, 500));
    }
}

#[test]
fn the_certificates_that_node_loads_were_called_leaks() {
    let recorded = record_with(&["-q"], |child| {
        child.arg("--").arg(tools::need("node")).args(["-e", NODE]).limit(Duration::from_secs(240))
    })
    .expect_code(0);
    clean(&suspects(&recorded.trace, 100_000));
}

#[test]
fn what_node_loses_with_each_reply_stands_first() {
    let library = leak_per_write();
    let recorded = record_with(&["-q"], |child| {
        preload(child, "node", Some(&library))
            .arg("--")
            .arg(tools::need("node"))
            .args(["-e", NODE])
            .limit(Duration::from_secs(240))
    })
    .expect_code(0);
    planted(&suspects(&recorded.trace, 100_000), "lose_a_reply");
}
