//! The answer to a host's poll: its documents, orders and questions since a generation, and the
//! security groups of its guests. Reads only.

use kilonova_compute_db::{documents, questions};
use kilonova_ids::HostName;
use kilonova_node_api::{Batch, Desired, Document, Filters};
use kilonova_store::Tx;

use crate::Error;

/// Everything that is new for a host since a generation; everything for 0.
///
/// # Errors
/// Store errors only.
pub fn since(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Batch, Error> {
    let newest = documents::newest(tx, host, since)?;
    let documents = documents::since(tx, host, since)?;
    let questions = if newest.asked { questions::open_since(tx, host, since)? } else { Vec::new() };
    let orders = kilonova_accelerator::ledger::orders::since(tx, host, since)?;
    let filters = filters(tx, host, since, newest.filtered > since, &documents)?;
    let (generation, complete) = (newest.generation, since == 0);
    Ok(Batch { generation, complete, documents, orders, questions, filters })
}

/// The security groups of a host's guests, if the host must receive them. Reads nothing for a host
/// whose guests have no ports.
fn filters(
    tx: &mut Tx<'_>,
    host: &HostName,
    since: i64,
    requested: bool,
    documents: &[Document],
) -> Result<Option<Box<Filters>>, Error> {
    let connected = |document: &Document| match &document.desired {
        Desired::Present(domain) => !domain.config.interfaces.is_empty(),
        Desired::Absent => false,
    };
    let any = documents.iter().any(connected);
    let servers = match (any || requested, since) {
        (false, 0) => return Ok(Some(Box::default())),
        (false, _) => return Ok(None),
        (true, 0) => documents.iter().map(|document| document.server).collect(),
        (true, _) => documents::servers_on(tx, host)?,
    };
    Ok(Some(Box::new(kilonova_network::ledger::filters(tx, &servers)?)))
}
