//! A node's word on an order, and what follows from it.

use kilonova_ids::DeviceId;
use kilonova_node_api::{End, OrderResult};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::super::keep_apart;
use super::clean::unpark;
use super::program::function_trait;
use crate::Error;
use crate::db::orders::{self, OrderRow, PROGRAM};
use crate::db::{events, handles};

/// Letters of a tool's output that are kept.
const MOST: usize = 8192;

/// Takes down what came of an order of a host. Says whether it was open; a word that comes twice
/// changes nothing.
///
/// # Errors
/// Only the store's.
pub fn carried_out(
    tx: &mut Tx<'_>,
    world: &World,
    host: &str,
    carried: &OrderResult,
) -> Result<bool, Error> {
    let Some(order) = orders::by_uuid(tx, carried.order)? else { return Ok(false) };
    if order.host != host || order.state != "open" {
        return Ok(false);
    }
    let now = now_micros();
    let (state, message, output) = match &carried.end {
        End::Done { output } => ("done", None, output),
        End::Failed { message, output } => ("failed", Some(kept(message)), output),
    };
    let output = Some(kept(output)).filter(|text| !text.is_empty());
    tx.execute(orders::CLOSE, params![order.uuid, state, message, output, now])?;
    let done = state == "done";
    match (&order.handle, order.task.as_str()) {
        (_, PROGRAM) => programmed(tx, world, &order, done, now)?,
        (Some(handle), _) if done => unpark(tx, world, *handle)?,
        _ => {}
    }
    Ok(true)
}

/// What a database can keep of a text from outside.
fn kept(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(MOST).collect()
}

fn programmed(
    tx: &mut Tx<'_>,
    world: &World,
    order: &OrderRow,
    done: bool,
    now: i64,
) -> Result<(), Error> {
    let image = order.image.filter(|_| done);
    let function = order.function.as_deref().filter(|_| done);
    tx.execute(orders::SET_BITSTREAM, params![order.device, image, function, now])?;
    describe(tx, world, order.device, function)?;
    for (arq, internal) in orders::awaiting(tx, order.uuid)? {
        if done {
            tx.execute(orders::COME, params![arq, now])?;
        } else if internal {
            // The boot that it belongs to fails by its server's document, and releases it.
            continue;
        } else {
            let card = handles::card_of_arq(tx, arq)?;
            handles::give_back(tx, arq, now)?;
            tx.execute(orders::FAIL, params![arq, now])?;
            keep_apart(tx, world, card)?;
        }
        tx.execute(events::RIPE, params![arq, if done { "completed" } else { "failed" }, now])?;
    }
    Ok(())
}

/// The trait of the function that is loaded, on providers whose host does not say it itself.
fn describe(
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
        placement::only_trait(tx, world, provider, "CUSTOM_FPGA_FUNCTION_ID_", wanted.as_deref())?;
    }
    Ok(())
}
