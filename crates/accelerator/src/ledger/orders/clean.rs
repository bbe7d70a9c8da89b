//! Parked handles: they are cleaned before their next assignment.

use jiff::Timestamp;
use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, OperationId};
use kilonova_node_api::{CLEANED_BY_AGENT, Task};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::Error;
use crate::db::orders::{self, NewOrder};
use crate::db::parked::{self, Parked};
use crate::db::{handles, withheld};
use crate::ledger::{Actor, update_exclusions};
use crate::states::OrderTask;

/// Parks the consumer's handles that must be cleaned, and orders their cleaning if the host can clean
/// them.
pub(crate) fn park_of_consumer(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    let handles = parked::park_of_consumer(tx, consumer, now)?;
    order_cleaning(tx, world, actor, &handles, now)
}

/// Parks the handle of one request in the same way.
pub(crate) fn park_of_arq(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    let handles = parked::park_of_arq(tx, arq, now)?;
    order_cleaning(tx, world, actor, &handles, now)
}

/// Marks the handles that a consumer left dirty and that must be cleaned once its host has dropped them.
pub(crate) fn mark_dirty(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    if !parked::mark_dirty(tx, consumer)? {
        return Ok(());
    }
    let providers = handles::dirty_providers_of(tx, consumer)?;
    for (provider, withheld) in withheld::each(tx, providers, [])? {
        placement::clear_operator_reserved(tx, provider, withheld)?;
    }
    Ok(())
}

/// Starts the cleaning of marked handles after the host has dropped them.
pub(crate) fn clean_dropped(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    for handle in parked::park_dropped(tx, consumer, now)? {
        if let Some(parked) = parked::parked(tx, handle)? {
            order(tx, &Actor::default(), &parked, now)?;
        }
    }
    Ok(())
}

fn order_cleaning(
    tx: &mut Tx<'_>,
    world: &World,
    actor: &Actor,
    handles: &[AttachHandleId],
    now: Timestamp,
) -> Result<(), Error> {
    for handle in handles {
        let Some(parked) = parked::parked(tx, *handle)? else { continue };
        order(tx, actor, &parked, now)?;
        withhold(tx, world, &parked)?;
    }
    Ok(())
}

/// Reserves the unavailable amount in Placement. An earlier `reserved` of an operator does not
/// apply to newly parked handles.
fn withhold(tx: &mut Tx<'_>, world: &World, parked: &Parked) -> Result<(), Error> {
    let withheld = withheld::on_provider(tx, parked.provider)?;
    Ok(placement::reserve_at_least(tx, world, parked.provider, withheld)?)
}

/// Orders the cleaning of a parked handle if its host can clean it.
pub(super) fn order(
    tx: &mut Tx<'_>,
    actor: &Actor,
    parked: &Parked,
    now: Timestamp,
) -> Result<(), Error> {
    if parked.cleaner.as_deref() != Some(CLEANED_BY_AGENT) {
        return Ok(());
    }
    let task = Task::Clean {
        address: parked.address.clone(),
        resource_class: parked.resource_class.clone(),
    };
    let order = NewOrder {
        uuid: OperationId::new_v4(),
        host: &parked.host,
        task: OrderTask::Clean,
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

/// Frees a cleaned handle, or deletes it if it is absent, and makes the handles that it excluded on its card available
/// again.
pub(super) fn unpark(tx: &mut Tx<'_>, world: &World, handle: AttachHandleId) -> Result<(), Error> {
    let Some(parked) = parked::parked(tx, handle)? else { return Ok(()) };
    handles::touch_cards(tx, &parked.mixed_card)?;
    parked::unpark(tx, handle, time::now())?;
    withhold(tx, world, &parked)?;
    update_exclusions(tx, world, parked.mixed_card)
}

/// Serializes a task for storage.
pub(super) fn body(task: &Task) -> Result<String, Error> {
    serde_json::to_string(task)
        .map_err(|error| kilonova_store::Error::Shape(format!("device order: {error}")).into())
}
