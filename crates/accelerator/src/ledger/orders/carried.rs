//! Applies the result of an order, which its host reports.

use jiff::Timestamp;
use kilonova_ids::{DeviceId, HostName};
use kilonova_node_api::{End, OrderResult};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::super::update_exclusions;
use super::clean::unpark;
use super::program::{function_trait, withhold};
use crate::Error;
use crate::db::orders::{self, OrderRow};
use crate::db::{events, handles};
use crate::states::{EventStatus, OrderState, OrderTask};

/// Maximum number of characters of a tool's output that are stored.
const MAX_OUTPUT: usize = 8192;

/// Records the result of a host's order. Returns whether the order was open; a repeated report
/// changes nothing.
///
/// # Errors
/// Store errors only.
pub fn complete_order(
    tx: &mut Tx<'_>,
    world: &World,
    host: &HostName,
    completed: &OrderResult,
) -> Result<bool, Error> {
    let Some(order) = orders::by_uuid(tx, completed.order)? else { return Ok(false) };
    if order.host != *host || order.state != OrderState::Open {
        return Ok(false);
    }
    let now = time::now();
    let (done, message, output) = match &completed.end {
        End::Done { output } => (true, None, output),
        End::Failed { message, output } => (false, Some(storable(message)), output),
    };
    let state = if done { OrderState::Done } else { OrderState::Failed };
    let output = Some(storable(output)).filter(|text| !text.is_empty());
    orders::close(tx, order.uuid, state, message, output, now)?;
    match (order.task, order.handle) {
        (OrderTask::Program, _) => programmed(tx, world, &order, done, now)?,
        (OrderTask::Clean, Some(handle)) if done => unpark(tx, world, handle)?,
        // A failed cleaning leaves the handle parked.
        (OrderTask::Clean, _) => {}
    }
    Ok(true)
}

/// Makes text from outside storable: removes NUL characters and limits the length.
fn storable(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(MAX_OUTPUT).collect()
}

fn programmed(
    tx: &mut Tx<'_>,
    world: &World,
    order: &OrderRow,
    done: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let image = order.image.filter(|_| done);
    let function = order.function.as_deref().filter(|_| done);
    orders::set_bitstream(tx, order.device, image, function, now)?;
    set_function_trait(tx, world, order.device, function)?;
    for (arq, internal) in orders::awaiting(tx, order.uuid)? {
        if done {
            orders::bind_waiting(tx, arq, now)?;
        } else if internal {
            // The server's boot fails through its document, and releases the request.
            continue;
        } else {
            let card = handles::card_of_arq(tx, arq)?;
            handles::free_of_arq(tx, arq, now)?;
            orders::fail(tx, arq, now)?;
            update_exclusions(tx, world, card)?;
        }
        let status = if done { EventStatus::Completed } else { EventStatus::Failed };
        events::complete(tx, arq, status, now)?;
    }
    withhold(tx, world, order.device)
}

/// Sets the trait of the loaded function on providers whose host does not report it.
fn set_function_trait(
    tx: &mut Tx<'_>,
    world: &World,
    device: DeviceId,
    function: Option<&str>,
) -> Result<(), Error> {
    for (provider, driver, reported) in orders::functions_of(tx, device)? {
        if reported.is_some() {
            continue;
        }
        let wanted = function.and_then(|function| function_trait(&driver, function));
        placement::set_only_trait(
            tx,
            world,
            provider,
            "CUSTOM_FPGA_FUNCTION_ID_",
            wanted.as_deref(),
        )?;
    }
    Ok(())
}
