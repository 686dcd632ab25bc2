//! Servers that run for a while: nothing grows where they are clean, and a
//! planted leak stands first.

use highwater_tests::highwater::record_with;
use highwater_tests::{Highwater, Program, number};
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

/// The suspects of the server, with these arguments.
#[track_caller]
fn suspects(arguments: &[&str]) -> Vec<Value> {
    let recorded = record_with(&["-q"], |child| {
        child.args(["--", "/usr/bin/python3"]).args(["-c", HTTP]).args(arguments)
    })
    .expect_code(0);
    let json = Highwater::json(&["leaks"], &recorded.trace);
    assert!(number(&recorded.stats(), "allocations") > 10_000, "python allocates");
    json["suspects"].as_array().expect("suspects").clone()
}

#[test]
fn an_http_server_does_not_grow() {
    let found = suspects(&[]);
    let growing = found.iter().find(|one| one["verdict"] == "GROWTH" || one["verdict"] == "LEAK");
    assert!(growing.is_none(), "{growing:#?}");
}

#[test]
fn what_an_http_server_loses_with_each_request_stands_first() {
    let library = Program::new("leak_per_request.c").flags(&["-shared", "-fPIC"]).build();
    let found = suspects(&[library.to_str().expect("a path")]);
    let first = found.first().expect("a suspect");
    assert_eq!(first["function"], "leak_per_request", "{found:#?}");
    assert!(first["methods"].as_array().is_some_and(|methods| methods.iter().any(|one| one == "growth")));
    let reason = first["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("every block made there stays"), "{reason}");
}
