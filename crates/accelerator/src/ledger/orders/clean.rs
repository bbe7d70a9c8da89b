//! Handles that are not given to the next guest before somebody has cleaned them.

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, OperationId};
use kilonova_node_api::{CLEANED_BY_AGENT, Task};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::handles;
use crate::db::orders::{self, CLEAN, NewOrder};
use crate::db::parked::{self, Parked};
use crate::ledger::Actor;

/// Parks what a consumer holds and is to be cleaned, and orders it where the node can.
pub(crate) fn park_of_consumer(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    consumer: ConsumerId,
    now: i64,
) -> Result<(), Error> {
    let handles = parked::park(tx, parked::PARK_OF_CONSUMER, consumer.to_string(), now)?;
    see_to(tx, world, actor, &handles, now)
}

/// The same for one request.
pub(crate) fn park_of_arq(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    arq: ArqId,
    now: i64,
) -> Result<(), Error> {
    let handles = parked::park(tx, parked::PARK_OF_ARQ, arq.to_string(), now)?;
    see_to(tx, world, actor, &handles, now)
}

/// Remembers that what a consumer left dirty is to be cleaned once its host has dropped it.
pub(crate) fn park_dirty(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    if tx.execute(parked::PARK_DIRTY, params![consumer])? == 0 {
        return Ok(());
    }
    for provider in handles::soiled_by(tx, consumer)? {
        let withheld = handles::withheld_on(tx, provider)?;
        placement::forget_said(tx, provider, withheld)?;
    }
    Ok(())
}

/// The host has dropped what a consumer left: what is to be cleaned is cleaned now.
pub(crate) fn dropped(tx: &mut Tx<'_>, consumer: ConsumerId, now: i64) -> Result<(), Error> {
    for handle in parked::park(tx, parked::DROPPED, consumer.to_string(), now)? {
        if let Some(parked) = parked::parked(tx, handle)? {
            order(tx, &Actor::default(), &parked, now)?;
        }
    }
    Ok(())
}

fn see_to(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    handles: &[AttachHandleId],
    now: i64,
) -> Result<(), Error> {
    for handle in handles {
        let Some(parked) = parked::parked(tx, *handle)? else { continue };
        order(tx, actor, &parked, now)?;
        withhold(tx, world, &parked)?;
    }
    Ok(())
}

/// Placement keeps as many units from being claimed; what an operator said of it before is no word
/// on what has been parked since.
fn withhold(tx: &mut Tx<'_>, world: &World, parked: &Parked) -> Result<(), Error> {
    let withheld = handles::withheld_on(tx, parked.provider)?;
    Ok(placement::reserve_anew(tx, world, parked.provider, withheld)?)
}

/// Orders a parked handle to be cleaned, if its node can.
pub(super) fn order(
    tx: &mut Tx<'_>,
    actor: &Actor,
    parked: &Parked,
    now: i64,
) -> Result<(), Error> {
    if parked.by.as_deref() != Some(CLEANED_BY_AGENT) {
        return Ok(());
    }
    let task = Task::Clean {
        address: parked.address.clone(),
        resource_class: parked.resource_class.clone(),
    };
    let order = NewOrder {
        uuid: OperationId::new_v4(),
        host: &parked.host,
        task: CLEAN,
        address: &parked.device_address,
        device: parked.device,
        deployable: parked.deployable,
        handle: Some(parked.handle),
        server: None,
        image: None,
        function: None,
        body: body(&task)?,
        user_id: actor.user_id.as_deref(),
        request_id: actor.request_id.as_deref(),
    };
    Ok(orders::insert(tx, &order, now)?)
}

/// A parked handle is clean: it can be had again, or goes if it is no longer there.
pub(super) fn unpark(tx: &mut Tx<'_>, world: &World, handle: AttachHandleId) -> Result<(), Error> {
    let Some(parked) = parked::parked(tx, handle)? else { return Ok(()) };
    tx.execute(parked::DROP_PARKED, params![handle])?;
    tx.execute(parked::UNPARK, params![handle, now_micros()])?;
    withhold(tx, world, &parked)
}

/// A task as it is kept.
pub(super) fn body(task: &Task) -> Result<String, Error> {
    serde_json::to_string(task)
        .map_err(|error| kilonova_store::Error::Shape(format!("device order: {error}")).into())
}
