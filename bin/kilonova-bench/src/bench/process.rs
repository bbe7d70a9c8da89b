//! The measured `kilonova serve`: a child process, so that its CPU time and memory can be measured.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kilonova_program::Failure;
use rustix::process::{Pid, Signal, kill_process};

/// A running server; it is stopped when this value is dropped.
pub struct Server {
    child: Child,
    /// `127.0.0.1:1234`.
    pub address: String,
    /// The seconds that the server reports for becoming ready.
    pub ready: String,
}

impl Server {
    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub fn start(
        state: &Path,
        nodes: Option<&Path>,
        database: Option<&str>,
    ) -> Result<Self, Failure> {
        Self::run(state, |command| {
            if let Some(nodes) = nodes {
                command.arg("--nodes").arg(nodes);
            }
            if let Some(url) = database {
                command.args(["--database", url]);
            }
        })
    }

    /// Starts a server with a configuration file and waits until it is ready.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub fn configured(state: &Path, config: &Path) -> Result<Self, Failure> {
        Self::run(state, |command| {
            command.arg("--config").arg(config);
        })
    }

    fn run(state: &Path, with: impl FnOnce(&mut Command)) -> Result<Self, Failure> {
        let log = std::fs::File::create(state.join("serve.log"))
            .map_err(|e| Failure::failed("cannot write the log", e))?;
        let mut command = Command::new(program()?);
        command.arg("serve").args(["--listen", "127.0.0.1:0"]);
        command.arg("--state-dir").arg(state.join("state"));
        with(&mut command);
        command.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(|e| Failure::failed("cannot start a server", e))?;
        let lines = child.stdout.take().map(BufReader::new);
        let ready =
            lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok).find_map(|l| {
                let rest = l.strip_prefix("kilonova: ready on http://")?.to_owned();
                let (address, seconds) = rest.split_once(" (")?;
                Some((address.to_owned(), seconds.trim_end_matches(')').to_owned()))
            });
        match ready {
            Some((address, ready)) => Ok(Self { child, address, ready }),
            None => Err(Failure::Failed(format!(
                "the server did not become ready; see {}",
                state.join("serve.log").display()
            ))),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU milliseconds used so far, user and system.
    pub fn cpu_ms(&self) -> f64 {
        cpu_ms(self.id())
    }

    /// Resident memory, MB.
    pub fn resident_mb(&self) -> f64 {
        resident_mb(self.id())
    }

    /// Stops the server with SIGTERM.
    pub fn stop(mut self) {
        self.terminate();
    }

    fn terminate(&mut self) {
        terminate(&mut self.child);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// Simulated hosts in another process; it is stopped when this value is dropped.
pub struct Nodes(Child);

impl Nodes {
    /// Starts the hosts of a topology against a controller whose state is below `directory`.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(directory: &Path, control: &str, nodes: &Path) -> Result<Self, Failure> {
        let log = std::fs::File::create(directory.join("node.log"))
            .map_err(|e| Failure::failed("cannot write the log", e))?;
        let mut command = Command::new(program()?);
        command.args(["node", "--control", &format!("http://{control}"), "--token-file"]);
        command.arg(directory.join("state/node.token")).arg("--nodes").arg(nodes);
        command.arg("--state-dir").arg(directory.join("hosts")).env("RUST_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map(Self).map_err(|e| Failure::failed("cannot start the hosts", e))
    }

    /// CPU milliseconds used so far, user and system.
    pub fn cpu_ms(&self) -> f64 {
        cpu_ms(self.0.id())
    }

    /// Resident memory, MB.
    pub fn resident_mb(&self) -> f64 {
        resident_mb(self.0.id())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        terminate(&mut self.0);
    }
}

/// The measured program: the one that `KILONOVA` names, or `kilonova` next to this one.
fn program() -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os("KILONOVA") {
        return Ok(program.into());
    }
    std::env::current_exe()
        .map(|own| own.with_file_name("kilonova"))
        .map_err(|e| Failure::failed("cannot find this program", e))
}

fn terminate(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && matches!(child.try_wait(), Ok(None))
        && let Err(error) = kill_process(pid, Signal::TERM)
    {
        eprintln!("kilonova-bench: cannot stop process {}: {error}", child.id());
    }
    drop(child.wait());
}

/// CPU milliseconds that a process has used so far, user and system.
pub fn cpu_ms(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok());
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) * 1000.0 / per_second
}

/// CPU milliseconds that these processes and their descendants have used so far. Ended children are
/// counted once their parents have waited for them.
pub fn trees_cpu_ms(roots: &[u32]) -> f64 {
    let stats = stats();
    let mut members = roots.to_vec();
    let mut at = 0;
    while let Some(parent) = members.get(at).copied() {
        let children = stats.iter().filter(|stat| stat.parent == parent).map(|stat| stat.id);
        let new: Vec<u32> = children.filter(|id| !members.contains(id)).collect();
        members.extend(new);
        at += 1;
    }
    let of_tree = stats.iter().filter(|stat| members.contains(&stat.id));
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    of_tree.map(|stat| stat.ticks).sum::<f64>() * 1000.0 / per_second
}

/// A line of `/proc/*/stat`; the ticks include those of ended children.
struct Stat {
    id: u32,
    parent: u32,
    ticks: f64,
}

fn stats() -> Vec<Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<f64> = text
            .rsplit(')')
            .next()?
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        let ticks = fields.get(11..15)?.iter().sum();
        Some(Stat { id, parent: *fields.get(1)? as u32, ticks })
    })
    .collect()
}

/// Resident memory of a process, MB.
pub fn resident_mb(process: u32) -> f64 {
    std::fs::read_to_string(format!("/proc/{process}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1000.0
}
