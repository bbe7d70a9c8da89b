//! Accelerator requests as the API manages them: Cyborg's life cycle without its gaps. A bind is
//! one transaction for all requests of a PATCH. No request is ever partially bound, so there is
//! nothing to resolve and nothing to clean up.
//!
//! Requests that were bound by this process's compute service are visible but cannot be changed
//! here: they belong to their server.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_ids::{ArqId, ConsumerId, ServerId, ascending};
use kilonova_placement::World;
use kilonova_store::Tx;
use kilonova_wire::time;
use newtype_uuid::GenericUuid;

use super::patch::{Bind, Patch};
use super::{grammar, profiles};
use crate::db::arqs::{self, ArqRow, BindTarget};
use crate::db::handles::MixedCard;
use crate::db::{changes, events, handles};
use crate::ledger::tally::BindSource;
use crate::ledger::{self, Actor, orders};
use crate::states::ArqState;
use crate::{Bitstreams, Error, HostNotifier};

/// The requests that a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All requests: for an administrator, or a service that acts for an instance.
    All,
    /// The requests of one project.
    Project(String),
}

impl Scope {
    fn shows(&self, row: &ArqRow) -> bool {
        match self {
            Self::All => true,
            Self::Project(project) => *project == row.project_id,
        }
    }
}

/// The caller of an operation, its reach, and the components to notify.
#[derive(Clone)]
pub(crate) struct Caller {
    pub scope: Scope,
    pub actor: Actor,
    /// True if the call carries a service token.
    pub service: bool,
    /// True if an external Nova is notified of binds.
    pub notify_nova: bool,
    /// The in-memory copy of providers, updated after the commit.
    pub world: World,
    /// The source of bitstreams.
    pub bitstreams: Option<Arc<dyn Bitstreams>>,
    /// The notifier of hosts.
    pub nodes: Option<Arc<dyn HostNotifier>>,
}

/// Creates the requests of a profile, group by group, one per accelerator.
///
/// A project may have at most `limit` unbound requests; a negative number disables the limit.
pub(crate) fn create(
    tx: &mut Tx<'_>,
    project_id: &str,
    profile: &str,
    limit: i64,
) -> Result<Vec<ArqRow>, Error> {
    let profile = profiles::by_name(tx, profile)?;
    let now = time::now();
    let wanted: i64 = profile.groups.iter().map(grammar::amount).fold(0, i64::saturating_add);
    if limit >= 0 {
        arqs::serialize_calls(tx, project_id)?;
        let unbound = arqs::unbound_of(tx, project_id)?;
        if unbound.saturating_add(wanted) > limit {
            return Err(Error::TooManyUnbound {
                project: project_id.to_owned(),
                unbound,
                wanted,
                limit,
            });
        }
    }
    let mut created = Vec::new();
    for (group, at) in profile.groups.iter().zip(0_i64..) {
        for _ in 0..grammar::amount(group) {
            let uuid = ascending::<ArqId>();
            arqs::insert(tx, uuid, project_id, profile.uuid, at, now)?;
            created.push(get(tx, &Scope::All, uuid)?);
        }
    }
    Ok(created)
}

/// One request, if the caller may see it.
pub(crate) fn get(tx: &mut Tx<'_>, scope: &Scope, uuid: ArqId) -> Result<ArqRow, Error> {
    arqs::by_uuid(tx, uuid)?
        .filter(|row| scope.shows(row))
        .ok_or_else(|| Error::not_found("ExtArq", "uuid", uuid))
}

/// The requests that the caller may see.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    server: Option<ServerId>,
    resolved: bool,
) -> Result<Vec<ArqRow>, Error> {
    let project = match scope {
        Scope::All => None,
        Scope::Project(project) => Some(project.as_str()),
    };
    let mut rows = arqs::list(tx, project, server)?;
    if !resolved {
        return Ok(rows);
    }
    if let (Some(server), true) = (server, rows.iter().any(|row| !is_resolved(row))) {
        return Err(Error::Unresolved(server));
    }
    rows.retain(is_resolved);
    Ok(rows)
}

/// True if the result of its binding is known.
fn is_resolved(row: &ArqRow) -> bool {
    match row.state {
        ArqState::Bound | ArqState::BindFailed => true,
        ArqState::Initial | ArqState::BindStarted | ArqState::Unbound | ArqState::Deleting => false,
    }
}

/// True if it may be bound.
fn is_bindable(row: &ArqRow) -> bool {
    match row.state {
        ArqState::Initial | ArqState::Unbound => true,
        ArqState::BindStarted | ArqState::Bound | ArqState::BindFailed | ArqState::Deleting => {
            false
        }
    }
}

fn not_internal(row: &ArqRow) -> Result<(), Error> {
    match row.server {
        Some(server) if row.internal => Err(Error::Internal { arq: row.uuid, server }),
        _ => Ok(()),
    }
}

/// Applies a PATCH to all of its requests. The unbinds are first, so that one PATCH can replace the requests of an
/// instance.
pub(crate) fn apply(tx: &mut Tx<'_>, caller: &Caller, patch: &Patch) -> Result<(), Error> {
    unbind(tx, caller, &patch.unbinds)?;
    if patch.binds.is_empty() {
        return Ok(());
    }
    bind(tx, caller, &patch.binds)
}

/// Binds all requests, each to the lowest free handle of its provider.
fn bind(tx: &mut Tx<'_>, caller: &Caller, binds: &[Bind]) -> Result<(), Error> {
    let bound = bind_all(tx, caller, binds);
    ledger::tally::note(tx, BindSource::Api, bound.as_ref().map(|()| binds.len()));
    bound
}

fn bind_all(tx: &mut Tx<'_>, caller: &Caller, binds: &[Bind]) -> Result<(), Error> {
    let now = time::now();
    let batch = uuid::Uuid::new_v4().to_string();
    let servers: BTreeSet<ServerId> = binds.iter().map(|bind| bind.server).collect();
    for server in &servers {
        let consumer = ConsumerId::from_untyped_uuid(server.into_untyped_uuid());
        if arqs::next_ordinal(tx, consumer)? > 0 {
            return Err(Error::AlreadyBound(*server));
        }
    }
    let mut cards = Vec::new();
    for bind in binds {
        let row = get(tx, &caller.scope, bind.arq)?;
        let bad_state = || Error::BadState { arq: row.uuid, state: row.state };
        if !is_bindable(&row) {
            return Err(bad_state());
        }
        let consumer = ConsumerId::from_untyped_uuid(bind.server.into_untyped_uuid());
        let target = BindTarget {
            host: &bind.host,
            provider: bind.provider,
            server: bind.server,
            consumer,
            ordinal: arqs::next_ordinal(tx, consumer)?,
        };
        let chosen = ledger::choose(tx, bind.provider, &bind.host, 1)?;
        // An administrator who moves an instance creates the request in the administrator's
        // project. The allocations name the project of the instance.
        let project = match &bind.project {
            Some(project) => Some(project.clone()),
            None => kilonova_placement::ledger::project_of(tx, consumer)?,
        };
        match arqs::bind(tx, bind.arq, &target, project.as_deref(), now) {
            Err(kilonova_store::Error::Unique(_)) => return Err(Error::AlreadyBound(bind.server)),
            Err(error) => return Err(error.into()),
            Ok(false) => return Err(bad_state()),
            Ok(true) => {}
        }
        for free in chosen {
            ledger::assign(tx, bind.arq, &free, bind.provider, &bind.host, now)?;
            let of_host = |card| MixedCard { host: bind.host.clone(), card };
            cards.extend(free.mixed_card.map(of_host));
        }
        changes::taken_by_arq(tx, &caller.actor, bind.arq, now)?;
        if caller.notify_nova {
            events::insert(tx, &batch, bind.server, bind.arq, now)?;
        }
    }
    for server in servers {
        let consumer = ConsumerId::from_untyped_uuid(server.into_untyped_uuid());
        orders::prepare(tx, &caller.world, caller.bitstreams.as_deref(), &caller.actor, consumer)?;
    }
    ledger::update_exclusions(tx, &caller.world, cards)
}

/// Unbinds all requests from their instances and frees their handles.
pub(crate) fn unbind(tx: &mut Tx<'_>, caller: &Caller, arqs: &[ArqId]) -> Result<(), Error> {
    let now = time::now();
    for arq in arqs {
        let row = get(tx, &caller.scope, *arq)?;
        not_internal(&row)?;
        release_handle(tx, caller, *arq, now)?;
        arqs::unbind(tx, *arq, now)?;
    }
    Ok(())
}

/// Deletes the requests that exist and returns the others, so that a request that another caller
/// has already deleted does not abort a cleanup. Only a service may delete a bound request.
pub(crate) fn delete(
    tx: &mut Tx<'_>,
    caller: &Caller,
    uuids: &BTreeSet<ArqId>,
) -> Result<Vec<ArqId>, Error> {
    let mut rows = Vec::new();
    let mut absent = Vec::new();
    for uuid in uuids {
        match get(tx, &caller.scope, *uuid) {
            Ok(row) => rows.push(row),
            Err(Error::NotFound { .. }) => absent.push(*uuid),
            Err(error) => return Err(error),
        }
    }
    for row in &rows {
        not_internal(row)?;
        if let (Some(server), false) = (row.server, caller.service) {
            return Err(Error::Bound { arq: row.uuid, server });
        }
    }
    remove(tx, caller, &rows)?;
    Ok(absent)
}

/// Deletes the requests of an instance. Idempotent.
pub(crate) fn delete_of_server(
    tx: &mut Tx<'_>,
    caller: &Caller,
    server: ServerId,
) -> Result<(), Error> {
    let rows = arqs::list(tx, None, Some(server))?;
    rows.iter().try_for_each(not_internal)?;
    remove(tx, caller, &rows)
}

fn release_handle(
    tx: &mut Tx<'_>,
    caller: &Caller,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    let world = &caller.world;
    let card = handles::card_of_arq(tx, arq)?;
    changes::freed_by_arq(tx, &caller.actor, arq, now)?;
    orders::park_of_arq(tx, world, &caller.actor, arq, now)?;
    ledger::release_external(tx, world, caller.nodes.as_deref(), arq, now)?;
    events::delete_of_arq(tx, arq)?;
    ledger::update_exclusions(tx, world, card)
}

fn remove(tx: &mut Tx<'_>, caller: &Caller, rows: &[ArqRow]) -> Result<(), Error> {
    let now = time::now();
    for row in rows {
        release_handle(tx, caller, row.uuid, now)?;
        arqs::delete(tx, row.uuid)?;
    }
    Ok(())
}
