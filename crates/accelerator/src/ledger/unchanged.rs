//! Whether a host says what it said before, found out without reading all its rows.
//!
//! After a report the host keeps a mark of it together with a summary of its rows: how many, the
//! youngest, the last change. The same report over rows of the same summary has nothing to do. Who
//! holds a handle is not in the summary; everything that a later report would still have to do (a
//! device that is gone and held, unhealthy, shared by what excludes each other, loaded by an order, a
//! dirty handle) makes it no summary at all.

use kilonova_node_api::{Device, Health};
use kilonova_placement::ledger::ProviderSpec;
use kilonova_store::Tx;
use uuid::Uuid;

use super::plan::Card;
use crate::Error;
use crate::db::devices as rows;

/// The mark of this report over the rows as they are; `None` when there is something to do later.
fn mark(tx: &mut Tx<'_>, host: &str, devices: &[Device]) -> Result<Option<String>, Error> {
    if devices.iter().any(|device| device.health != Health::Healthy) {
        return Ok(None);
    }
    let Some(summary) = rows::summary(tx, host)? else { return Ok(None) };
    let said = format!("{summary:?}{devices:?}");
    Ok(Some(Uuid::new_v3(&Uuid::NAMESPACE_OID, said.as_bytes()).to_string()))
}

/// The children of the host's provider, if the report says nothing new.
pub(super) fn as_before(
    tx: &mut Tx<'_>,
    host: &str,
    devices: &[Device],
    cards: &[Card<'_>],
) -> Result<Option<Vec<ProviderSpec>>, Error> {
    let Some(noted) = rows::mark(tx, host)? else { return Ok(None) };
    if mark(tx, host, devices)?.as_ref() != Some(&noted) {
        return Ok(None);
    }
    let parts = cards.iter().flat_map(|card| &card.parts);
    Ok(Some(parts.map(|part| part.provider(0)).collect()))
}

/// Notes that the ledger is as the report says.
pub(super) fn note(tx: &mut Tx<'_>, host: &str, devices: &[Device]) -> Result<(), Error> {
    if let Some(mark) = mark(tx, host, devices)?
        && rows::mark(tx, host)?.as_ref() != Some(&mark)
    {
        rows::set_mark(tx, host, &mark)?;
    }
    Ok(())
}
