//! Giving handles to consumers and taking them back, inside the caller's transaction. Each change of
//! an owner leaves a row that says who asked for it.
//!
//! Whoever claims has already updated the provider's row, so two claims on one provider run one
//! after the other; should a caller not have, the handle's own row is the point where one of two
//! transactions has to run again.

use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeviceProfileId, ProviderId, ServerId, ascending,
};
use kilonova_node_api::Attachment;
use kilonova_placement::World;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;
use newtype_uuid::GenericUuid;

use super::apart::keep_apart;
use super::orders::park_of_consumer;
use super::tally::{self, Road};
use crate::Error;
use crate::db::arqs::{self, Place};
use crate::db::handles::{self, HandleKey, MixedCard};
use crate::db::{changes, deployables};

/// Accelerators of one provider that a consumer shall get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The provider that the scheduler chose.
    pub provider: ProviderId,
    /// How many.
    pub count: i64,
    /// Index of the profile's group, 0 where there is no profile.
    pub group: i64,
    /// The profile; `None` for a flavor's own `resources:VGPU`.
    pub profile: Option<DeviceProfileId>,
}

/// Who asked for a change, for the record. What the service does by itself has neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// The user's id.
    pub user_id: Option<String>,
    /// `req-<uuid>`.
    pub request_id: Option<String>,
}

/// One accelerator that a consumer has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The request.
    pub arq: ArqId,
    /// The handle; of an mdev this is the uuid it will have on the host.
    pub handle: AttachHandleId,
    /// What the node attaches.
    pub attachment: Attachment,
}

/// Makes bound ARQs for a consumer and gives each the lowest free handle of its provider.
///
/// # Errors
/// [`Error::NoHandle`] when a provider has too few, [`Error::NoDeployable`] when it is no device,
/// [`Error::OtherHost`] when it is elsewhere. The caller's transaction must then end.
pub fn bind(
    tx: &mut Tx<'_>,
    world: &World,
    server: ServerId,
    consumer: ConsumerId,
    project_id: &str,
    host: &str,
    wants: &[Want],
) -> Result<Vec<Binding>, Error> {
    bind_as(tx, world, &Actor::default(), server, consumer, project_id, host, wants)
}

/// [`bind`], with who asked for it.
///
/// # Errors
/// As [`bind`].
#[allow(clippy::too_many_arguments)]
pub fn bind_as(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    server: ServerId,
    consumer: ConsumerId,
    project_id: &str,
    host: &str,
    wants: &[Want],
) -> Result<Vec<Binding>, Error> {
    let bound = bind_all(tx, world, actor, server, consumer, project_id, host, wants);
    tally::note(tx, Road::Server, bound.as_ref().map(Vec::len));
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
    host: &str,
    wants: &[Want],
) -> Result<Vec<Binding>, Error> {
    let now = now_micros();
    let first = arqs::next_ordinal(tx, consumer)?;
    let mut ordinal = first;
    let mut bindings = Vec::new();
    let mut cards = Vec::new();
    for want in wants {
        for free in choose(tx, want.provider, host, want.count)? {
            let arq = ascending::<ArqId>();
            let place = Place { host, provider: want.provider, server, consumer, ordinal };
            arqs::insert_bound(tx, arq, project_id, want.profile, want.group, &place, now)?;
            bindings.push(own(tx, arq, &free, want.provider, host, now)?);
            let of_host = |card| MixedCard { host: host.to_owned(), card };
            cards.extend(free.mixed_card.map(of_host));
            ordinal += 1;
        }
    }
    changes::taken_by_consumer(tx, actor, consumer, first, now)?;
    keep_apart(tx, world, cards)?;
    Ok(bindings)
}

/// Removes the consumer's ARQs and frees their handles. Idempotent.
///
/// # Errors
/// Only the store's.
pub fn release(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    release_as(tx, world, &Actor::default(), consumer)
}

/// [`release`], with who asked for it.
///
/// # Errors
/// Only the store's.
pub fn release_as(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    consumer: ConsumerId,
) -> Result<(), Error> {
    let now = now_micros();
    let cards = handles::cards_of_consumer(tx, consumer)?;
    changes::freed_by_consumer(tx, actor, consumer, now)?;
    park_of_consumer(tx, world, actor, consumer, now)?;
    tx.execute(handles::DROP_OF_CONSUMER, params![consumer])?;
    tx.execute(handles::FREE_OF_CONSUMER, params![consumer, now])?;
    tx.execute(arqs::DELETE_OF_CONSUMER, params![consumer])?;
    keep_apart(tx, world, cards)
}

/// The `count` lowest free handles of a provider that must be on `host`.
pub(crate) fn choose(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    host: &str,
    count: i64,
) -> Result<Vec<handles::FreeHandle>, Error> {
    let free = handles::free(tx, provider, count)?;
    // All are on one device; a provider without any may be none of a device.
    let actual = match free.first() {
        Some(first) => first.host.clone(),
        None => deployables::host_of(tx, provider)?.ok_or(Error::NoDeployable(provider))?,
    };
    if actual != host {
        return Err(Error::OtherHost { provider, actual, named: host.to_owned() });
    }
    if (free.len() as i64) < count {
        return Err(Error::NoHandle(provider));
    }
    Ok(free)
}

/// Makes `arq` the owner of a free handle. An mdev gets a fresh uuid.
pub(crate) fn own(
    tx: &mut Tx<'_>,
    arq: ArqId,
    free: &handles::FreeHandle,
    provider: ProviderId,
    host: &str,
    now: i64,
) -> Result<Binding, Error> {
    if let Some(card) = &free.mixed_card {
        tx.execute(handles::TOUCH_CARD, params![host, card])?;
    }
    let handle = if free.key.attach_type == "MDEV" { ascending() } else { free.uuid };
    if !handles::take(tx, free.id, arq, handle, now)? {
        return Err(Error::NoHandle(provider));
    }
    Ok(Binding { arq, handle, attachment: attachment(&free.key, handle) })
}

/// What the node attaches for a handle.
pub(super) fn attachment(key: &HandleKey, handle: AttachHandleId) -> Attachment {
    let address = key.address.clone();
    match key.attach_type.as_str() {
        "MDEV" => Attachment::Mdev {
            uuid: handle.into_untyped_uuid(),
            parent: address,
            mdev_type: key.mdev_type.clone(),
        },
        "PCI" => Attachment::Pci { address },
        "VFIO" => Attachment::Vfio { address, vgpu_type: key.mdev_type.clone() },
        _ => Attachment::TestPci { address },
    }
}
