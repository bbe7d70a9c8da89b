//! Simulated hosts in this process: the same node code as on a real host, over a sysfs and a
//! hypervisor that are simulated.

use std::sync::Arc;

use kilonova_compute::{Compute, Link};
use kilonova_node::Node;
use kilonova_node::devices::{Cleanup, Discovery};
use kilonova_node::topology::{MdevOptions, Topology};
use kilonova_node_api::ControlPlane;
use tokio::sync::{Semaphore, watch};

use super::StateDir;
use crate::config::Settings;
use crate::failure::Failure;

pub(super) fn read(settings: &Settings) -> Result<Option<Topology>, Failure> {
    let cleanup = &settings.sources.cleanup;
    let health = &settings.sources.health;
    let used =
        Discovery { cleanup: cleanup.clone(), health: health.clone(), ..Discovery::default() };
    if settings.sources != used || health.kernel_log.is_some() {
        tracing::warn!(
            "[pci], [nvme], [agent], [x710_static] and [devices] kernel_log have no effect on \
             simulated hosts: the topology says it"
        );
    }
    let Some(path) = &settings.nodes else {
        if settings.devices != MdevOptions::default() || *cleanup != Cleanup::default() {
            tracing::warn!("[devices] and [mdev_*] have no effect: this process runs no host");
        }
        return Ok(None);
    };
    let read = Topology::read_with(path, &settings.devices, cleanup);
    let read = read.map(|topology| topology.with_xid_policy(&health.xid_policy));
    read.map(Some).map_err(|e| Failure::Refused(e.to_string()))
}

/// Hosts that start at once.
const STARTS: usize = 32;

/// Starts them; they stop when the returned sender is dropped.
pub(super) fn start(
    topology: Topology,
    directory: &StateDir,
    compute: Compute,
) -> Result<watch::Sender<bool>, Failure> {
    let (stop, stopped) = watch::channel(false);
    let control: Arc<dyn ControlPlane> = Arc::new(Link(compute));
    let folder = directory.join("nodes");
    let starts = Arc::new(Semaphore::new(STARTS));
    for host in &topology.hosts {
        let node = Node::simulated(host, &folder).map_err(|e| Failure::Failed(e.to_string()))?;
        let node = node.starting_with(Arc::clone(&starts));
        let (control, stopped) = (Arc::clone(&control), stopped.clone());
        let name = host.name.clone();
        tokio::spawn(async move {
            if let Err(error) = node.run(control, stopped).await {
                tracing::error!(host = name, %error, "a simulated host has stopped");
            }
        });
    }
    Ok(stop)
}
