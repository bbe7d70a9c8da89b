//! What instances of a Nova elsewhere give up, until the device's host has spoken again.
//!
//! A host whose agent is dead may still run the guest. So a handle that such an instance gives up is
//! dirty, and names the generation of the host's documents that was counted in the same transaction. The
//! host's agent is woken; when it asks for what comes after that generation, or registers, it has spoken
//! since, and the handle is free. An agent that works answers within milliseconds. The generation is a
//! row of the database: it does not matter which controller takes the request and which one the host
//! asks.

use std::collections::BTreeSet;

use kilonova_ids::{ArqId, DeviceId, ProviderId};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::{Row, Tx, params};
use kilonova_wire::time::now_micros;

use super::apart::keep_apart;
use super::orders::Nodes;
use crate::Error;
use crate::db::handles::{self, Awaiting};

/// More than any generation: whoever speaks so has heard everything.
pub const EVERYTHING: i64 = i64::MAX;

/// Handles of a device that wait for their host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    /// The host.
    pub host: String,
    /// The device's address there.
    pub address: String,
    /// The device.
    pub device: DeviceId,
    /// How many handles.
    pub handles: i64,
    /// Since when (microseconds since 1970).
    pub since: i64,
}

/// Takes the handle of a request away. It is free at once only where its host has no agent to ask.
pub(crate) fn give_up(
    tx: &mut Tx<'_>,
    world: &World,
    nodes: Option<&dyn Nodes>,
    arq: ArqId,
    now: i64,
) -> Result<(), Error> {
    let Some((provider, host)) = handles::held_by(tx, arq)? else { return Ok(()) };
    let told = match nodes {
        Some(nodes) => nodes.next(tx, &host)?,
        None => None,
    };
    let Some(generation) = told else { return Ok(handles::give_back(tx, arq, now)?) };
    tx.execute(handles::AWAIT_WORD, params![arq, generation, now, host])?;
    withhold(tx, world, provider)
}

/// Whether something of a host waits for its word on a generation; only reads.
///
/// # Errors
/// Only the store's; so for all functions here.
pub fn awaits(tx: &mut Tx<'_>, host: &str, generation: i64) -> Result<bool, Error> {
    Ok(!handles::awaiting_of(tx, host, generation)?.is_empty())
}

/// A host has spoken after it was told of a generation: what waited for that is free.
pub fn heard(tx: &mut Tx<'_>, world: &World, host: &str, generation: i64) -> Result<(), Error> {
    let waiting = handles::awaiting_of(tx, host, generation)?;
    free(tx, world, waiting)
}

/// An administrator says that no guest has anything of a device.
pub(crate) fn vouched(tx: &mut Tx<'_>, world: &World, device: DeviceId) -> Result<(), Error> {
    let waiting = handles::awaiting_on(tx, device)?;
    free(tx, world, waiting)
}

fn free(tx: &mut Tx<'_>, world: &World, waiting: Vec<Awaiting>) -> Result<(), Error> {
    let now = now_micros();
    let (mut providers, mut cards) = (BTreeSet::new(), Vec::new());
    for one in waiting {
        tx.execute(handles::DROP_HEARD, params![one.id])?;
        tx.execute(handles::HEARD, params![one.id, now])?;
        providers.insert(one.provider);
        cards.extend(one.mixed_card);
    }
    for provider in providers {
        withhold(tx, world, provider)?;
    }
    keep_apart(tx, world, cards)
}

fn withhold(tx: &mut Tx<'_>, world: &World, provider: ProviderId) -> Result<(), Error> {
    let withheld = handles::withheld_on(tx, provider)?;
    Ok(placement::reserve(tx, world, provider, withheld)?)
}

/// What waits for hosts, by device.
pub fn silent(tx: &mut Tx<'_>) -> Result<Vec<Silent>, Error> {
    let read = |row: &Row| {
        Ok(Silent {
            host: row.string(0)?,
            address: row.string(1)?,
            device: row.id(2)?,
            handles: row.int(3)?,
            since: row.int(4)?,
        })
    };
    let rows = tx.rows(handles::AWAITED, params![])?;
    Ok(rows.iter().map(read).collect::<Result<_, kilonova_store::Error>>()?)
}
