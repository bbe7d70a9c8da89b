//! The NUMA topologies of servers: the topology that a flavor and an image request, its fit on a host, and the NUMA
//! part of the guest's document.
//!
//! The fit is chosen and recorded in the transaction of the claim ([`claim`]). A server whose flavor and image request
//! no topology needs no statement here. This module must never choose a host.

mod division;
mod document;
mod misfit;
mod seen;

use std::collections::BTreeMap;

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::fits::{self, AskedHost, Fit};
use kilonova_compute_db::servers::{FlavorOf, Server};
use kilonova_engine::{Candidate, Snapshot};
use kilonova_ids::{ConsumerId, HostName, ProviderId};
use kilonova_node_api::{Attachment, GUEST_DEVICE_CELLS, GuestNuma};
use kilonova_placement::ledger::Allocation;
use kilonova_store::Tx;
use kilonova_topology::{
    Asked, DevicePool, DeviceRequest, Devices, Fitted, GuestTopology, Limits, PageSize, PciPolicy,
    Request, fit,
};

use crate::boot::consumer_of;
use crate::{Compute, Error};

pub(crate) use division::{Division, ask as ask_division};
pub use division::{NewCell, divide};
pub use kilonova_topology::Strategy;
pub use misfit::Misfits;
pub use seen::RunningGuest;

/// The trait of hosts whose cores have several threads.
pub(crate) const THREADS: &str = "HW_CPU_HYPERTHREADING";

/// The NUMA request of a flavor and an image. An invalid request predates the check ([`crate::unsupported`]) and is
/// treated as none.
pub fn requested(flavor: &FlavorOf, properties: &BTreeMap<String, String>) -> Request {
    let (vcpus, memory_mb, extra_specs) = (flavor.vcpus, flavor.ram, &flavor.extra_specs);
    Request::parse(&Asked { vcpus, memory_mb, extra_specs, properties }).unwrap_or_default()
}

/// True if flavor and image request a topology.
pub fn is_requested(flavor: &FlavorOf, properties: &BTreeMap<String, String>) -> bool {
    requested(flavor, properties).topology.is_some()
}

/// Devices that a claim takes from a provider.
#[derive(Debug, Clone)]
pub(crate) struct TakenDevices {
    /// The provider.
    pub provider: ProviderId,
    /// The devices.
    pub devices: Vec<Attachment>,
    /// The policy of the PCI aliases that request them; `None` for other devices, to which upstream's policies do not
    /// apply: devices near the guest are only preferred, unless the flavor or the image names a policy.
    pub alias_policy: Option<PciPolicy>,
}

/// The claims that a consumer already has on a host when it claims NUMA cells there.
#[derive(Clone, Copy)]
pub(crate) struct Claimed<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// Its devices.
    pub taken: &'a [TakenDevices],
    /// The cells of a divided host.
    pub division: Option<&'a Division>,
}

/// A claim of a topology, after the transaction has asked for the host's topology.
#[must_use = "a guest must not run without its topology"]
pub(crate) struct AskedFit<'a> {
    guest: &'a GuestTopology,
    policy: Option<PciPolicy>,
    running: Option<RunningGuest<'a>>,
    host: AskedHost,
}

/// Asks for a host's topology if the request needs it. `running` is the guest of a live migration.
///
/// # Errors
/// Store errors only.
pub(crate) fn ask<'a>(
    tx: &mut Tx<'_>,
    request: &'a Request,
    running: Option<RunningGuest<'a>>,
    host: &HostName,
) -> Result<Option<AskedFit<'a>>, Error> {
    let Some(guest) = &request.topology else { return Ok(None) };
    let host = fits::ask_host(tx, host)?;
    Ok(Some(AskedFit { guest, policy: request.pci_policy, running, host }))
}

impl AskedFit<'_> {
    /// Fits the guest onto the host, and records its cells and CPUs. The consumer has already claimed the candidate,
    /// except for the amounts that a divided host offers by cell; the allocations of those amounts are returned too.
    ///
    /// # Errors
    /// [`Error::Misfit`] with the reason; store errors.
    pub(crate) fn claim(
        self,
        tx: &mut Tx<'_>,
        compute: &Compute,
        consumer: ConsumerId,
        name: &HostName,
        claimed: Claimed<'_>,
    ) -> Result<(GuestNuma, Vec<Allocation>), Error> {
        let Claimed { candidate, taken, division } = claimed;
        let Self { guest, policy, running, host } = self;
        let Some(mut host) = fits::host(tx, host)? else {
            return Err(Error::Misfit("it offers no NUMA cells".to_owned()));
        };
        if let Some(division) = division {
            division.limit(&mut host);
        }
        let (mut devices, nodes) = near(tx, policy, taken)?;
        if let Some(running) = &running {
            devices.seen_at = running.seen_at(&nodes);
        }
        let limits = limits(&compute.world.snapshot(), candidate.root);
        let fitted = fit(&host, guest, limits, compute.options.numa_strategy, &devices)
            .map_err(|why| Error::Misfit(misfit::words(&why)))?;
        let mut guest = document::of(&host, guest, &fitted);
        guest.devices = match &running {
            Some(running) => running.keep(&guest, &nodes),
            None if compute.host_has_trait(name, GUEST_DEVICE_CELLS) => seen::at(&guest, &nodes),
            None => BTreeMap::new(),
        };
        let of_cells = division.map(|division| division.of_fit(&fitted)).transpose()?;
        let fit = Fit { host: name.clone(), fitted, guest };
        fits::insert(tx, consumer, &fit)?;
        Ok((fit.guest, of_cells.unwrap_or_default()))
    }
}

/// The devices of a claim in the form that the fit needs, and each device with its NUMA node. Each pool contains
/// exactly the devices that the claim takes from one provider.
fn near<'a>(
    tx: &mut Tx<'_>,
    policy: Option<PciPolicy>,
    taken: &'a [TakenDevices],
) -> Result<(Devices, Vec<seen::PlacedDevice<'a>>), Error> {
    let (mut near, mut placed) = (Devices::default(), Vec::new());
    if taken.is_empty() {
        return Ok((near, placed));
    }
    let providers: Vec<ProviderId> = taken.iter().map(|one| one.provider).collect();
    let nodes = devices::numa_nodes(tx, &providers)?;
    for one in taken {
        let count = u32::try_from(one.devices.len()).unwrap_or(u32::MAX);
        let usual = one.alias_policy.unwrap_or(PciPolicy::Preferred);
        let node = nodes.get(&one.provider).copied().flatten();
        let pools = vec![near.pools.len()];
        near.pools.push(DevicePool { node, free: count });
        near.requests.push(DeviceRequest { policy: policy.unwrap_or(usual), count, pools });
        placed.extend(one.devices.iter().map(|device| (device, node)));
    }
    Ok((near, placed))
}

/// The allocation ratios of the host's cells, which are those of the host itself.
fn limits(world: &Snapshot, root: ProviderId) -> Option<Limits> {
    let tree = world.tree(root)?;
    let provider = tree.providers().find(|provider| provider.id == root)?;
    let ratio = |class: &str| {
        let found = provider.inventories.iter().find(|(name, _)| name.as_str() == class);
        found.map_or(1.0, |(_, inventory)| inventory.allocation_ratio)
    };
    Some(Limits { cpu_ratio: ratio("VCPU"), memory_ratio: ratio("MEMORY_MB") })
}

/// Replaces a requested page size with that of the running guest, whose pages cannot change. If its cells have
/// different page sizes, the request is unchanged, and [`has_same_pages`] checks the result.
pub(crate) fn keep_pages(topology: &mut GuestTopology, running: &GuestNuma) {
    let mut sizes = running.cells.iter().map(|cell| cell.page_kib);
    let Some(first) = sizes.next() else { return };
    if topology.page_size.is_some() && sizes.all(|size| size == first) {
        let size = first.map(|size| PageSize::Bytes(size.saturating_mul(1024)));
        topology.page_size = Some(size.unwrap_or(PageSize::Small));
    }
}

/// True if the cells of a running guest have pages of the same sizes on another host.
pub(crate) fn has_same_pages(running: &GuestNuma, there: Option<&GuestNuma>) -> bool {
    let sizes = |numa: &GuestNuma| numa.cells.iter().map(|cell| cell.page_kib).collect::<Vec<_>>();
    there.is_some_and(|there| sizes(running) == sizes(there))
}

/// The NUMA part of a server's document on the host where the server itself has claims.
///
/// # Errors
/// Store errors only.
pub(crate) fn of_claimed(
    tx: &mut Tx<'_>,
    server: &Server,
    flavor: &FlavorOf,
) -> Result<Option<Box<GuestNuma>>, Error> {
    if !is_requested(flavor, &server.spec.image_properties) {
        return Ok(None);
    }
    Ok(fits::of(tx, consumer_of(server.id))?.map(|fit| Box::new(fit.guest)))
}

/// The cells and CPUs of a server on the host where the server itself has claims.
///
/// # Errors
/// Store errors only.
pub fn fitted(tx: &mut Tx<'_>, server: &Server) -> Result<Option<Fitted>, Error> {
    if !is_requested(&server.spec.flavor, &server.spec.image_properties) {
        return Ok(None);
    }
    Ok(fits::of(tx, consumer_of(server.id))?.map(|fit| fit.fitted))
}
