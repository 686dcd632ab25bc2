//! Real servers and heavy programs: the same results as without highwater,
//! nothing missing. Small forms in the suite, full ones in a soak.

use std::path::Path;
use std::time::Duration;

use highwater_tests::child::wait_until;
use highwater_tests::highwater::record_with;
use highwater_tests::scale::{note, soak, times};
use highwater_tests::{Child, Highwater, number, tools};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(600);

/// What every recording must say of itself.
#[track_caller]
fn flawless(stats: &Value) {
    assert_eq!(stats["complete"], true, "{stats:#}");
    assert_eq!(number(stats, "dropped"), 0, "{stats:#}");
    assert_eq!(number(&stats["errors"], "double_free"), 0, "{stats:#}");
    assert_eq!(number(&stats["errors"], "invalid_free"), 0, "{stats:#}");
    assert_eq!(
        number(stats, "allocations") - number(stats, "frees"),
        number(stats, "live_blocks"),
        "{stats:#}"
    );
}

fn seen(what: &str, stats: &Value) {
    let events = number(stats, "events");
    let (good, cut) = (number(&stats["stacks"], "complete"), number(&stats["stacks"], "truncated"));
    note(
        what,
        &format!("{events} events, {good} stacks complete, {cut} cut and said so; same result as without"),
    );
}

/// Starts a redis server with `start`, loads and benchmarks it, stops it; the
/// digest of its data.
fn redis(start: impl FnOnce(&Path) -> Child) -> String {
    let folder = highwater_tests::folder();
    let socket = folder.path().join("s");
    let server = start(folder.path())
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--enable-debug-command", "local", "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(&socket)
        .limit(LONG)
        .start();
    let cli = |args: &[&str], input: &str| -> String {
        let ended = Child::new(tools::need("redis-cli"))
            .arg("-s")
            .arg(&socket)
            .args(args)
            .input(input.as_bytes())
            .limit(LONG)
            .run();
        ended.expect_code(0).stdout()
    };
    wait_until("redis answers", Duration::from_secs(30), || {
        socket.exists()
            && Child::new(tools::need("redis-cli")).arg("-s").arg(&socket).arg("ping").run().stdout()
                == "PONG\n"
    });
    let load: String = (0..5000)
        .map(|i| {
            format!("SET key{i} value{}\nLPUSH list{} {i}\nHSET hash{} f{i} {i}\n", i * 7, i % 50, i % 20)
        })
        .collect();
    cli(&[], &load);
    let requests = times(3000, 1_000_000).to_string();
    Child::new(tools::need("redis-benchmark"))
        .arg("-s")
        .arg(&socket)
        .args(["-n", &requests, "-c", "20", "-q", "-t", "ping,get,set"])
        .limit(LONG)
        .run()
        .expect_code(0);
    cli(&["del", "key:__rand_int__"], "");
    let digest = cli(&["debug", "digest"], "");
    Child::new(tools::need("redis-cli")).arg("-s").arg(&socket).args(["shutdown", "nosave"]).run();
    server.wait().expect_code(0);
    digest
}

#[test]
fn redis_under_its_benchmark() {
    let server = tools::need("redis-server");
    let plain = redis(|_| Highwater::plain(&server));
    let home = highwater_tests::folder();
    let trace = home.path().join("redis.hwt");
    let recorded = redis(|_| Highwater::command(["run", "-q", "-o"]).arg(&trace).arg("--").arg(&server));
    assert_eq!(recorded, plain, "the digest of all data");
    let stats = Highwater::json(&["stats"], &trace);
    flawless(&stats);
    assert!(number(&stats, "allocations") > 15_000, "{stats:#}");
    seen("redis-server under redis-benchmark", &stats);
}

#[test]
fn a_node_server_and_its_clients() {
    let requests = times(300, 20_000);
    let script = format!(
        "const http = require('http'); let left = {requests}, sum = 0;\n\
         const server = http.createServer((q, r) => {{ let n = 0; q.on('data', d => n += d.length);\n\
           q.on('end', () => r.end(JSON.stringify({{n, url: q.url, pad: 'x'.repeat(500)}}))); }});\n\
         server.listen(0, '127.0.0.1', () => {{ const port = server.address().port;\n\
           const one = () => {{ if (left-- <= 0) {{ if (--busy === 0) {{ console.log(sum); server.close(); }} return; }}\n\
             const q = http.request({{port, path: '/' + left, method: 'POST'}}, r => {{ let t = '';\n\
               r.on('data', d => t += d); r.on('end', () => {{ sum += JSON.parse(t).n; one(); }}); }});\n\
             q.end('y'.repeat(left % 1000)); }};\n\
           let busy = 8; for (let i = 0; i < 8; i++) one(); }});"
    );
    let node = tools::need("node");
    let plain = Highwater::plain(&node).args(["-e", &script]).limit(LONG).run().expect_code(0);
    let recorded = record_with(&["-q"], |child| child.limit(LONG).arg("--").arg(&node).args(["-e", &script]))
        .expect_code(0);
    assert_eq!(recorded.ended.stdout(), plain.stdout());
    let stats = recorded.stats();
    flawless(&stats);
    assert!(number(&stats, "threads") > 1, "{stats:#}");
    seen("a node HTTP server", &stats);
}

#[test]
fn sqlite_with_many_rows() {
    let rows = times(50_000, 1_000_000);
    let sql = format!(
        "create table t(a integer primary key, b text, c real); \
         with recursive n(x) as (select 1 union all select x+1 from n where x<{rows}) \
         insert into t select x, printf('%d-%d', x*7919%{rows}, x), x/3.0 from n; create index i on t(b); \
         select count(*), sum(length(b)), max(b), round(sum(c)) from t; \
         select a%7, count(*), group_concat(substr(b,1,1)) from (select * from t order by b limit 1000) group by 1;"
    );
    let sqlite = tools::need("sqlite3");
    let plain = Highwater::plain(&sqlite).args([":memory:", &sql]).limit(LONG).run().expect_code(0);
    let recorded =
        record_with(&["-q"], |child| child.limit(LONG).arg("--").arg(&sqlite).args([":memory:", &sql]))
            .expect_code(0);
    assert_eq!(recorded.ended.stdout(), plain.stdout());
    let stats = recorded.stats();
    flawless(&stats);
    seen(&format!("sqlite3 with {rows} rows"), &stats);
}

#[test]
fn the_cpp_compiler_makes_the_same_object() {
    let folder = highwater_tests::folder();
    let mut text = String::from("#include <map>\n#include <string>\n#include <vector>\n");
    if soak() {
        text += "#include <algorithm>\n#include <iostream>\n#include <regex>\n#include <thread>\n#include <unordered_map>\n\
                 bool m(const std::string &s) { return std::regex_match(s, std::regex(\"a+b\")); }\n";
    }
    text += "std::map<std::string, std::vector<int>> f(int n) { std::map<std::string, std::vector<int>> m; \
             for (int i = 0; i < n; i++) m[std::to_string(i % 7)].push_back(i); return m; }\n";
    let (compiler, source) = tools::cc1plus(folder.path(), &text);
    let compile = |child: Child, out: &Path| {
        child.args(["-fpreprocessed", "-quiet", "-O1"]).arg(&source).arg("-o").arg(out).limit(LONG)
    };
    let (one, two) = (folder.path().join("one.s"), folder.path().join("two.s"));
    compile(Highwater::plain(&compiler), &one).run().expect_code(0);
    let recorded = record_with(&["-q"], |child| compile(child.arg("--").arg(&compiler), &two)).expect_code(0);
    assert!(std::fs::read(&one).expect("assembly") == std::fs::read(&two).expect("assembly"));
    let stats = recorded.stats();
    flawless(&stats);
    seen("a g++ compile (cc1plus)", &stats);
}

#[test]
fn git_gc_leaves_a_whole_repository() {
    let folder = highwater_tests::folder();
    let home = folder.path().join("repository");
    std::fs::create_dir(&home).expect("a folder");
    let git = tools::need("git");
    let in_home = |child: Child| {
        [("HOME", home.as_os_str()), ("GIT_CONFIG_NOSYSTEM", "1".as_ref())]
            .into_iter()
            .chain(
                ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]
                    .map(|name| (name, "n".as_ref())),
            )
            .fold(child.cwd(&home).limit(LONG), |child, (name, value)| child.env(name, value))
    };
    let run = |args: &[&str]| in_home(Child::new(&git)).args(args).run().expect_code(0).stdout();
    run(&["init", "-q"]);
    // No second gc, begun by a commit and left in the background.
    run(&["config", "gc.auto", "0"]);
    for commit in 0..times(8, 200) {
        for file in 0..30 {
            std::fs::write(
                home.join(format!("f{file}")),
                format!("{commit} {file}\n").repeat(50 + (commit * file) % 90),
            )
            .expect("a file");
        }
        run(&["add", "."]);
        run(&["commit", "-q", "-m", "next"]);
    }
    let before = run(&["rev-list", "--objects", "--all"]);
    let recorded =
        record_with(&["-q"], |child| in_home(child).arg("--").arg(&git).args(["gc", "-q", "--prune=now"]))
            .expect_code(0);
    assert_eq!(run(&["rev-list", "--objects", "--all"]), before);
    run(&["fsck", "--full", "--strict"]);
    let stats = recorded.stats();
    flawless(&stats);
    seen("git gc", &stats);
    // What it does itself; its children are others. pack-objects is where the work is, so it too.
    let recorded = record_with(&["-q"], |child| {
        in_home(child).arg("--").arg(&git).args(["pack-objects", "--all", "--stdout", "-q", "--threads=2"])
    })
    .expect_code(0);
    let stats = recorded.stats();
    flawless(&stats);
    seen("git pack-objects with two threads", &stats);
}
