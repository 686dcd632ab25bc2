//! redis-server under a tool, driven by redis-benchmark over the loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::process::{Placing, Running, Took};
use super::workloads::find;

/// Runs `server` (redis-server without options, perhaps under a tool), then
/// `requests` requests of each kind. The wall time is the benchmark's; CPU and
/// memory are the server's and the tool's, without the benchmark's.
pub fn run(server: &mut Command, placing: Placing, limit: Duration, requests: u32) -> anyhow::Result<Took> {
    let port = free_port()?;
    server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let running = Running::start(server, placing, limit)?;
    let wall = wait_until_ready(port, Duration::from_secs(20)).and_then(|()| drive(port, placing, requests));
    let stopped = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .and_then(|mut to| to.write_all(b"SHUTDOWN NOSAVE\r\n"));
    // Even after a failure nothing may be left running: the watchdog sees to that.
    let mut took = running.finish()?;
    took.wall = wall?;
    took.good &= stopped.is_ok();
    Ok(took)
}

fn free_port() -> anyhow::Result<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen on")?;
    Ok(socket.local_addr()?.port())
}

fn wait_until_ready(port: u16, limit: Duration) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Ok(mut to) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            to.set_read_timeout(Some(Duration::from_secs(2)))?;
            let mut answer = [0; 5];
            if to.write_all(b"PING\r\n").and_then(|()| to.read_exact(&mut answer)).is_ok()
                && &answer == b"+PONG"
            {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("redis-server does not answer")
}

fn drive(port: u16, placing: Placing, requests: u32) -> anyhow::Result<f64> {
    let benchmark = find("redis-benchmark").context("no redis-benchmark")?;
    let mut command = match placing {
        Placing::Split { helpers, .. } => {
            let mut command = Command::new("taskset");
            command.args(["-c", &helpers.to_string()]).arg(benchmark);
            command
        }
        Placing::Free => Command::new(benchmark),
    };
    let start = Instant::now();
    let status = command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-n", &requests.to_string()])
        .args(["-c", "20", "-P", "8", "-d", "200", "-r", "20000", "-q", "-t", "set,get,lpush,hset,sadd"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start redis-benchmark")?;
    anyhow::ensure!(status.success(), "redis-benchmark failed");
    Ok(start.elapsed().as_secs_f64())
}
