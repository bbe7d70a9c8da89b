//! Topology files: the simulated hosts of a demo, a test or a bench.
//!
//! Owns the meaning of the file. What many hosts share (the device tree, the times) is one value
//! behind an `Arc`, so that a thousand hosts cost little more than their names.

mod cards;
mod file;
mod read;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{Cleanup, Discovery, HealthOptions, XidPolicy};
pub use kilonova_devices::{MdevGroup, MdevOptions, WrongOption};
use kilonova_hypervisor::Step;
use kilonova_hypervisor::simulated::Failure;

use crate::Error;
pub use tree::{Card, MdevType, Slot, Tree};

/// All hosts of a file.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The hosts, shorthands expanded.
    pub hosts: Vec<Host>,
}

/// A simulated host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// What stays when it is renamed, empty for nothing.
    pub machine_id: String,
    /// Everything that hosts of one entry share.
    pub like: Arc<Like>,
}

/// What all hosts of one entry are like.
#[derive(Debug, Clone)]
pub struct Like {
    /// Logical processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disk for guests, GiB.
    pub disk_gb: i64,
    /// Overcommit ratios: VCPU, MEMORY_MB, DISK_GB.
    pub ratios: [f64; 3],
    /// Memory kept for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// Traits of the host itself.
    pub traits: Vec<String>,
    /// Servers that are worked on at once.
    pub concurrency: usize,
    /// The device tree.
    pub tree: Arc<Tree>,
    /// What of it is given to guests.
    pub discovery: Arc<Discovery>,
    /// Time that each step of the hypervisor takes.
    pub times: BTreeMap<Step, Duration>,
    /// Time that the kernel takes to make a mediated device.
    pub create_mdev: Duration,
    /// Failures to come.
    pub failures: Vec<Failure>,
    /// How many creations of mediated devices fail; `None` is all.
    pub create_mdev_failures: Option<u32>,
}

impl Topology {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, &MdevOptions::default(), &Cleanup::default())
    }

    /// Reads a file. `options` and `cleanup` are for the hosts that say nothing of such things
    /// themselves; a host with a `devices` (or, for mediated devices, an `mdev`) table goes by its own
    /// alone.
    pub fn read_with(path: &Path, options: &MdevOptions, cleanup: &Cleanup) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { file: path.to_owned(), source })?;
        Self::parse_with(&text, path, options, cleanup)
    }

    /// The same, with a policy for the hosts that say nothing of Xid messages.
    pub fn with_xid_policy(mut self, policy: &XidPolicy) -> Self {
        let mut done: Vec<(Arc<Like>, Arc<Like>)> = Vec::new();
        for host in &mut self.hosts {
            if host.like.discovery.health != HealthOptions::default() {
                continue;
            }
            let known = done.iter().find(|(old, _)| Arc::ptr_eq(old, &host.like));
            let new = known.map_or_else(
                || {
                    let mut discovery = (*host.like.discovery).clone();
                    discovery.health.xid_policy = policy.clone();
                    Arc::new(Like { discovery: Arc::new(discovery), ..(*host.like).clone() })
                },
                |(_, new)| Arc::clone(new),
            );
            let old = std::mem::replace(&mut host.like, Arc::clone(&new));
            if !done.iter().any(|(known, _)| Arc::ptr_eq(known, &old)) {
                done.push((old, new));
            }
        }
        self
    }

    /// Reads the text of a file; the path is only for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        Self::parse_with(text, path, &MdevOptions::default(), &Cleanup::default())
    }

    fn parse_with(
        text: &str,
        path: &Path,
        options: &MdevOptions,
        cleanup: &Cleanup,
    ) -> Result<Self, Error> {
        let topology = |(key, why)| Error::Topology { file: path.to_owned(), key, why };
        let file: file::File =
            toml::from_str(text).map_err(|error| topology(read::place(text, &error)))?;
        read::hosts(file, options, cleanup).map(|hosts| Self { hosts }).map_err(topology)
    }
}
