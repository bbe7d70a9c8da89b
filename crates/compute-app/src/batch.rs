//! The answer to a host's poll: its documents, orders, questions and requests for consoles since a generation, the
//! security groups of its guests, and its routers. Read-only.

use std::collections::HashSet;

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::documents::{Newest, Origin};
use kilonova_compute_db::{consoles, documents, questions, servers};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Batch, Desired, Document, Filters, Power};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;

use crate::Error;
use crate::ports::Networks;
use crate::states;

/// The answer to a poll, from one snapshot of the database.
#[derive(Debug)]
pub struct Handed {
    /// The documents, orders and questions.
    pub batch: Batch,
    /// True if no handle waits for the host to acknowledge this generation or an earlier one. A later
    /// release waits for a later generation.
    pub is_clear: bool,
}

/// Returns everything new for a host since a generation. Returns all documents if the generation is 0 or
/// older than the row's history, or if the agent must report every guest again. The epoch must match the
/// host's row in the same snapshot.
///
/// # Errors
/// [`Error::Fenced`] if another agent has registered; a refusal if the row lacks the session or the
/// generation, so that the agent registers again; store errors.
pub fn of_session(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<Handed, Error> {
    devices::expect_acknowledge(tx, host, devices::EVERYTHING)?;
    documents::expect_since(tx, host, since)?;
    devices::orders::expect_since(tx, host, since)?;
    if since == 0 {
        networks.expect_routers(tx, host)?;
        documents::expect_servers_on(tx, host)?;
        servers::expect_states_on(tx, host)?;
    }
    let newest = documents::newest(tx, host, since)?;
    check_session(host, newest.epoch, epoch)?;
    let register = newest.registers_at > since;
    let since = match check_generation(host, &newest, since)? {
        since if since < newest.reports_from => 0,
        since => since,
    };
    let mut documents = documents::since(tx, host, since)?;
    if since == 0 {
        require_guests(tx, host, &mut documents)?;
    }
    let held = if since == 0 { held(tx, host, &documents)? } else { Vec::new() };
    let questions = if newest.asked { questions::open_since(tx, host, since)? } else { Vec::new() };
    let consoles = if newest.watched {
        consoles::open_since(tx, host, since, time::now())?
    } else {
        Vec::new()
    };
    let orders = devices::orders::since(tx, host, since)?;
    let requested = newest.filtered > since;
    let filters = filters(tx, networks, host, since, requested, &documents, &held)?;
    let (generation, complete) = (newest.generation, since == 0);
    // A change to a router also requests the filters of its host.
    let routers = match complete || requested {
        true => Some(networks.routers(tx, host)?),
        false => None,
    };
    let batch = Batch {
        generation,
        complete,
        documents,
        held,
        orders,
        questions,
        consoles,
        filters,
        routers,
        register,
    };
    let is_clear = !devices::awaits_acknowledgement(tx, host, devices::EVERYTHING)?;
    Ok(Handed { batch, is_clear })
}

/// Compares the epoch of a session with that of the host's row. A row that is older than the session
/// comes from a database that was restored, or that lost commits when a standby took over.
///
/// # Errors
/// [`Error::Fenced`] if another agent has registered; a refusal if the agent must register again.
pub fn check_session(host: &HostName, row: Option<i64>, epoch: i64) -> Result<(), Error> {
    match row {
        Some(row) if row == epoch => Ok(()),
        Some(row) if row > epoch => {
            tracing::warn!(
                %host, epoch, newest = row,
                "refused an earlier agent of this host; if this repeats, two agents run for this \
                 host: stop one of them"
            );
            Err(Error::Fenced)
        }
        Some(_) | None => Err(refused(format!("host {host} has not registered"))),
    }
}

/// Compares a host's generation with those of its row. Returns the generation after which the host
/// lacks documents; 0 if that is so old that the host must receive all documents.
///
/// # Errors
/// A refusal if the row never had the generation: the agent must register again and reconcile from scratch.
pub fn check_generation(host: &HostName, newest: &Newest, since: i64) -> Result<i64, Error> {
    match newest.origin(since) {
        Origin::Ours => Ok(since),
        Origin::Forgotten => Ok(0),
        Origin::Foreign => {
            tracing::warn!(
                %host, since, newest = newest.generation,
                "the database lacks documents that the host has, because a standby without the last commits took over or \
                 a backup was restored; the host registers again and gets all documents"
            );
            Err(refused(format!("host {host} has documents that the database lost")))
        }
    }
}

/// Checks that the documents that a host acknowledges belong to its row and session.
///
/// # Errors
/// Like [`check_session`] and [`check_generation`]; store errors.
pub fn check_acknowledged(
    tx: &mut Tx<'_>,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<(), Error> {
    let newest = documents::newest(tx, host, since)?;
    check_session(host, newest.epoch, epoch)?;
    check_generation(host, &newest, since).map(drop)
}

fn refused(message: String) -> Error {
    Refusal::new(Kind::Unprocessable, message).into()
}

/// Marks the guests that the host must already have. A document that has created its guest would otherwise create an
/// empty one on a host that has lost the guest and its disk, such as one that was installed anew, or fetch the disk again
/// that a move has brought.
fn require_guests(
    tx: &mut Tx<'_>,
    host: &HostName,
    documents: &mut [Document],
) -> Result<(), Error> {
    let states = servers::states_on(tx, host)?.into_iter();
    let built: HashSet<ServerId> = states
        .filter(|server| states::is_built(server.vm_state, server.task_state, server.launched))
        .map(|server| server.id)
        .collect();
    for document in documents.iter_mut().filter(|document| built.contains(&document.server)) {
        if let Desired::Present(domain) = &mut document.desired
            && domain.power != Power::Incoming
        {
            domain.require_guest();
        }
    }
    Ok(())
}

/// The servers whose document is held back from the host. Their guests may run there because of an
/// earlier document.
fn held(tx: &mut Tx<'_>, host: &HostName, documents: &[Document]) -> Result<Vec<ServerId>, Error> {
    let given: HashSet<ServerId> = documents.iter().map(|document| document.server).collect();
    let all = documents::servers_on(tx, host)?;
    Ok(all.into_iter().filter(|server| !given.contains(server)).collect())
}

/// The security groups of a host's guests, if the host must receive them. Reads nothing unless they were
/// requested, a document has interfaces, or a document is held back.
fn filters(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    host: &HostName,
    since: i64,
    requested: bool,
    documents: &[Document],
    held: &[ServerId],
) -> Result<Option<Box<Filters>>, Error> {
    let connected = |document: &Document| match &document.desired {
        Desired::Present(domain) => !domain.config.interfaces.is_empty(),
        Desired::Absent => false,
    };
    let any = !held.is_empty() || documents.iter().any(connected);
    let servers = match (any || requested, since) {
        (false, 0) => return Ok(Some(Box::default())),
        (false, _) => return Ok(None),
        (true, 0) => {
            documents.iter().map(|document| document.server).chain(held.iter().copied()).collect()
        }
        (true, _) => documents::servers_on(tx, host)?,
    };
    Ok(Some(Box::new(networks.filters(tx, &servers)?)))
}
