//! A running `kilonova serve`, killed when the test drops it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running server.
pub struct Serve {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    log: PathBuf,
    /// Its output up to and including the line that says it is ready.
    pub output: String,
    /// The address it listens on.
    pub address: SocketAddr,
}

impl Serve {
    /// Starts a `serve` and waits until it is ready.
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        command.stderr(std::fs::File::create(&log).expect("the log file is created"));
        Self::start_logging(command, log)
    }

    /// Like [`Self::start`], for a command whose standard error is set; `log` is where it goes, if to a
    /// file.
    pub fn start_logging(mut command: Command, log: PathBuf) -> Self {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut output = String::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("the output is UTF-8") == 0 {
                let status = child.wait().expect("the process ends");
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                panic!("the server ended before it was ready: {status}\n{output}\n{log}");
            }
            output.push_str(&line);
            let Some(rest) = line.strip_prefix("kilonova: ready on http") else { continue };
            let rest = rest.trim_start_matches('s').trim_start_matches("://");
            let named = rest.split(' ').next().unwrap_or_default();
            // A certificate's name stands for the loopback address, on which all tests listen.
            let port = || named.rsplit_once(':')?.1.parse::<u16>().ok();
            let elsewhere = || ([127, 0, 0, 1], port().unwrap_or_default()).into();
            let address = named.parse().unwrap_or_else(|_| elsewhere());
            return Self { child, _stdout: stdout, log, output, address };
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

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log is UTF-8")
    }

    /// The log's lines; each must be JSON.
    pub fn log_lines(&self) -> Vec<Value> {
        let read = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("no JSON in the log: {e}: {line}"))
        };
        self.log().lines().map(read).collect()
    }

    /// Sends SIGTERM. Returns the exit status and how long the server took to end.
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        self.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        (self.wait(), begun.elapsed())
    }

    /// Waits until the server has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process's state is readable") {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is killed");
        self.child.wait().expect("the process ends");
    }

    /// The peak resident memory, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process exists");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.expect("the kernel reports the process's memory")
    }

    /// Resets [`Self::peak_memory`] to the current resident memory.
    pub fn reset_peak_memory(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")
            .expect("the kernel resets the peak");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("the process id is valid"), signal)
            .expect("the signal is sent");
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
