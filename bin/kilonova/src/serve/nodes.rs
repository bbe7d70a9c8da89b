//! Simulated hosts in this process: the same agent as on a real host, over a simulated sysfs and
//! hypervisor.

use std::sync::Arc;

use kilonova_compute_app::Compute;
use kilonova_compute_nodes::Link;
use kilonova_node::Node;
use kilonova_node::devices::{Cleanup, Discovery};
use kilonova_node::topology::{MdevOptions, Topology};
use kilonova_node_api::ControlPlane;
use tokio::runtime::Handle;
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
             simulated hosts; the topology file has their settings"
        );
    }
    let Some(path) = &settings.nodes else {
        if settings.devices != MdevOptions::default() || *cleanup != Cleanup::default() {
            tracing::warn!("[devices] and [mdev_*] have no effect: this process runs no host");
        }
        return Ok(None);
    };
    let read = Topology::read_with(path, &settings.devices, cleanup);
    let read = read.map(|topology| topology.with_xid_policy(&health.xid_policy).with_models());
    read.map(Some).map_err(|e| Failure::Refused(e.to_string()))
}

/// Concurrent starts of hosts.
pub const STARTS: usize = 32;

/// Starts the hosts in the background, a few at a time; they stop when the returned sender is dropped.
pub(super) fn start(
    topology: Topology,
    directory: &StateDir,
    compute: Compute,
) -> watch::Sender<bool> {
    let (stop, stopped) = watch::channel(false);
    let power_sync = compute.options.power_sync();
    let control: Arc<dyn ControlPlane> = Arc::new(Link(compute));
    let folder = directory.join("nodes");
    let starts = Arc::new(Semaphore::new(STARTS));
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        for host in topology.hosts.iter().take_while(|_| stopped.has_changed().is_ok()) {
            let name = host.name.clone();
            let node = match Node::simulated(host, &folder) {
                Ok(node) => node.starting_with(Arc::clone(&starts)).syncing_power(power_sync),
                Err(error) => {
                    tracing::error!(host = %name, %error, "cannot start a simulated host");
                    continue;
                }
            };
            let (control, stopped) = (Arc::clone(&control), stopped.clone());
            runtime.spawn(async move {
                if let Err(error) = node.run(control, stopped).await {
                    tracing::error!(host = %name, %error, "a simulated host stopped");
                }
            });
        }
    });
    stop
}
