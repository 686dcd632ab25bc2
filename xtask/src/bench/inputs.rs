//! Inputs of the real programs: generated, the same on every machine.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Numerical Recipes' linear congruential generator: the same words everywhere.
struct Random(u32);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % limit.max(1)
    }

    fn word(&mut self) -> String {
        let length = 4 + self.below(9);
        (0..length).map(|_| char::from(b'a' + u8::try_from(self.below(26)).unwrap_or(0))).collect()
    }
}

/// Where the inputs are, and how large: 1.0 is the size of the full run.
pub struct Inputs {
    dir: PathBuf,
    scale: f64,
}

impl Inputs {
    /// Inputs in `dir`, which is created.
    pub fn new(dir: &Path, scale: f64) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir: dir.to_path_buf(), scale })
    }

    /// `count` at the size of the full run, at this size.
    pub fn scaled(&self, count: u32) -> u32 {
        // Counts are far below 2^53, and rounding is all that can happen.
        (f64::from(count) * self.scale).round().max(1.0) as u32
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = self.dir.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// Python: objects, dictionaries, strings, regular expressions, JSON.
    pub fn python(&self) -> anyhow::Result<PathBuf> {
        let text = format!(
            r#"import json, re, collections
class Item:
    def __init__(self, number, name):
        self.number = number
        self.name = name
        self.tags = [name + str(k) for k in range(number % 5)]
def build(count):
    items = [Item(i, "item-%d" % (i * 7919 % 10007)) for i in range(count)]
    groups = collections.defaultdict(list)
    for item in items:
        groups[item.number % 97].append(item)
    return sum(len(item.tags) for group in groups.values() for item in group)
def text(count):
    lines = ["%d, %s, %f" % (i, "word" * (i % 4), i / 3) for i in range(count)]
    fields = [re.split(r",\s*", line) for line in lines]
    return json.dumps(fields), collections.Counter(f for row in fields for f in row)
def walk(value, depth=0):
    return 1 + sum(walk(v, depth + 1) for v in value) if isinstance(value, list) else 1
total = 0
for _ in range({rounds}):
    total += build(6000)
    document, counter = text(5000)
    total += walk(json.loads(document)) + len(counter)
print(total)
"#,
            rounds = self.scaled(4)
        );
        self.write("work.py", &text)
    }

    /// Perl: hashes of lists, regular expressions, sorting.
    pub fn perl(&self) -> anyhow::Result<PathBuf> {
        let text = format!(
            r#"use strict; use warnings;
my ($state, $total) = (7, 0);
sub rnd {{ $state = ($state * 1103515245 + 12345) % 2147483648; return int($state / 65536) % $_[0]; }}
for my $round (1 .. {rounds}) {{
    my %table;
    for my $i (1 .. 30000) {{
        my $key = "key" . rnd(5000);
        push @{{ $table{{$key}} }}, {{ id => $i, text => "some text $i " x (1 + $i % 3) }};
    }}
    for my $key (sort keys %table) {{
        my @long = grep {{ $_->{{text}} =~ /(\d+) some/ }} @{{ $table{{$key}} }};
        $total += @long;
        my $line = join(",", map {{ $_->{{id}} }} @long);
        my @parts = split /,/, $line;
        $total += @parts;
    }}
}}
print "$total\n";
"#,
            rounds = self.scaled(2)
        );
        self.write("work.pl", &text)
    }

    /// SQLite: inserts, an index, joins, aggregates, updates, a trigger.
    pub fn sqlite(&self) -> anyhow::Result<PathBuf> {
        let rows = self.scaled(25_000);
        let mut text = String::from(
            "create table a(id integer primary key, name text, value real);\n\
             create table b(id integer primary key, a_id integer, note text);\nbegin;\n",
        );
        let mut random = Random(5);
        for i in 0..rows {
            let _ =
                writeln!(text, "insert into a values({i}, '{}', {}.5);", random.word(), random.below(9999));
            if i % 3 == 0 {
                let _ = writeln!(
                    text,
                    "insert into b(a_id, note) values({}, '{}');",
                    random.below(rows),
                    random.word()
                );
            }
        }
        text.push_str(
            "commit;\ncreate index a_name on a(name);\ncreate index b_a on b(a_id);\n\
             select count(*), sum(value), max(length(name || '-' || id)) from a;\n\
             select substr(name, 1, 2) g, count(*), group_concat(id) from a group by g having count(*) > 100000;\n\
             select count(*) from a join b on b.a_id = a.id where upper(a.name) || b.note like '%AB%';\n\
             update a set name = name || printf('%d', id) where id % 3 = 0;\n\
             delete from b where id % 5 = 0;\n\
             select count(distinct upper(name)) from a;\n",
        );
        self.write("work.sql", &text)
    }

    /// A JSON document for jq.
    pub fn json(&self) -> anyhow::Result<PathBuf> {
        let mut random = Random(9);
        let mut text = String::from("[\n");
        let count = self.scaled(16_000);
        for i in 0..count {
            let _ = writeln!(
                text,
                "{{\"id\":{i},\"name\":\"{}\",\"score\":{},\"tags\":[\"{}\",\"{}\"],\"at\":{{\"x\":{},\"y\":{}}}}}{}",
                random.word(),
                random.below(1000),
                random.word(),
                random.word(),
                random.below(100),
                random.below(100),
                if i + 1 == count { "" } else { "," }
            );
        }
        text.push_str("]\n");
        self.write("work.json", &text)
    }

    /// An XML document for xmllint.
    pub fn xml(&self) -> anyhow::Result<PathBuf> {
        let mut random = Random(13);
        let mut text = String::from("<?xml version=\"1.0\"?>\n<library>\n");
        for i in 0..self.scaled(40_000) {
            let _ = writeln!(
                text,
                "  <book id=\"b{i}\" shelf=\"{}\"><title>{} {}</title><author born=\"{}\">{}</author><note/></book>",
                random.below(400),
                random.word(),
                random.word(),
                1900 + random.below(99),
                random.word()
            );
        }
        text.push_str("</library>\n");
        self.write("work.xml", &text)
    }

    /// JavaScript for node: objects, closures, strings, buffers.
    pub fn javascript(&self) -> anyhow::Result<PathBuf> {
        let text = format!(
            r#"let total = 0;
for (let round = 0; round < {rounds}; round++) {{
  const rows = [];
  for (let i = 0; i < 20000; i++) rows.push({{ id: i, name: 'n' + (i * 7919 % 10007), tags: [i % 7, i % 11] }});
  const text = JSON.stringify(rows);
  const back = JSON.parse(text);
  const groups = new Map();
  for (const row of back) {{ const k = row.name.slice(0, 3); groups.set(k, (groups.get(k) || []).concat(row.id)); }}
  const packed = require('zlib').deflateSync(Buffer.from(text));
  total += groups.size + packed.length + [...groups.values()].map(v => v.length).reduce((a, b) => a + b, 0);
  for (let i = 0; i < 2000; i++) total += Buffer.alloc(5000 + i).length + new RegExp('a{{' + (i % 9) + '}}').source.length;
}}
console.log(total);
"#,
            rounds = self.scaled(3)
        );
        self.write("work.js", &text)
    }

    /// A large C++ file: standard headers, templates, many functions.
    pub fn cplusplus(&self) -> anyhow::Result<PathBuf> {
        let mut text = String::from(
            "#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n#include <numeric>\n\
             #include <set>\n#include <string>\n#include <tuple>\n#include <unordered_map>\n#include <variant>\n#include <vector>\n\
             template <int N> struct Sum { static constexpr int value = N % 7 + Sum<N - 1>::value; };\n\
             template <> struct Sum<0> { static constexpr int value = 0; };\n\
             template <class... T> struct Pack { std::tuple<T...> all; };\n",
        );
        for i in 0..self.scaled(40) {
            let _ = writeln!(
                text,
                "struct S{i} {{ int a; std::string name; std::vector<S{i}> list; bool operator<(const S{i}& o) const {{ return a < o.a; }} }};\n\
                 template <class K> auto index{i}(const std::vector<S{i}>& in, K key) {{\n\
                   std::map<decltype(key(in[0])), std::vector<const S{i}*>> out;\n\
                   for (const auto& item : in) out[key(item)].push_back(&item);\n\
                   return out;\n}}\n\
                 inline int use{i}(std::vector<S{i}> in) {{\n\
                   std::sort(in.begin(), in.end(), [](const S{i}& x, const S{i}& y) {{ return x.name < y.name; }});\n\
                   auto by = index{i}(in, [](const S{i}& s) {{ return s.name + std::to_string(s.a + {i}); }});\n\
                   std::unordered_map<int, std::unique_ptr<S{i}>> own;\n\
                   for (auto& [k, v] : by) own[v.front()->a] = std::make_unique<S{i}>(*v.front());\n\
                   std::function<int(int)> f = [&](int n) {{ return n + static_cast<int>(own.size()); }};\n\
                   Pack<S{i}, int, std::string> pack{{}};\n\
                   std::variant<int, S{i}> either = *own.begin()->second;\n\
                   return f(std::get<1>(pack.all)) + Sum<{}>::value + static_cast<int>(either.index());\n}}",
                20 + i % 60
            );
        }
        self.write("work.cc", &text)
    }

    /// A repository with a history for git; made by `git fast-import`, quick and the same everywhere.
    pub fn repository(&self) -> anyhow::Result<PathBuf> {
        let repository = self.dir.join("repository.git");
        if repository.exists() {
            fs::remove_dir_all(&repository)?;
        }
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command
                .arg("--git-dir")
                .arg(&repository)
                .args(args)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        git(&["-c", "init.defaultBranch=main", "init", "--bare", "--quiet"])
            .stdin(Stdio::null())
            .status()
            .context("cannot start git")?;
        let mut stream = String::new();
        let mut random = Random(21);
        let mut files: Vec<Vec<String>> =
            (0..40).map(|_| (0..120).map(|_| random.word()).collect()).collect();
        for commit in 0..self.scaled(600) {
            let message = format!("change {commit}: {}", random.word());
            let _ = write!(
                stream,
                "commit refs/heads/main\ncommitter A B <a@example.org> {} +0000\ndata {}\n{message}\n",
                1_600_000_000 + u64::from(commit) * 60,
                message.len()
            );
            for _ in 0..3 {
                let which = random.below(40) as usize;
                let line = random.below(120) as usize;
                let word = random.word();
                if let Some(slot) = files.get_mut(which).and_then(|file| file.get_mut(line)) {
                    *slot = word;
                }
                let body = files.get(which).map(|file| file.join("\n")).unwrap_or_default();
                let _ = write!(
                    stream,
                    "M 100644 inline folder{}/file{which}.txt\ndata {}\n{body}\n",
                    which % 7,
                    body.len()
                );
            }
        }
        let mut import =
            git(&["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().context("cannot start git")?;
        import.stdin.take().context("git takes no input")?.write_all(stream.as_bytes())?;
        anyhow::ensure!(import.wait()?.success(), "git fast-import failed");
        Ok(repository)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_everywhere() {
        let mut random = Random(5);
        let words: Vec<String> = (0..3).map(|_| random.word()).collect();
        let mut again = Random(5);
        assert_eq!(words, (0..3).map(|_| again.word()).collect::<Vec<_>>());
        assert!(words.iter().all(|word| (4..=12).contains(&word.len())));
    }

    #[test]
    fn sizes_follow_the_scale_and_never_reach_nothing() {
        let inputs = Inputs { dir: PathBuf::new(), scale: 0.1 };
        assert_eq!((inputs.scaled(600), inputs.scaled(1)), (60, 1));
    }
}
