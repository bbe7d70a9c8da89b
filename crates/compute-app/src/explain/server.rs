//! Everything stored about a server, read from one snapshot.

use jiff::{SignedDuration, Timestamp};
use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::documents::{self, lacking};
use kilonova_compute_db::external_ports;
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::moves::{self, Move, Status};
use kilonova_compute_db::servers::{Server, VmState, listing};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_flow::{self as flow, Event, Operation};
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_node_api::{Attachment, Desired, Document};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use super::room::{Room, room};
use super::words::{Awaited, awaited, state_of};
use crate::boot::consumer_of;
use crate::flows::operation::{self, LiveMigration};
use crate::{Compute, Error, services};

/// Maximum number of actions reported, newest first.
const ACTIONS: i64 = 10;
/// Maximum number of device changes reported, newest first.
const CHANGES: i64 = 20;

/// The present state of a host.
#[derive(Debug, Clone)]
pub struct HostNow {
    /// Its row.
    pub row: Host,
    /// True if it is up.
    pub up: bool,
}

/// The allocations of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerAllocations {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The number of the migration, if the consumer is one.
    pub migration: Option<i64>,
    /// The allocations.
    pub amounts: Vec<placement::NamedAllocation>,
}

/// Everything stored about a server.
#[derive(Debug, Clone)]
pub struct ServerExplanation {
    /// The server; a deleted one has a deletion time.
    pub server: Server,
    /// The time of the read.
    pub now: Timestamp,
    /// The involved hosts; the server's own first.
    pub hosts: Vec<HostNow>,
    /// The operation in progress.
    pub operation: Option<Operation>,
    /// The operation's state; `None` if this version cannot read it.
    pub state: Option<operation::Operation>,
    /// Why this version cannot read the operation: a newer one has written it, or the row is damaged.
    pub unreadable: Option<String>,
    /// The event that the operation waits for.
    pub awaited: Option<Awaited>,
    /// Its migrations, oldest first.
    pub moves: Vec<Move>,
    /// Its documents, by host.
    pub documents: Vec<(HostName, Document)>,
    /// The hosts whose document is held back until Cinder has connected the volumes.
    pub lacking: Vec<HostName>,
    /// Its devices, and those of its migrations.
    pub held: Vec<devices::HeldAccelerator>,
    /// Dirty handles that it left on hosts.
    pub left: Vec<devices::LeftHandle>,
    /// The allocations of the server and its migrations.
    pub allocations: Vec<ConsumerAllocations>,
    /// The newest actions with their events.
    pub actions: Vec<(Operation, Vec<Event>)>,
    /// The changes of its handles, newest first.
    pub past: Vec<devices::HandleChange>,
    /// The hosts that could take it now, if it has none.
    pub room: Option<Room>,
}

impl ServerExplanation {
    /// The involved host with this name.
    pub fn host(&self, name: &HostName) -> Option<&HostNow> {
        self.hosts.iter().find(|host| host.row.host == *name)
    }

    /// The server's host.
    pub fn own_host(&self) -> Option<&HostNow> {
        self.server.host.as_ref().and_then(|name| self.host(name))
    }

    /// The time since the operation last advanced.
    pub(super) fn age(&self, operation: &Operation) -> SignedDuration {
        self.now.duration_since(operation.updated_at)
    }

    /// The open migration.
    pub fn open_move(&self) -> Option<&Move> {
        self.moves.iter().find(|one| one.open)
    }

    /// True if a resize or a cold migration waits to be confirmed or reverted, in any state of the server.
    pub(super) fn awaits_confirmation(&self) -> bool {
        self.server.vm_state == VmState::Resized
            || self.open_move().is_some_and(|open| open.status == Status::Finished)
    }

    /// True while a live migration copies the guest; a user can abort it or force its completion.
    pub fn is_transferring(&self) -> bool {
        matches!(self.state, Some(operation::Operation::LiveMigration(LiveMigration::Transfer(_))))
    }

    /// True if the document on the device's host contains the device.
    pub fn is_in_document(&self, held: &devices::HeldAccelerator) -> bool {
        let (Some(host), Some(handle)) = (&held.host, &held.handle) else { return false };
        let document = self.documents.iter().find(|(name, _)| name == host);
        let Some(Desired::Present(domain)) = document.map(|(_, document)| &document.desired) else {
            return false;
        };
        domain.config.devices.iter().any(|device| match device {
            Attachment::Mdev { uuid, .. } => uuid.to_string() == handle.id.to_string(),
            Attachment::Pci { address }
            | Attachment::Vfio { address, .. }
            | Attachment::TestPci { address } => *address == handle.address,
        })
    }
}

/// Reads the explanation; `None` if the server has no row, not even a deleted one.
///
/// # Errors
/// Store errors only.
pub fn explain_server(
    tx: &mut Tx<'_>,
    compute: &Compute,
    id: ServerId,
    now: Timestamp,
) -> Result<Option<ServerExplanation>, Error> {
    let Some(server) = listing::find(tx, id)? else { return Ok(None) };
    let operation = flow::open_of(tx, id)?;
    let (state, unreadable) = state_of(operation.as_ref());
    let moves = moves::of_server(tx, id)?;
    let documents = documents::of_server(tx, id)?;
    let lacking = lacking(tx, id)?;
    let held = devices::accelerators_of(tx, id)?;
    let mut left = devices::dirty_handles_of(tx, consumer_of(id))?;
    let mut allocations = vec![allocations_of(tx, consumer_of(id), None)?];
    for one in &moves {
        left.extend(devices::dirty_handles_of(tx, one.id)?);
        allocations.push(allocations_of(tx, one.id, Some(one.number))?);
    }
    allocations.retain(|one| !one.amounts.is_empty());
    let actions = actions(tx, id, ACTIONS)?;
    let open = moves.iter().find(|one| one.open);
    let hosts = hosts_of(tx, &compute.fleet, &server, open, &documents, &left, now)?;
    let absent = |(host, document): &(HostName, Document)| {
        (document.desired == Desired::Absent).then(|| host.clone())
    };
    let removing: Vec<HostName> = documents.iter().filter_map(absent).collect();
    let own = server.host.as_ref();
    let plugging = plugging(tx, id, &documents)?;
    let awaited = state
        .as_ref()
        .map(|state| awaited(state, own, open, &removing, &lacking, plugging.as_ref()));
    let nowhere = server.host.is_none()
        && operation.is_none()
        && matches!(server.vm_state, VmState::Error | VmState::ShelvedOffloaded);
    let room = if nowhere { Some(room(tx, compute, &server, now)?) } else { None };
    let past = devices::handle_history(tx, id, CHANGES)?;
    Ok(Some(ServerExplanation {
        server,
        now,
        hosts,
        operation,
        state,
        unreadable,
        awaited,
        moves,
        documents,
        lacking,
        held,
        left,
        allocations,
        actions,
        past,
        room,
    }))
}

/// The newest `limit` actions of a server with their events, newest first.
///
/// # Errors
/// Store errors only.
pub(crate) fn actions(
    tx: &mut Tx<'_>,
    server: ServerId,
    limit: i64,
) -> Result<Vec<(Operation, Vec<Event>)>, Error> {
    let mut actions = Vec::new();
    for one in flow::history(tx, server, limit)? {
        let events = flow::events(tx, one.id)?;
        actions.push((one, events));
    }
    Ok(actions)
}

/// The host whose guest is paused until its ports are plugged.
pub(crate) fn plugging(
    tx: &mut Tx<'_>,
    server: ServerId,
    documents: &[(HostName, Document)],
) -> Result<Option<HostName>, Error> {
    let Some(host) = paused_on(documents) else { return Ok(None) };
    Ok(external_ports::waits_since(tx, server)?.map(|_| host.clone()))
}

/// The host that starts the guest paused.
pub(super) fn paused_on(documents: &[(HostName, Document)]) -> Option<&HostName> {
    let paused = documents.iter().find(|(_, document)| {
        matches!(&document.desired, Desired::Present(domain) if domain.starts_paused)
    });
    paused.map(|(host, _)| host)
}

fn allocations_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    migration: Option<i64>,
) -> Result<ConsumerAllocations, Error> {
    Ok(ConsumerAllocations {
        consumer,
        migration,
        amounts: placement::allocations_of(tx, consumer)?,
    })
}

fn hosts_of(
    tx: &mut Tx<'_>,
    fleet: &Fleet,
    server: &Server,
    open: Option<&Move>,
    documents: &[(HostName, Document)],
    left: &[devices::LeftHandle],
    now: Timestamp,
) -> Result<Vec<HostNow>, Error> {
    let mut names: Vec<&HostName> = server.host.as_ref().into_iter().collect();
    names.extend(open.map(|one| &one.source));
    names.extend(open.and_then(|one| one.dest.as_ref()));
    names.extend(documents.iter().map(|(host, _)| host));
    names.extend(left.iter().map(|left| &left.host));
    let mut hosts: Vec<HostNow> = Vec::new();
    for name in names {
        if hosts.iter().any(|host| host.row.host == *name) {
            continue;
        }
        if let Some(row) = hosts::by_name(tx, name)? {
            let up = services::is_up(fleet, &row, now);
            hosts.push(HostNow { row, up });
        }
    }
    Ok(hosts)
}
