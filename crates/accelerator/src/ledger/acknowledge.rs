//! Handles that external instances release: they stay dirty until the device's host acknowledges
//! the release.
//!
//! A host whose agent is dead may still run the guest. Therefore such a handle becomes dirty and
//! records the generation of the host's documents that the same transaction starts. The host's
//! agent is woken. When it requests the documents after that generation, or registers, it has seen
//! the release, and the handle becomes free. A working agent does so within milliseconds. The
//! generation is in the database, so one controller may handle the release and another the host's
//! request.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kilonova_ids::{ArqId, DeviceId, HostName, ProviderId};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::orders::HostNotifier;
use crate::Error;
use crate::db::awaiting::{self, Awaiting, PendingRelease};
use crate::db::{handles, orders, withheld};

/// A value above every generation, which acknowledges all of them.
pub const EVERYTHING: i64 = i64::MAX;

/// Releases the handle of a request. It becomes free immediately only if its host has no agent.
pub(crate) fn release_external(
    tx: &mut Tx<'_>,
    world: &World,
    nodes: Option<&dyn HostNotifier>,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((provider, host)) = handles::held_by(tx, arq)? else { return Ok(()) };
    let generation = match nodes {
        Some(nodes) => nodes.next(tx, &host)?,
        None => None,
    };
    match generation {
        Some(generation) => awaiting::release_after(tx, arq, &host, generation, now)?,
        None => handles::free_of_arq(tx, arq, now)?,
    }
    // Even a free handle is unavailable while an order programs its device.
    withhold(tx, world, provider)
}

/// The hosts for whose acknowledgement a handle waits, or that have not reported the result of an order; read-only.
///
/// # Errors
/// Store errors only.
pub fn awaited_hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    let mut hosts = awaiting::hosts(tx)?;
    hosts.extend(orders::awaited_hosts(tx)?);
    Ok(hosts)
}

/// True if a handle of a host waits for the acknowledgement of a generation; read-only.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn awaits_acknowledgement(
    tx: &mut Tx<'_>,
    host: &HostName,
    generation: i64,
) -> Result<bool, Error> {
    Ok(!awaiting::on_host(tx, host, generation)?.is_empty())
}

/// Announces [`awaits_acknowledgement`] and the reads of [`acknowledge`].
pub fn expect_acknowledge(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<(), Error> {
    Ok(awaiting::expect_on_host(tx, host, generation)?)
}

/// Frees the handles that wait for a generation which the host has now acknowledged.
pub fn acknowledge(
    tx: &mut Tx<'_>,
    world: &World,
    host: &HostName,
    generation: i64,
) -> Result<(), Error> {
    let waiting = awaiting::on_host(tx, host, generation)?;
    free(tx, world, waiting)
}

/// Frees the waiting handles of a device because an administrator declares that no guest uses it.
pub(crate) fn declare_released(
    tx: &mut Tx<'_>,
    world: &World,
    device: DeviceId,
) -> Result<(), Error> {
    let waiting = awaiting::on_device(tx, device)?;
    free(tx, world, waiting)
}

fn free(tx: &mut Tx<'_>, world: &World, waiting: Vec<Awaiting>) -> Result<(), Error> {
    let now = time::now();
    let (mut providers, mut cards) = (BTreeSet::new(), BTreeSet::new());
    for one in waiting {
        awaiting::free(tx, one.id, now)?;
        providers.insert(one.provider);
        cards.extend(one.mixed_card);
    }
    handles::touch_cards(tx, &cards)?;
    let withheld = withheld::each(tx, providers, &cards)?;
    Ok(placement::reserve_each(tx, world, &withheld)?)
}

fn withhold(tx: &mut Tx<'_>, world: &World, provider: ProviderId) -> Result<(), Error> {
    let withheld = withheld::on_provider(tx, provider)?;
    Ok(placement::reserve(tx, world, provider, withheld)?)
}

/// The waiting handles, by device.
pub fn pending_releases(tx: &mut Tx<'_>) -> Result<Vec<PendingRelease>, Error> {
    Ok(awaiting::by_device(tx)?)
}
