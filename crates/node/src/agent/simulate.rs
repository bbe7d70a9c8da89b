//! Agents on simulated hosts.

use std::path::Path;
use std::sync::Arc;

use kilonova_devices::{HealthOptions, Watch};
use kilonova_hypervisor::simulated::{Plan, Simulated};
use kilonova_node_api::Registration;

use super::{Node, Parts, Settings};
use crate::simulated::{RecordedNetwork, SimulatedSysfs, SimulatedTools, SimulatedVolumes};
use crate::{Error, topology};

impl Node {
    /// An agent on a simulated host, which keeps its domains and mediated devices in
    /// `<state_dir>/<host>`.
    pub fn simulated(host: &topology::Host, state_dir: &Path) -> Result<Self, Error> {
        let state = state_dir.join(host.name.as_str());
        let template = &host.template;
        let failed = |source| Error::State { folder: state.clone(), source };
        let sysfs = SimulatedSysfs::open(
            Arc::clone(&template.tree),
            state.join("mdevs"),
            template.create_mdev,
            template.create_mdev_failures,
        )
        .map_err(failed)?;
        let plan = Plan::new(template.times.clone(), template.failures.clone());
        let hypervisor = Simulated::open(state.clone(), plan).map_err(failed)?;
        let registration = Registration {
            host: host.name.clone(),
            machine_id: host.machine_id.clone(),
            hypervisor_type: String::new(),
            hypervisor_version: 0,
            host_ip: host.address.clone(),
            vcpus: template.vcpus,
            memory_mb: template.memory_mb,
            disk_gb: template.disk_gb,
            ratios: template.ratios,
            initial_ratios: template.initial_ratios,
            reserved_memory_mb: template.reserved_memory_mb,
            reserved_cpus: template.reserved_cpus,
            reserved_disk_gb: template.reserved_disk_gb,
            traits: template.traits.clone(),
            devices: Vec::new(),
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            attempt: None,
            connector: None,
            routes: Some(vec!["*".to_owned()]),
            cells: template.cells.clone(),
            numa_in_placement: template.numa_in_placement,
        };
        let sysfs = Arc::new(sysfs);
        let tools = SimulatedTools {
            host: host.name.clone(),
            sysfs: Arc::clone(&sysfs),
            cleanup: template.discovery.cleanup.clone(),
        };
        let volumes = SimulatedVolumes::open(&host.name, &host.address, &state).map_err(failed)?;
        let watch = watch(template, &state);
        let node = Self::new(Parts {
            registration,
            discovery: Arc::clone(&template.discovery),
            mig: Arc::clone(&sysfs) as _,
            sysfs,
            hypervisor: Arc::new(hypervisor),
            tools: Arc::new(tools),
            network: Arc::new(RecordedNetwork::new(&state)),
            volumes: Arc::new(volumes),
            state,
            settings: Settings { concurrency: template.concurrency, ..Settings::default() },
        })?;
        Ok(node.watching(watch))
    }
}

/// The kernel log of a simulated host is the file `kmsg` in its directory; `boot_id` identifies its
/// boot.
fn watch(template: &topology::HostTemplate, state: &Path) -> Watch {
    let written = &template.discovery.health;
    let options = HealthOptions {
        kernel_log: Some(written.kernel_log.clone().unwrap_or_else(|| state.join("kmsg"))),
        xid_policy: written.xid_policy.clone(),
    };
    let boot = std::fs::read_to_string(state.join("boot_id")).unwrap_or_default();
    Watch::open(&options, Some(state.join("health")), boot.trim())
}
