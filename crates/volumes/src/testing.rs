//! A host with a storage network in memory: commands change its sessions, devices, maps and mounts.
//! It counts every step, and can let the agent die before any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use crate::system::{Argument, Failure, RunFuture, System, UDEV, WriteFuture};

/// A LUN of a target.
#[derive(Debug, Clone)]
pub(crate) struct Lun {
    pub wwid: &'static str,
    pub gib: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Files with their content; links have the content `-> target`.
    pub files: BTreeMap<PathBuf, String>,
    /// The LUNs of each target.
    pub exports: BTreeMap<(String, u64), Lun>,
    pub nodes: BTreeSet<(String, String)>,
    pub sessions: BTreeMap<u32, (String, String)>,
    /// Files of each NFS export.
    pub shares: BTreeMap<String, Vec<&'static str>>,
    /// The command lines that have run, without secrets.
    pub log: Vec<String>,
    /// Commands that contain one of these texts fail.
    pub failing: Vec<&'static str>,
    /// True if multipathd creates maps.
    pub maps: bool,
    /// The links that udev has not created yet; `None` on a host without udev.
    pub late_links: Option<Vec<(String, String)>>,
    /// The step before which the agent dies.
    pub dies_at: Option<usize>,
    steps: usize,
    next: u32,
}

/// The host.
#[derive(Debug, Default)]
pub(crate) struct Fake(Mutex<State>);

impl Fake {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("the lock is not poisoned")
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        self.state().files.insert(path.into(), text.to_owned());
    }

    pub(crate) fn export(&self, iqn: &str, lun: u64, wwid: &'static str, gib: u64) {
        self.state().exports.insert((iqn.to_owned(), lun), Lun { wwid, gib });
    }

    /// Everything that is connected: sessions, node records, devices, maps, mounts, controllers.
    pub(crate) fn left(&self) -> Vec<String> {
        let state = self.state();
        let mut left: Vec<String> = state
            .sessions
            .values()
            .map(|(iqn, portal)| format!("session {iqn} {portal}"))
            .collect();
        left.extend(state.nodes.iter().map(|(iqn, portal)| format!("node {iqn} {portal}")));
        let blocks = state.files.keys().filter_map(|path| {
            let name = path.strip_prefix("/sys/class/block").ok()?.iter().next()?;
            Some(name.to_string_lossy().into_owned())
        });
        left.extend(blocks.collect::<BTreeSet<_>>());
        let mounts = state.files.get(Path::new("/proc/self/mounts")).cloned().unwrap_or_default();
        left.extend(mounts.lines().filter(|line| line.contains(" nfs4 ")).map(str::to_owned));
        left
    }
}

impl State {
    /// Counts a step. Fails from the step at which the agent dies.
    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        match self.dies_at {
            Some(step) if self.steps > step => Err("the agent is dead".into()),
            _ => Ok(()),
        }
    }

    fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<String>) {
        self.files.insert(path.into(), text.into());
    }

    fn remove_below(&mut self, path: &str) {
        self.files.retain(|one, _| !one.starts_with(path));
    }

    fn run(&mut self, program: &str, words: &[&str]) -> Result<String, (i32, String)> {
        let failed = |code: i32, why: &str| Err((code, why.to_owned()));
        let value = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).map(|value| (*value).to_owned())
        };
        match (program, words) {
            ("iscsiadm", ["-m", "session"]) if self.sessions.is_empty() => failed(21, "none"),
            ("iscsiadm", ["-m", "session"]) => {
                let line = |(id, (iqn, portal)): (&u32, &(String, String))| {
                    format!("tcp: [{id}] {portal},1 {iqn} (non-flash)\n")
                };
                Ok(self.sessions.iter().map(line).collect())
            }
            ("iscsiadm", ["-m", "node", "-T", iqn, "-p", portal, rest @ ..]) => {
                self.node((*iqn).to_owned(), (*portal).to_owned(), rest)
            }
            ("blockdev", ["--flushbufs", _]) => Ok(String::new()),
            ("multipathd", _) | ("multipath", ["-a", _]) => Ok(String::new()),
            ("multipath", ["-f", name]) => {
                let map = self.files.iter().find_map(|(path, text)| {
                    let map = path.strip_prefix("/sys/class/block").ok()?.iter().next()?;
                    let is_map = path.ends_with("dm/name") && text == name;
                    is_map.then(|| map.to_string_lossy().into_owned())
                });
                let Some(map) = map else { return failed(1, "no such map") };
                self.remove_below(&format!("/sys/class/block/{map}"));
                self.files.retain(|path, _| !path.ends_with(format!("holders/{map}")));
                Ok(String::new())
            }
            ("mount" | "systemd-mount", _) => {
                let [.., export, place] = words else { return failed(1, "usage") };
                let source = export.trim_end_matches('/');
                let Some(files) = self.shares.get(source).cloned() else {
                    return failed(32, "access denied by server");
                };
                for file in files {
                    self.add(Path::new(place).join(file), "");
                }
                let mounts = self.files.entry("/proc/self/mounts".into()).or_default();
                mounts.push_str(&format!("{source} {place} nfs4 rw 0 0\n"));
                Ok(String::new())
            }
            ("stat", ["-c", "%F", path]) => {
                match self.files.get(Path::new(path)).map(String::as_str) {
                    None => failed(1, "No such file or directory"),
                    Some(text) if text.starts_with("-> ") => Ok("symbolic link\n".into()),
                    Some("") => Ok("regular empty file\n".into()),
                    Some(_) => Ok("regular file\n".into()),
                }
            }
            ("umount" | "systemd-umount", [place]) => {
                self.remove_below(place);
                let mounts = self.files.entry("/proc/self/mounts".into()).or_default();
                let is_other = |line: &&str| line.split(' ').nth(1) != Some(place);
                *mounts = mounts.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
                Ok(String::new())
            }
            ("nvme", ["connect", ..]) => {
                let (nqn, address) = (value("-n"), value("-a"));
                let (nqn, address) = (nqn.unwrap_or_default(), address.unwrap_or_default());
                self.next += 1;
                let folder = format!("/sys/class/nvme/nvme{}", self.next);
                self.add(format!("{folder}/subsysnqn"), format!("{nqn}\n"));
                self.add(format!("{folder}/address"), format!("traddr={address},trsvcid=4420\n"));
                let block = "/sys/class/block/nvme1n1";
                self.add(format!("{block}/device/subsysnqn"), nqn);
                self.add(format!("{block}/uuid"), "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22");
                self.add(format!("{block}/size"), (2_u64 << 21).to_string());
                Ok(String::new())
            }
            ("nvme", ["disconnect", "-n", _]) => {
                self.remove_below("/sys/class/nvme");
                self.remove_below("/sys/class/block/nvme1n1");
                Ok(String::new())
            }
            _ => failed(1, "unknown command"),
        }
    }

    fn node(
        &mut self,
        iqn: String,
        portal: String,
        rest: &[&str],
    ) -> Result<String, (i32, String)> {
        let node = (iqn, portal);
        match rest {
            ["--interface", "default", "--op", "new"] => {
                self.nodes.insert(node);
            }
            _ if !self.nodes.contains(&node) => return Err((21, "no records found".into())),
            [] | ["--op", "update", ..] => {}
            ["--op", "delete"] => {
                self.nodes.remove(&node);
            }
            ["--login"] => {
                if self.sessions.values().any(|session| *session == node) {
                    return Err((15, "session exists".into()));
                }
                self.next += 1;
                let session = self.next;
                self.sessions.insert(session, node);
                let host = session + 1;
                // As in the kernel, the target does not exist before a scan has found a LUN.
                self.add(format!("{}/uevent", folder(session)), "");
                self.add(format!("/sys/class/scsi_host/host{host}/scan"), "");
            }
            ["--logout"] => {
                let of =
                    |(id, session): (&u32, &(String, String))| (*session == node).then_some(*id);
                if let Some(session) = self.sessions.iter().find_map(of) {
                    self.sessions.remove(&session);
                    self.remove_below(&format!("/sys/class/iscsi_host/host{}", session + 1));
                }
            }
            _ => return Err((1, "unknown option".into())),
        }
        Ok(String::new())
    }

    /// The reaction of the kernel to a write.
    fn written(&mut self, path: &Path, text: &str) {
        let parts: Vec<String> =
            path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [.., "scsi_host", host, "scan"] => {
                let session = host.trim_start_matches("host").parse::<u32>().unwrap_or(1) - 1;
                let lun = text.split(' ').nth(2).and_then(|lun| lun.parse().ok()).unwrap_or(0);
                self.appear(session, lun);
            }
            [.., "devices", address, "delete"] => self.vanish(address),
            [.., "devices", address, "rescan"] => {
                let sizes: Vec<(String, u64)> = self.sizes(address);
                for (name, gib) in sizes {
                    self.add(format!("/sys/class/block/{name}/size"), (gib << 21).to_string());
                }
            }
            _ => {}
        }
    }

    fn sizes(&self, address: &str) -> Vec<(String, u64)> {
        let host: u32 = address.split(':').next().and_then(|host| host.parse().ok()).unwrap_or(1);
        let lun = address.rsplit(':').next().and_then(|lun| lun.parse().ok()).unwrap_or(0);
        let Some((iqn, _)) = self.sessions.get(&(host - 1)) else { return Vec::new() };
        let Some(found) = self.exports.get(&(iqn.clone(), lun)) else { return Vec::new() };
        vec![(disk(host - 1, lun), found.gib)]
    }

    /// Makes a LUN's device appear, with a map if multipathd creates one.
    pub(crate) fn appear(&mut self, session: u32, lun: u64) {
        let Some((iqn, portal)) = self.sessions.get(&session).cloned() else { return };
        let Some(Lun { wwid, gib }) = self.exports.get(&(iqn.clone(), lun)).cloned() else {
            return;
        };
        let (name, address) = (disk(session, lun), format!("{}:0:0:{lun}", session + 1));
        self.add(format!("{}/{address}/block/{name}/uevent", target(session)), "");
        self.add(format!("/sys/class/block/{name}/size"), (gib << 21).to_string());
        for attribute in ["delete", "rescan"] {
            self.add(format!("/sys/bus/scsi/devices/{address}/{attribute}"), "");
        }
        self.add(format!("/dev/{name}"), "");
        let link = format!("/dev/disk/by-path/ip-{portal}-iscsi-{iqn}-lun-{lun}");
        self.link(link, format!("-> /dev/{name}"));
        if self.maps {
            let map = "/sys/class/block/dm-0";
            self.add(format!("{map}/dm/uuid"), format!("mpath-{wwid}\n"));
            self.add(format!("{map}/dm/name"), "mpatha");
            self.add(format!("{map}/size"), (gib << 21).to_string());
            self.add(format!("/sys/class/block/{name}/holders/dm-0"), "");
            self.add("/dev/dm-0", "");
            self.link(format!("/dev/disk/by-id/dm-uuid-mpath-{wwid}"), "-> /dev/dm-0".to_owned());
        }
    }

    /// Creates a link of udev: immediately, or only when the host looks whether udev runs.
    fn link(&mut self, link: String, target: String) {
        match &mut self.late_links {
            Some(late) => late.push((link, target)),
            None => self.add(link, target),
        }
    }

    fn vanish(&mut self, address: &str) {
        let host: u32 = address.split(':').next().and_then(|host| host.parse().ok()).unwrap_or(1);
        let lun = address.rsplit(':').next().and_then(|lun| lun.parse().ok()).unwrap_or(0);
        let name = disk(host - 1, lun);
        self.remove_below(&format!("{}/{address}", target(host - 1)));
        self.remove_below(&format!("/sys/class/block/{name}"));
        self.remove_below(&format!("/sys/bus/scsi/devices/{address}"));
        self.remove_below(&format!("/dev/{name}"));
        let link = format!("-> /dev/{name}");
        self.files.retain(|_, text| *text != link);
    }
}

fn folder(session: u32) -> String {
    format!("/sys/class/iscsi_host/host{}/device/session{session}", session + 1)
}

fn target(session: u32) -> String {
    format!("{}/target{}:0:0", folder(session), session + 1)
}

fn disk(session: u32, lun: u64) -> String {
    format!("sd{session}x{lun}")
}

impl System for Fake {
    fn run<'a>(&'a self, program: &'a str, arguments: Vec<Argument>) -> RunFuture<'a> {
        Box::pin(async move {
            let mut state = self.state();
            let words: Vec<&str> = arguments
                .iter()
                .map(|argument| match argument {
                    Argument::Plain(text) => text.as_str(),
                    Argument::Secret(_) => "***",
                })
                .collect();
            let line = format!("{program} {}", words.join(" "));
            let failed = |code, message: String| Failure { code, message };
            state.step().map_err(|why| failed(None, why))?;
            state.log.push(line.clone());
            if state.failing.iter().any(|text| line.contains(text)) {
                return Err(failed(Some(8), format!("{line}: timed out")));
            }
            let ran = state.run(program, &words);
            ran.map_err(|(code, why)| failed(Some(code), format!("{line}: {why}")))
        })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        self.state().files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write<'a>(&'a self, path: &'a Path, text: &'a str) -> WriteFuture<'a> {
        Box::pin(async move {
            let mut state = self.state();
            state.step().map_err(io::Error::other)?;
            if !state.files.contains_key(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            state.log.push(format!("write {} {text}", path.display()));
            state.written(path, text);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let state = self.state();
        let below = state.files.keys().filter_map(|one| one.strip_prefix(path).ok()?.iter().next());
        let names: BTreeSet<String> =
            below.map(|name| name.to_string_lossy().into_owned()).collect();
        names.into_iter().collect()
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        if path == Path::new(UDEV) {
            let mut state = self.state();
            let Some(late) = &mut state.late_links else {
                return Err(io::ErrorKind::NotFound.into());
            };
            for (link, target) in std::mem::take(late) {
                state.add(link, target);
            }
            return Ok(path.to_owned());
        }
        match self.state().files.get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(text) => Ok(text.strip_prefix("-> ").map_or(path, Path::new).to_owned()),
        }
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.state().step().map_err(io::Error::other)
    }
}
