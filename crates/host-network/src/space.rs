//! The network namespace of a network, and the dnsmasq that holds it.
//!
//! The namespace separates networks with the same addresses, and guests from the host. It lives as
//! long as its dnsmasq and has no name: named namespaces are mounts, which a service with a private
//! file system view cannot share. A dnsmasq outlives the agent, so that guests can renew their
//! leases; the next agent recognizes it by the directory in its command line. Without DHCP on the network
//! the dnsmasq answers nothing, and only holds the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kilonova_hypervisor::write_atomically;
use kilonova_ids::NetworkId;
use rustix::process::{Pid, Signal, kill_process};

use crate::dhcp::{arguments, hosts, options};
use crate::nets::Net;
use crate::run::{run, words};

/// The suffix, after the router's id, of the name of the dnsmasq that sends router advertisements.
pub(crate) const ADVERTISING: &str = "-ra";
/// How long a dnsmasq may take to start or stop.
const DNSMASQ_TIMEOUT: Duration = Duration::from_secs(5);

fn folder_of(folder: &Path, id: impl Display) -> PathBuf {
    folder.join(id.to_string())
}

/// A process and its command line.
type Process = (i32, Vec<String>);

/// Our running processes, by the network's directory.
fn running(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<Process>>, String> {
    let mut found: BTreeMap<PathBuf, Vec<Process>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process that has ended meanwhile is skipped.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let is_dnsmasq = line.first().is_some_and(|first| first.ends_with("dnsmasq"));
        let its = line.iter().find_map(|word| word.strip_prefix("--pid-file="));
        let its = its.and_then(|file| Path::new(file).parent());
        if let Some(its) = its.filter(|its| is_dnsmasq && its.parent() == Some(folder)) {
            found.entry(its.to_owned()).or_default().push((pid, line));
        }
    }
    Ok(found)
}

/// Stops our processes in this folder whose objects are not in the set.
pub(crate) fn keep_only<T: Display>(folder: &Path, wanted: &BTreeSet<T>) -> Result<(), String> {
    let wanted: BTreeSet<PathBuf> = wanted.iter().map(|id| folder_of(folder, id)).collect();
    for (its, processes) in running(folder)? {
        if !wanted.contains(&its) {
            processes.iter().try_for_each(|(pid, _)| end(*pid))?;
        }
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_str().map(|name| name.strip_suffix(ADVERTISING).unwrap_or(name));
        let is_objects = name.is_some_and(|name| name.parse::<NetworkId>().is_ok());
        if is_objects && !wanted.contains(&entry.path()) {
            std::fs::remove_dir_all(entry.path())
                .map_err(|error| format!("{}: {error}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn end(pid: i32) -> Result<(), String> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(()) };
    match kill_process(id, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(format!("could not stop dnsmasq {pid}: {error}")),
    }
}

/// Starts or reloads the dnsmasq of a network. Returns its process.
pub(crate) async fn hold(folder: &Path, net: &Net) -> Result<i32, String> {
    let wanted = |its: &Path| arguments(its, net.dhcp.as_ref());
    let files = [("hosts", hosts(net)), ("options", options(net))];
    hold_as(folder, net.id, Start::New, wanted, &files).await
}

/// Where a dnsmasq runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// In a namespace of its own, which it holds.
    New,
    /// In the namespace of a process.
    In(i32),
}

impl Start {
    /// True if a running process is in this namespace; `New` accepts any.
    fn has(self, pid: i32) -> bool {
        let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        match self {
            Self::New => true,
            Self::In(other) => space(pid) == space(other),
        }
    }
}

/// Starts or reloads the dnsmasq of an object, with these arguments and files. Returns its process.
pub(crate) async fn hold_as(
    folder: &Path,
    id: impl Display,
    place: Start,
    wanted: impl FnOnce(&Path) -> Vec<String>,
    files: &[(&str, String)],
) -> Result<i32, String> {
    let its = folder_of(folder, id);
    let wanted = wanted(&its);
    let mut changed = false;
    open_folder(&its)?;
    for (name, text) in files {
        let file = its.join(name);
        if std::fs::read_to_string(&file).is_ok_and(|is| is == *text) {
            continue;
        }
        write_atomically(&file, text.as_bytes())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        changed = true;
    }
    let mut processes = running(folder)?.remove(&its).unwrap_or_default();
    let is_right = |(pid, line): &Process| line.get(1..) == Some(&wanted[..]) && place.has(*pid);
    let right = processes.iter().position(is_right);
    let pid = match right.map(|at| processes.swap_remove(at).0) {
        Some(pid) => {
            if changed && let Some(id) = Pid::from_raw(pid) {
                kill_process(id, Signal::HUP)
                    .map_err(|error| format!("could not reload dnsmasq {pid}: {error}"))?;
            }
            processes.iter().try_for_each(|(pid, _)| end(*pid))?;
            pid
        }
        None => {
            for (pid, _) in &processes {
                end(*pid)?;
            }
            start(folder, &its, place, &wanted).await?
        }
    };
    Ok(pid)
}

/// Creates a directory that dnsmasq, which drops its privileges, can read.
fn open_folder(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))
}

async fn start(
    folder: &Path,
    its: &Path,
    place: Start,
    arguments: &[String],
) -> Result<i32, String> {
    let begun = Instant::now();
    while running(folder)?.contains_key(its) {
        if begun.elapsed() > DNSMASQ_TIMEOUT {
            return Err(format!("the dnsmasq of {} did not stop", its.display()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (program, net) = match place {
        Start::New => ("unshare", "--net".to_owned()),
        Start::In(pid) => ("nsenter", format!("--net=/proc/{pid}/ns/net")),
    };
    let mut line = words(&[&*net, "--", "dnsmasq"]);
    line.extend(arguments.iter().cloned());
    run(program, &line, b"").await?;
    loop {
        if let Some((pid, _)) = running(folder)?.remove(its).and_then(|mut all| all.pop()) {
            return Ok(pid);
        }
        if begun.elapsed() > DNSMASQ_TIMEOUT {
            return Err(format!("the dnsmasq of {} exited immediately", its.display()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The process of a network's dnsmasq, if it runs.
pub(crate) fn holder(folder: &Path, network: NetworkId) -> Result<Option<i32>, String> {
    let processes = running(folder)?.remove(&folder_of(folder, network)).unwrap_or_default();
    Ok(processes.first().map(|(pid, _)| *pid))
}
