//! Claim, release and abandon: the only functions through which a server acquires and releases resources.
//! They run within the caller's transaction.

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::servers::instance_name;
use kilonova_compute_scheduler::{Choice, owners};
use kilonova_engine::Candidate;
use kilonova_ids::{ConsumerId, HostName, PortId, ProviderId, ResourceClass, ServerId};
use kilonova_node_api::{
    Attachment, Boot, Desired, Domain, DomainConfig, GuestNuma, Power, Volume,
};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_topology::Request;
use newtype_uuid::GenericUuid;

use super::super::aliases;
use super::port_claims::record;
use super::query::{ProfileGroups, Profiles};
use super::{GuestSource, machine, near};
use crate::numa::{self, Claimed, Misfits, RunningGuest, TakenDevices};
use crate::ports::GuestPorts;
use crate::{Compute, Error};

/// A successful claim.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The host.
    pub host: HostName,
    /// The guest's devices.
    pub devices: Vec<Attachment>,
    /// Its NUMA cells, if it requests a topology.
    pub numa: Option<Box<GuestNuma>>,
    /// The scheduling decision, for operators.
    pub how: String,
}

/// The initiator of a claim, recorded in both ledgers.
#[derive(Debug, Clone, Copy)]
pub struct Initiator<'a> {
    /// The user.
    pub user_id: &'a str,
    /// `req-<uuid>`.
    pub request_id: &'a str,
}

/// Announces [`initiator_of`].
pub(crate) fn expect_initiator_of(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(kilonova_flow::expect_history(tx, server, 1)?)
}

/// The initiator of the newest operation of a server.
pub(crate) fn initiator_of(tx: &mut Tx<'_>, server: ServerId) -> Result<devices::Actor, Error> {
    let newest = kilonova_flow::history(tx, server, 1)?.pop();
    Ok(newest.as_ref().map_or_else(devices::Actor::default, actor_of))
}

/// The initiator of an operation.
pub(crate) fn actor_of(operation: &kilonova_flow::Operation) -> devices::Actor {
    devices::Actor {
        user_id: Some(operation.user_id.clone()),
        request_id: Some(operation.request_id.clone()),
    }
}

/// A server is the consumer of its own allocations, under the same UUID.
pub(crate) fn consumer_of(server: ServerId) -> ConsumerId {
    ConsumerId::from_untyped_uuid(server.into_untyped_uuid())
}

/// A guest's requirements in addition to amounts of resources.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The device profiles.
    pub profiles: &'a Profiles,
    /// The NUMA topology.
    pub numa: &'a Request,
    /// The guest of a live migration, if it has NUMA cells.
    pub running: Option<RunningGuest<'a>>,
}

/// Claims the first candidate that still fits. If none fits, returns the hosts that have room but cannot fit the
/// NUMA topology; there are none if other requests took all candidates.
///
/// # Errors
/// Store errors only. A lack of resources is not an error.
pub fn claim(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    project_id: &str,
    initiator: Initiator<'_>,
    wanted: Wanted<'_>,
    choice: &Choice,
) -> Result<Result<Placement, Misfits>, Error> {
    let along = |_: &mut Tx<'_>, _: &HostName| Ok(());
    let claimed = claim_along(tx, compute, server, project_id, initiator, wanted, choice, along)?;
    Ok(claimed.map(|(place, ())| place))
}

/// Like [`claim`]. `along` adds statements for the host of a candidate to those of the claim; its
/// writes are rolled back if the candidate does not fit.
///
/// # Errors
/// Those of [`claim`] and of `along`.
#[allow(clippy::too_many_arguments)]
pub(super) fn claim_along<A>(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    project_id: &str,
    initiator: Initiator<'_>,
    wanted: Wanted<'_>,
    choice: &Choice,
    mut along: impl FnMut(&mut Tx<'_>, &HostName) -> Result<A, Error>,
) -> Result<Result<(Placement, A), Misfits>, Error> {
    let Wanted { profiles, numa, running } = wanted;
    let mut misfits = Misfits::default();
    let actor = devices::Actor {
        user_id: Some(initiator.user_id.to_owned()),
        request_id: Some(initiator.request_id.to_owned()),
    };
    for candidate in &choice.candidates {
        let Some(host) = compute.fleet.by_root(candidate.root) else { continue };
        let taken = tx.attempt(|tx| {
            let mut amounts = allocations(candidate);
            let division = numa::ask_division(tx, compute, candidate, &mut amounts)?;
            let claim = placement::Claim {
                consumer: consumer_of(server),
                consumer_type: Some("INSTANCE".into()),
                project_id: project_id.to_owned(),
                user_id: initiator.user_id.to_owned(),
                allocations: amounts,
            };
            let (wants, ports) = wants(tx, candidate, profiles)?;
            let claim = match &division {
                None => placement::ask_claim(tx, &claim)?,
                Some(_) => placement::ask_first_part(tx, &claim)?,
            };
            let fit = numa::ask(tx, numa, running, &host.name)?;
            let along = along(tx, &host.name)?;
            if !wants.is_empty() {
                devices::expect_bind(tx, consumer_of(server), &wants)?;
            }
            let claim = claim.check(tx, &compute.world)?;
            let bindings = if wants.is_empty() {
                Vec::new()
            } else {
                let consumer = consumer_of(server);
                devices::bind_as(
                    tx,
                    &compute.world,
                    &actor,
                    server,
                    consumer,
                    project_id,
                    &host.name,
                    &wants,
                )?
            };
            near::check(tx, &compute.world, consumer_of(server), candidate, &choice.alike)?;
            let division = division.map(|division| division.read(tx)).transpose()?;
            let (numa, of_cells) = match fit {
                None => {
                    let strategy = compute.options.numa_strategy;
                    let of_cells = division.as_ref().map(|division| division.of_any(strategy));
                    (None, of_cells.transpose()?.unwrap_or_default())
                }
                Some(fit) => {
                    let taken = taken_devices(candidate, &wants, &bindings);
                    let consumer = consumer_of(server);
                    let division = division.as_ref();
                    let claimed = Claimed { candidate, taken: &taken, division };
                    let (guest, of_cells) =
                        fit.claim(tx, compute, consumer, &host.name, claimed)?;
                    (Some(Box::new(guest)), of_cells)
                }
            };
            match division {
                None => claim.record(tx, &compute.world)?,
                Some(_) => claim.and(tx, &compute.world, &of_cells)?.record(tx, &compute.world)?,
            }
            record(tx, candidate, &profiles.resources, consumer_of(server), &host.name)?;
            for (binding, port) in bindings.iter().zip(ports) {
                if let Some(port) = port {
                    devices::set_port(tx, binding.arq, port)?;
                }
            }
            if profiles.may_program() {
                let consumer = consumer_of(server);
                let bitstreams = compute.images.bitstreams();
                let bitstreams = bitstreams.as_ref().map(|own| own as _);
                devices::orders::prepare(tx, &compute.world, bitstreams, &actor, consumer)?;
                devices::orders::announce(tx, compute)?;
            }
            let devices = bindings.into_iter().map(|binding| binding.attachment).collect();
            Ok::<_, Error>((devices, numa, along))
        });
        match taken {
            Ok((devices, numa, along)) => {
                let (host, how) = (host.name.clone(), choice.how.clone());
                return Ok(Ok((Placement { host, devices, numa, how }, along)));
            }
            Err(Error::Misfit(why)) => misfits.add(&host.name, why),
            Err(error) if error.is_lack_of_room() => compute.tally.refuses(),
            Err(error) => return Err(error),
        }
    }
    Ok(Err(misfits))
}

pub(super) fn allocations(candidate: &Candidate) -> Vec<placement::Allocation> {
    let amount = |(provider, class, amount): &(ProviderId, ResourceClass, i64)| {
        placement::Allocation { provider: *provider, class: class.clone(), amount: *amount }
    };
    candidate.allocations.iter().map(amount).collect()
}

/// The provider of a group of a candidate.
pub(super) fn provider_of(candidate: &Candidate, suffix: &str) -> Option<ProviderId> {
    let found = candidate.mappings.iter().find(|(name, _)| *name == suffix);
    found.and_then(|(_, providers)| providers.first().copied())
}

/// The devices of a claim, by provider. `bindings` must be in the order of `wants`.
fn taken_devices(
    candidate: &Candidate,
    wants: &[devices::BindRequest],
    bindings: &[devices::Binding],
) -> Vec<TakenDevices> {
    let by_alias = aliases::taken(candidate);
    let mut bound = bindings.iter().map(|binding| binding.attachment.clone());
    let taken = wants.iter().map(|want| TakenDevices {
        provider: want.provider,
        devices: bound.by_ref().take(usize::try_from(want.count).unwrap_or(0)).collect(),
        alias_policy: by_alias.get(&want.provider).map(|taken| taken.policy),
    });
    taken.collect()
}

/// Releases all resources of a server.
///
/// # Errors
/// Store errors only.
pub fn release(tx: &mut Tx<'_>, compute: &Compute, server: ServerId) -> Result<(), Error> {
    release_of(tx, compute, server, consumer_of(server))
}

/// [`release`] for the server itself or one of its migrations.
///
/// # Errors
/// Store errors only.
fn release_of(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    consumer: ConsumerId,
) -> Result<(), Error> {
    expect_held(tx, consumer)?;
    expect_initiator_of(tx, server)?;
    let held = held(tx, consumer)?;
    let actor = initiator_of(tx, server)?;
    release_held(tx, compute, &actor, consumer, held)
}

/// The claims of a consumer in both ledgers, read before their release.
pub(crate) struct Held {
    devices: devices::Held,
    resources: placement::Held,
}

/// Announces [`held`].
///
/// # Errors
/// Store errors only; also for the functions below.
pub(crate) fn expect_held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    devices::expect_held(tx, consumer)?;
    Ok(placement::expect_held(tx, consumer)?)
}

/// The claims of a consumer, for [`release_held`] in the same transaction.
pub(crate) fn held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Held, Error> {
    Ok(Held { devices: devices::held(tx, consumer)?, resources: placement::held(tx, consumer)? })
}

/// Releases the claims of a consumer, with `actor` as initiator. Does not wait for the database
/// unless a handle must be cleaned or excludes others.
pub(crate) fn release_held(
    tx: &mut Tx<'_>,
    compute: &Compute,
    actor: &devices::Actor,
    consumer: ConsumerId,
    held: Held,
) -> Result<(), Error> {
    if devices::release_held(tx, &compute.world, actor, consumer, held.devices)? {
        devices::orders::announce(tx, compute)?;
    }
    Ok(placement::release_held(tx, &compute.world, consumer, &held.resources)?)
}

/// Releases the resources of a server on an unreachable host, which cannot remove the guest yet. The
/// capacity becomes free, as in upstream; the devices stay dirty until [`reclaim`].
///
/// # Errors
/// Store errors only.
pub fn abandon(tx: &mut Tx<'_>, compute: &Compute, server: ServerId) -> Result<(), Error> {
    abandon_of(tx, compute, server, consumer_of(server))
}

/// [`abandon`] for the server itself or one of its migrations.
///
/// # Errors
/// Store errors only.
pub(crate) fn abandon_of(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    consumer: ConsumerId,
) -> Result<(), Error> {
    let actor = initiator_of(tx, server)?;
    let dirty = devices::abandon(tx, &actor, consumer)?;
    placement::release(tx, &compute.world, consumer)?;
    Ok(placement::reserve_each(tx, &compute.world, &dirty)?)
}

/// Frees the devices that a server, or one of its migrations, abandoned on a host. Called after this host has removed the
/// guest; devices that the consumer abandoned on another host stay dirty.
///
/// # Errors
/// Store errors only.
pub(crate) fn reclaim(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    consumer: ConsumerId,
) -> Result<(), Error> {
    let dirty = devices::clean(tx, host, consumer)?;
    devices::orders::announce(tx, compute)?;
    Ok(placement::reserve_each(tx, &compute.world, &dirty)?)
}

/// The accelerator requests of a candidate: those of the profiles' groups, on the providers to which
/// the candidate maps them, and those for other allocations on device providers. Also the port of
/// each device of the profiles, in the same order.
fn wants(
    tx: &mut Tx<'_>,
    candidate: &Candidate,
    profiles: &Profiles,
) -> Result<(Vec<devices::BindRequest>, Vec<Option<PortId>>), Error> {
    let (mut wants, mut ports) = (Vec::new(), Vec::new());
    let mut by_profile: Vec<(ProviderId, i64)> = Vec::new();
    for profile in profiles.iter() {
        for (index, group) in profile.groups.iter().enumerate() {
            let suffix = profile.suffix(index);
            let provider = provider_of(candidate, &suffix);
            let count = ProfileGroups::count_of(group);
            if let Some(provider) = provider.filter(|_| count > 0) {
                by_profile.push((provider, count));
                ports.extend((0..count).map(|_| profile.port));
                wants.push(devices::BindRequest {
                    provider,
                    count,
                    group: index as i64,
                    profile: Some(profile.id),
                });
            }
        }
    }
    for (provider, class, amount) in &candidate.allocations {
        let device = owners::only_devices_have(class)
            || (*provider != candidate.root && devices::is_device_provider(tx, *provider)?);
        if !device {
            continue;
        }
        let of_profile: i64 =
            by_profile.iter().filter(|(p, _)| p == provider).map(|(_, count)| count).sum();
        if *amount > of_profile {
            wants.push(devices::BindRequest {
                provider: *provider,
                count: amount - of_profile,
                group: 0,
                profile: None,
            });
        }
    }
    for (provider, aliases::TakenByAlias { count, .. }) in aliases::taken(candidate) {
        // A provider that is not a device has no handles, so the bind fails and the next candidate
        // is tried.
        if wants.iter().all(|want| want.provider != provider) {
            wants.push(devices::BindRequest { provider, count, group: 0, profile: None });
        }
    }
    Ok((wants, ports))
}

/// The document of a server that is new on its host. The guest runs once its ports are plugged.
pub fn desired(
    source: &GuestSource<'_>,
    devices: Vec<Attachment>,
    numa: Option<Box<GuestNuma>>,
    ports: GuestPorts,
    volumes: Vec<Volume>,
) -> Desired {
    let has_volume_root = volumes.iter().any(Volume::is_root);
    let GuestSource { seq, name, spec, .. } = *source;
    Desired::Present(Box::new(Domain {
        config: DomainConfig {
            name: instance_name(seq),
            display_name: name.to_owned(),
            vcpus: spec.flavor.vcpus,
            memory_mb: spec.flavor.ram,
            boot: Boot {
                image: spec.image.filter(|_| !has_volume_root),
                root_gb: if has_volume_root { 0 } else { spec.flavor.disk },
                ephemeral_gb: spec.ephemeral_gb(),
                swap_mb: spec.swap_mb(),
                rebuilt: None,
            },
            machine: machine::of(spec, &spec.flavor),
            guest: source.guest_metadata(),
            devices,
            interfaces: ports.interfaces,
            rescue: None,
            volumes,
            numa,
        },
        power: Power::On,
        starts_paused: ports.are_awaited,
        existing: false,
        verb: None,
        from: None,
        outgoing_migration: None,
        kept_machine_type: None,
    }))
}
