//! Topology files: the simulated hosts of a demo, a test or a benchmark.
//!
//! Owns the file format. Hosts of one entry share the device tree and the durations behind an
//! `Arc`, so a thousand hosts cost little more than their names.

mod cards;
mod cells;
mod file;
mod forms;
mod read;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{Cleanup, Discovery, HealthOptions, ModelNames, Models, XidPolicy};
pub use kilonova_devices::{InvalidOption, MdevGroup, MdevOptions};
use kilonova_hypervisor::Step;
use kilonova_hypervisor::simulated::Failure;

use crate::Error;
use crate::simulated::SimulatedSysfs;
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
    /// Identifies the host even after a rename; may be empty.
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
    /// For each ratio, true if the file does not set it: then a ratio that is set through Placement overrides it.
    pub initial_ratios: [bool; 3],
    /// Memory reserved for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// CPUs reserved for the host itself.
    pub reserved_cpus: i64,
    /// Disk reserved for the host itself, GiB.
    pub reserved_disk_gb: i64,
    /// Traits of the host itself.
    pub traits: Vec<String>,
    /// The NUMA cells, if the file has any.
    pub cells: Option<Vec<NumaCell>>,
    /// True if the host offers its CPUs and memory through one resource provider for each cell.
    pub numa_in_placement: bool,
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
    pub fn with_xid_policy(self, policy: &XidPolicy) -> Self {
        self.changed(|template| {
            let mut discovery = (*template.discovery).clone();
            if discovery.health == HealthOptions::default() {
                discovery.health.xid_policy = policy.clone();
            }
            discovery
        })
    }

    /// Sets the models of the devices from the operating system's `pci.ids`, as an agent does for its host. Without the
    /// file, the devices have no models. Reads more than a megabyte.
    pub fn with_models(self) -> Self {
        match ModelNames::read() {
            Ok(names) => self.with_models_of(&names),
            Err(error) => {
                tracing::info!("the model names of simulated devices are not shown: {error}");
                self
            }
        }
    }

    fn with_models_of(self, names: &ModelNames) -> Self {
        self.changed(|template| {
            let sysfs = SimulatedSysfs::in_memory(Arc::clone(&template.tree));
            let models = names.of(&sysfs).unwrap_or_else(|error| {
                tracing::warn!(%error, "the model names of simulated devices are not shown");
                Models::default()
            });
            Discovery { models, ..(*template.discovery).clone() }
        })
    }

    /// Replaces the discovery of each entry. The hosts of an entry still share one template.
    fn changed(mut self, discovery: impl Fn(&HostTemplate) -> Discovery) -> Self {
        let mut done: Vec<(Arc<HostTemplate>, Arc<HostTemplate>)> = Vec::new();
        for host in &mut self.hosts {
            let known = done.iter().find(|(old, _)| Arc::ptr_eq(old, &host.template));
            if let Some((_, new)) = known {
                host.template = Arc::clone(new);
                continue;
            }
            let discovery = Arc::new(discovery(&host.template));
            let new = Arc::new(HostTemplate { discovery, ..(*host.template).clone() });
            done.push((std::mem::replace(&mut host.template, Arc::clone(&new)), new));
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
