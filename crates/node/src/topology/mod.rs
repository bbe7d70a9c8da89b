//! Topology files: the simulated hosts of a demo, a test or a benchmark.
//!
//! Owns the file format. Hosts of one entry share the device tree and the durations behind an
//! `Arc`, so a thousand hosts cost little more than their names.

mod cards;
mod cells;
mod file;
mod read;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{Cleanup, Discovery, HealthOptions, XidPolicy};
pub use kilonova_devices::{InvalidOption, MdevGroup, MdevOptions};
use kilonova_hypervisor::Step;
use kilonova_hypervisor::simulated::Failure;

use crate::Error;
use kilonova_ids::HostName;
use kilonova_node_api::NumaCell;
pub use tree::{Card, MdevType, Slot, Tree};

/// All hosts of a file.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The hosts, with `count` expanded.
    pub hosts: Vec<Host>,
}

/// A simulated host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// Its address.
    pub address: String,
    /// Survives a rename of the host; may be empty.
    pub machine_id: String,
    /// The properties shared by all hosts of one entry.
    pub template: Arc<HostTemplate>,
}

/// The properties of all hosts of one entry.
#[derive(Debug, Clone)]
pub struct HostTemplate {
    /// Logical processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disk for guests, GiB.
    pub disk_gb: i64,
    /// Overcommit ratios: VCPU, MEMORY_MB, DISK_GB.
    pub ratios: [f64; 3],
    /// Memory reserved for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// Traits of the host itself.
    pub traits: Vec<String>,
    /// The NUMA cells, if the file has any.
    pub cells: Option<Vec<NumaCell>>,
    /// Number of servers reconciled concurrently.
    pub concurrency: usize,
    /// The device tree.
    pub tree: Arc<Tree>,
    /// The devices offered to guests.
    pub discovery: Arc<Discovery>,
    /// Duration of each hypervisor step.
    pub times: BTreeMap<Step, Duration>,
    /// Duration of the creation of a mediated device.
    pub create_mdev: Duration,
    /// Planned failures.
    pub failures: Vec<Failure>,
    /// How many creations of mediated devices fail; `None` means all.
    pub create_mdev_failures: Option<u32>,
}

impl Topology {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, &MdevOptions::default(), &Cleanup::default())
    }

    /// Reads a file. `options` and `cleanup` apply to hosts without their own settings; a `devices`
    /// table (or, for mediated devices, an `mdev` table) replaces them for its host.
    pub fn read_with(path: &Path, options: &MdevOptions, cleanup: &Cleanup) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { file: path.to_owned(), source })?;
        Self::parse_with(&text, path, options, cleanup)
    }

    /// Applies a policy to the hosts without settings for Xid messages.
    pub fn with_xid_policy(mut self, policy: &XidPolicy) -> Self {
        let mut done: Vec<(Arc<HostTemplate>, Arc<HostTemplate>)> = Vec::new();
        for host in &mut self.hosts {
            if host.template.discovery.health != HealthOptions::default() {
                continue;
            }
            let known = done.iter().find(|(old, _)| Arc::ptr_eq(old, &host.template));
            let new = known.map_or_else(
                || {
                    let mut discovery = (*host.template.discovery).clone();
                    discovery.health.xid_policy = policy.clone();
                    Arc::new(HostTemplate {
                        discovery: Arc::new(discovery),
                        ..(*host.template).clone()
                    })
                },
                |(_, new)| Arc::clone(new),
            );
            let old = std::mem::replace(&mut host.template, Arc::clone(&new));
            if !done.iter().any(|(known, _)| Arc::ptr_eq(known, &old)) {
                done.push((old, new));
            }
        }
        self
    }

    /// Parses the text of a file; the path is only for messages.
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
