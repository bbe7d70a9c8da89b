//! A node on a simulated host.

use std::path::Path;
use std::sync::Arc;

use kilonova_devices::{HealthOptions, Watch};
use kilonova_hypervisor::simulated::{Plan, Simulated};
use kilonova_node_api::Registration;

use super::{Node, Parts, Settings};
use crate::simulated::{Paper, Pretence, SimulatedSysfs};
use crate::{Error, topology};

impl Node {
    /// A node on a simulated host, which keeps its domains and mediated devices in
    /// `<state_dir>/<host>`.
    pub fn simulated(host: &topology::Host, state_dir: &Path) -> Result<Self, Error> {
        let state = state_dir.join(&host.name);
        let like = &host.like;
        let failed = |source| Error::State { folder: state.clone(), source };
        let sysfs = SimulatedSysfs::open(
            Arc::clone(&like.tree),
            state.join("mdevs"),
            like.create_mdev,
            like.create_mdev_failures,
        )
        .map_err(failed)?;
        let plan = Plan::new(like.times.clone(), like.failures.clone());
        let hypervisor = Simulated::open(state.clone(), plan).map_err(failed)?;
        let registration = Registration {
            host: host.name.clone(),
            machine_id: host.machine_id.clone(),
            hypervisor_type: String::new(),
            hypervisor_version: 0,
            host_ip: host.address.clone(),
            vcpus: like.vcpus,
            memory_mb: like.memory_mb,
            disk_gb: like.disk_gb,
            ratios: like.ratios,
            reserved_memory_mb: like.reserved_memory_mb,
            traits: like.traits.clone(),
            devices: Vec::new(),
        };
        let sysfs = Arc::new(sysfs);
        let tools = Pretence {
            host: host.name.clone(),
            sysfs: Arc::clone(&sysfs),
            cleanup: like.discovery.cleanup.clone(),
        };
        let watch = watch(like, &state);
        let node = Self::new(Parts {
            registration,
            discovery: Arc::clone(&like.discovery),
            sysfs,
            hypervisor: Arc::new(hypervisor),
            tools: Arc::new(tools),
            network: Arc::new(Paper::new(&state)),
            state,
            settings: Settings { concurrency: like.concurrency, ..Settings::default() },
        })?;
        Ok(node.watching(watch))
    }
}

/// The kernel log of a simulated host is the file `kmsg` of its folder, and `boot_id` tells its
/// starts apart.
fn watch(like: &topology::Like, state: &Path) -> Watch {
    let written = &like.discovery.health;
    let options = HealthOptions {
        kernel_log: Some(written.kernel_log.clone().unwrap_or_else(|| state.join("kmsg"))),
        xid_policy: written.xid_policy.clone(),
    };
    let boot = std::fs::read_to_string(state.join("boot_id")).unwrap_or_default();
    Watch::open(&options, Some(state.join("health")), boot.trim())
}
