//! A running `kilonova serve`. It is killed when the test lets go of it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The running program.
pub struct Serve {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    log: PathBuf,
    /// What it said before it was ready, and that it is.
    pub said: String,
    /// Where it answers.
    pub address: SocketAddr,
}

impl Serve {
    /// Starts a `serve` and waits until it answers.
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let stderr = std::fs::File::create(&log).expect("the log is made");
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("its output is text") == 0 {
                let status = child.wait().expect("it has ended");
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                panic!("it ended before it was ready: {status}\n{said}\n{log}");
            }
            said.push_str(&line);
            let Some(rest) = line.strip_prefix("kilonova: ready on http") else { continue };
            let rest = rest.trim_start_matches('s').trim_start_matches("://");
            let named = rest.split(' ').next().unwrap_or_default();
            // A certificate's name stands for the loopback address that all tests listen on.
            let port = || named.rsplit_once(':')?.1.parse::<u16>().ok();
            let elsewhere = || ([127, 0, 0, 1], port().unwrap_or_default()).into();
            let address = named.parse().unwrap_or_else(|_| elsewhere());
            return Self { child, _stdout: stdout, log, said, address };
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log is text")
    }

    /// The log, line by line; every line has to be JSON.
    pub fn log_lines(&self) -> Vec<Value> {
        let read = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("no JSON in the log: {e}: {line}"))
        };
        self.log().lines().map(read).collect()
    }

    /// Sends SIGTERM and says how it ended and how long that took.
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        self.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("its state is known") {
                return (status, begun.elapsed());
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it has ended");
    }

    /// The most memory that it ever had resident, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.expect("the kernel says how much memory it had")
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a process id"), signal).expect("a signal");
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
