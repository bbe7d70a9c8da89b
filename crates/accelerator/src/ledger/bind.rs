//! Assigns handles to consumers and releases them, within the caller's transaction. Each change of
//! an owner writes a row that records the initiator.
//!
//! A claim has already updated the provider's row, so two claims on one provider are serialized. If
//! the caller has not claimed, the transactions conflict on the handle's own row, and one of them
//! runs again.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeviceProfileId, HostName, OperationId, ProviderId,
    ServerId, ascending,
};
use kilonova_node_api::{Attachment, GpuInstance};
use kilonova_placement::World;
use kilonova_store::{Asked, Tx};
use kilonova_wire::time;
use newtype_uuid::GenericUuid;

use super::exclusions::update_exclusions;
use super::islands;
use super::orders::{park_of_consumer, withhold_programmed};
use super::tally::{self, BindSource};
use crate::db::arqs::{self, BindTarget};
use crate::db::changes::{self, Actor};
use crate::db::deployables;
use crate::db::handles::{self, HandleKey, MixedCard, Shared};
use crate::db::mig;
use crate::states::AttachType;
use crate::{Error, db};

/// Accelerators of one provider that a consumer requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// The provider that the scheduler selected.
    pub provider: ProviderId,
    /// The number of accelerators.
    pub count: i64,
    /// Index of the profile's group; 0 without a profile.
    pub group: i64,
    /// The profile; `None` for a flavor's own `resources:VGPU`.
    pub profile: Option<DeviceProfileId>,
}

/// One accelerator that was bound to a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The request.
    pub arq: ArqId,
    /// The handle. For an mdev this is also its UUID on the host.
    pub handle: AttachHandleId,
    /// The description for the host.
    pub attachment: Attachment,
}

/// Creates bound ARQs for a consumer and assigns each the lowest free handle of its provider.
///
/// # Errors
/// [`Error::NoHandle`] if a provider has too few free handles, [`Error::NoDeployable`] if it is not
/// a device, [`Error::OtherHost`] if it is on another host. The caller must then abort the
/// transaction.
pub fn bind(
    tx: &mut Tx<'_>,
    world: &World,
    server: ServerId,
    consumer: ConsumerId,
    project_id: &str,
    host: &HostName,
    requests: &[BindRequest],
) -> Result<Vec<Binding>, Error> {
    bind_as(tx, world, &Actor::default(), server, consumer, project_id, host, requests)
}

/// Like [`bind`], with the initiator.
///
/// # Errors
/// Like [`bind`].
#[allow(clippy::too_many_arguments)]
pub fn bind_as(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    server: ServerId,
    consumer: ConsumerId,
    project_id: &str,
    host: &HostName,
    requests: &[BindRequest],
) -> Result<Vec<Binding>, Error> {
    let bound = bind_all(tx, world, actor, server, consumer, project_id, host, requests);
    tally::note(tx, BindSource::Server, bound.as_ref().map(Vec::len));
    bound
}

#[allow(clippy::too_many_arguments)]
fn bind_all(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    server: ServerId,
    consumer: ConsumerId,
    project_id: &str,
    host: &HostName,
    requests: &[BindRequest],
) -> Result<Vec<Binding>, Error> {
    let now = time::now();
    let first = arqs::next_ordinal(tx, consumer)?;
    let mut ordinal = first;
    let (mut bindings, mut taken, mut cards) = (Vec::new(), Vec::new(), Vec::new());
    let mut chosen = choose_independent(tx, host, requests)?.into_iter();
    for request in requests {
        let free = match chosen.next() {
            Some(free) => free,
            None => choose(tx, request.provider, host, request.count)?,
        };
        for free in free {
            let arq = ascending::<ArqId>();
            let target = BindTarget { host, provider: request.provider, server, consumer, ordinal };
            arqs::insert_bound(tx, arq, project_id, request.profile, request.group, &target, now)?;
            let (binding, asked) = ask_assign(tx, arq, &free, host, now)?;
            bindings.push(binding);
            taken.push((request.provider, asked));
            let of_host = |card| MixedCard { host: host.clone(), card };
            cards.extend(free.mixed_card.map(of_host));
            ordinal += 1;
        }
    }
    changes::taken_by_consumer(tx, actor, consumer, first, now)?;
    for (provider, asked) in taken {
        if !handles::taken(tx, asked)? {
            return Err(Error::NoHandle(provider));
        }
    }
    update_exclusions(tx, world, cards)?;
    Ok(bindings)
}

/// Announces the reads of a bind, so that they are sent with an earlier statement. Call it after
/// asking that statement.
///
/// # Errors
/// Store errors only.
pub fn expect_bind(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    requests: &[BindRequest],
) -> Result<(), Error> {
    arqs::expect_next_ordinal(tx, consumer)?;
    for request in requests {
        handles::expect_free(tx, request.provider, request.count)?;
    }
    Ok(())
}

/// The free handles of each request, if no choice depends on the assignment for another request: the providers differ,
/// and no card is mixed. Otherwise empty; the caller then chooses and assigns one request after the other.
fn choose_independent(
    tx: &mut Tx<'_>,
    host: &HostName,
    requests: &[BindRequest],
) -> Result<Vec<Vec<handles::FreeHandle>>, Error> {
    let providers: BTreeSet<ProviderId> = requests.iter().map(|one| one.provider).collect();
    if providers.len() < requests.len() {
        return Ok(Vec::new());
    }
    let mut chosen = Vec::with_capacity(requests.len());
    for request in requests {
        let free = choose(tx, request.provider, host, request.count)?;
        if requests.len() > 1 && free.iter().any(|free| free.mixed_card.is_some()) {
            return Ok(Vec::new());
        }
        chosen.push(free);
    }
    Ok(chosen)
}

/// Removes the consumer's ARQs and frees their handles. Idempotent.
///
/// # Errors
/// Store errors only.
pub fn release(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    release_as(tx, world, &Actor::default(), consumer)
}

/// Like [`release`], with the initiator.
///
/// # Errors
/// Store errors only.
pub fn release_as(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    consumer: ConsumerId,
) -> Result<(), Error> {
    expect_held(tx, consumer)?;
    let held = held(tx, consumer)?;
    release_held(tx, world, actor, consumer, held).map(drop)
}

/// The claims of a consumer, read before their release.
#[derive(Debug)]
pub struct Held {
    requests: usize,
    must_clean: bool,
    awaits: Vec<OperationId>,
    shared: Shared,
}

/// Announces [`held`].
///
/// # Errors
/// Store errors only; also for the functions below.
pub fn expect_held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    arqs::expect_held(tx, consumer)?;
    Ok(handles::expect_shared_of_consumer(tx, consumer)?)
}

/// The claims of a consumer, for [`release_held`] in the same transaction.
pub fn held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Held, Error> {
    let requests = arqs::held(tx, consumer)?;
    let shared = handles::shared_of_consumer(tx, consumer)?;
    let must_clean = requests.iter().any(|one| one.must_clean);
    let awaits = requests.iter().filter_map(|one| one.awaits).collect();
    Ok(Held { requests: requests.len(), must_clean, awaits, shared })
}

/// Like [`release_as`], with the claims that [`held`] has read. Returns whether a handle must be cleaned; the caller
/// must then announce the order.
pub fn release_held(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    consumer: ConsumerId,
    held: Held,
) -> Result<bool, Error> {
    if held.requests == 0 {
        return Ok(false);
    }
    let now = time::now();
    changes::freed_by_consumer(tx, actor, consumer, now)?;
    if held.must_clean {
        park_of_consumer(tx, world, actor, consumer, now)?;
    }
    for island in &held.shared.islands {
        db::islands::touch(tx, island)?;
    }
    handles::free_of_consumer(tx, consumer, now)?;
    arqs::delete_of_consumer(tx, consumer)?;
    update_exclusions(tx, world, held.shared.cards)?;
    islands::update(tx, world, &held.shared.islands)?;
    for order in held.awaits {
        withhold_programmed(tx, world, order)?;
    }
    Ok(held.must_clean)
}

/// The `count` lowest free handles of a provider on `host`.
pub(crate) fn choose(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    host: &HostName,
    count: i64,
) -> Result<Vec<handles::FreeHandle>, Error> {
    let mut free = handles::free(tx, provider, count)?;
    // All of them are on one device. A provider without free handles may not be a device.
    let actual = match free.first() {
        Some(first) => first.host.clone(),
        None => deployables::host_of(tx, provider)?.ok_or(Error::NoDeployable(provider))?,
    };
    if actual != *host {
        return Err(Error::OtherHost { provider, actual, named: host.clone() });
    }
    if (free.len() as i64) < count || !place_instances(tx, host, &mut free)? {
        return Err(Error::NoHandle(provider));
    }
    Ok(free)
}

/// Chooses the GPU instances of handles of a card in MIG mode. Returns false if an instance does not fit, or if the
/// card has no geometry: a guest never gets such a handle without an instance.
fn place_instances(
    tx: &mut Tx<'_>,
    host: &HostName,
    free: &mut [handles::FreeHandle],
) -> Result<bool, Error> {
    let Some(first) = free.first().filter(|free| free.is_mig) else { return Ok(true) };
    let card = first.mixed_card.clone().map(|card| MixedCard { host: host.clone(), card });
    let Some(mut card) = card.map(|card| mig::of_card(tx, &card)).transpose()?.flatten() else {
        return Ok(false);
    };
    for free in free.iter_mut() {
        free.instance = card.place(&free.key.mdev_type);
    }
    Ok(free.iter().all(|free| free.instance.is_some()))
}

/// Assigns a free handle to `arq`. An mdev gets a new UUID.
pub(crate) fn assign(
    tx: &mut Tx<'_>,
    arq: ArqId,
    free: &handles::FreeHandle,
    provider: ProviderId,
    host: &HostName,
    now: Timestamp,
) -> Result<Binding, Error> {
    let (binding, asked) = ask_assign(tx, arq, free, host, now)?;
    if handles::taken(tx, asked)? { Ok(binding) } else { Err(Error::NoHandle(provider)) }
}

/// Asks for an assignment; [`handles::taken`] reads the answer.
fn ask_assign(
    tx: &mut Tx<'_>,
    arq: ArqId,
    free: &handles::FreeHandle,
    host: &HostName,
    now: Timestamp,
) -> Result<(Binding, Asked), Error> {
    if let Some(card) = &free.mixed_card {
        handles::touch_card(tx, host, card)?;
    }
    let handle = match free.key.attach_type {
        AttachType::Mdev => ascending(),
        AttachType::Pci | AttachType::TestPci | AttachType::Vfio => free.uuid,
    };
    let place = free.instance.as_ref().map(|instance| instance.place);
    let asked = handles::ask_take(tx, free.id, arq, handle, place, now)?;
    let attachment = attachment(&free.key, handle, free.instance.clone());
    Ok((Binding { arq, handle, attachment }, asked))
}

/// The description of a handle for its host.
pub(super) fn attachment(
    key: &HandleKey,
    handle: AttachHandleId,
    instance: Option<GpuInstance>,
) -> Attachment {
    let address = key.address.clone();
    match key.attach_type {
        AttachType::Mdev => Attachment::Mdev {
            uuid: handle.into_untyped_uuid(),
            parent: address,
            mdev_type: key.mdev_type.clone(),
        },
        AttachType::Pci => Attachment::Pci { address },
        AttachType::Vfio => {
            Attachment::Vfio { address, vgpu_type: key.mdev_type.clone(), instance }
        }
        AttachType::TestPci => Attachment::TestPci { address },
    }
}
