//! Accelerator requests as the API drives them: Cyborg's life cycle without its gaps. A bind is
//! one transaction for all requests of a PATCH; none is ever seen half bound, so there is nothing
//! to resolve and nothing to clean up.
//!
//! What the compute service of this process bound itself is shown here and never touched here:
//! it goes with its server.

use std::collections::BTreeSet;
use std::sync::Arc;

use kilonova_ids::{ArqId, ConsumerId, ServerId, ascending};
use kilonova_placement::World;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;
use newtype_uuid::GenericUuid;

use super::{grammar, patch::Bind, profiles};
use crate::db::arqs::{self, ArqRow, Place};
use crate::db::handles::MixedCard;
use crate::db::{changes, events, handles};
use crate::ledger::tally::Road;
use crate::ledger::{self, Actor, orders};
use crate::{Bitstreams, Error, Nodes};

/// Whose requests a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everybody's: an admin, or a service that acts for an instance.
    All,
    /// Those of one project.
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

/// Who changes requests, how far he may reach, and who is told.
#[derive(Clone)]
pub(crate) struct Caller {
    pub scope: Scope,
    pub actor: Actor,
    /// A service vouches for the call.
    pub service: bool,
    /// A Nova of somebody else waits to hear of what is bound.
    pub tell_nova: bool,
    /// Told of what else can be had or no longer.
    pub world: World,
    /// Where bitstreams are.
    pub bitstreams: Option<Arc<dyn Bitstreams>>,
    /// Who speaks to the nodes.
    pub nodes: Option<Arc<dyn Nodes>>,
}

/// Makes the requests of a profile, group by group, one per accelerator.
///
/// A project has so many unbound ones at most (`limit`; less than 0 for no limit).
pub(crate) fn create(
    tx: &mut Tx<'_>,
    project_id: &str,
    profile: &str,
    limit: i64,
) -> Result<Vec<ArqRow>, Error> {
    let profile = profiles::by_name(tx, profile)?;
    let now = now_micros();
    let wanted: i64 = profile.groups.iter().map(grammar::amount).fold(0, i64::saturating_add);
    if limit >= 0 {
        tx.execute(arqs::CALL, params![project_id])?;
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
    let mut made = Vec::new();
    for (group, at) in profile.groups.iter().zip(0_i64..) {
        for _ in 0..grammar::amount(group) {
            let uuid = ascending::<ArqId>();
            arqs::insert(tx, uuid, project_id, profile.uuid, at, now)?;
            made.push(get(tx, &Scope::All, uuid)?);
        }
    }
    Ok(made)
}

/// One request that the caller may see.
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

/// Whether it is known how its binding ended.
fn is_resolved(row: &ArqRow) -> bool {
    ["Bound", "BindFailed"].contains(&row.state.as_str())
}

fn not_internal(row: &ArqRow) -> Result<(), Error> {
    match row.server {
        Some(server) if row.internal => Err(Error::Internal { arq: row.uuid, server }),
        _ => Ok(()),
    }
}

/// Binds all of the requests, each to the lowest free handle of its provider.
pub(crate) fn bind(tx: &mut Tx<'_>, caller: &Caller, binds: &[Bind]) -> Result<(), Error> {
    let bound = bind_all(tx, caller, binds);
    ledger::tally::note(tx, Road::Api, bound.as_ref().map(|()| binds.len()));
    bound
}

fn bind_all(tx: &mut Tx<'_>, caller: &Caller, binds: &[Bind]) -> Result<(), Error> {
    let now = now_micros();
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
        let bad_state = || Error::BadState { arq: row.uuid, state: row.state.clone() };
        if !["Initial", "Unbound"].contains(&row.state.as_str()) {
            return Err(bad_state());
        }
        let consumer = ConsumerId::from_untyped_uuid(bind.server.into_untyped_uuid());
        let place = Place {
            host: &bind.host,
            provider: bind.provider,
            server: bind.server,
            consumer,
            ordinal: arqs::next_ordinal(tx, consumer)?,
        };
        let chosen = ledger::choose(tx, bind.provider, &bind.host, 1)?;
        // An administrator who moves an instance makes the request in his own project. Whose the
        // instance is, its allocations say.
        let project = match &bind.project {
            Some(project) => Some(project.clone()),
            None => kilonova_placement::ledger::project_of(tx, consumer)?,
        };
        match arqs::bind(tx, bind.arq, &place, project.as_deref(), now) {
            Err(kilonova_store::Error::Unique(_)) => return Err(Error::AlreadyBound(bind.server)),
            Err(error) => return Err(error.into()),
            Ok(false) => return Err(bad_state()),
            Ok(true) => {}
        }
        for free in chosen {
            ledger::own(tx, bind.arq, &free, bind.provider, &bind.host, now)?;
            let of_host = |card| MixedCard { host: bind.host.clone(), card };
            cards.extend(free.mixed_card.map(of_host));
        }
        changes::taken_by_arq(tx, &caller.actor, bind.arq, now)?;
        if caller.tell_nova {
            events::insert(tx, &batch, bind.server, bind.arq, now)?;
        }
    }
    for server in servers {
        let consumer = ConsumerId::from_untyped_uuid(server.into_untyped_uuid());
        orders::prepare(tx, caller.bitstreams.as_deref(), &caller.actor, consumer)?;
    }
    ledger::keep_apart(tx, &caller.world, cards)
}

/// Takes all of the requests off their instances and frees their handles.
pub(crate) fn unbind(tx: &mut Tx<'_>, caller: &Caller, arqs: &[ArqId]) -> Result<(), Error> {
    let now = now_micros();
    for arq in arqs {
        let row = get(tx, &caller.scope, *arq)?;
        not_internal(&row)?;
        let_go(tx, caller, *arq, now)?;
        tx.execute(arqs::UNBIND, params![*arq, now])?;
    }
    Ok(())
}

/// Deletes those of the requests that are there and returns those that are not, so that the rest
/// of a clean-up is not lost to one that somebody else has cleaned up. A bound one needs a service.
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

fn let_go(tx: &mut Tx<'_>, caller: &Caller, arq: ArqId, now: i64) -> Result<(), Error> {
    let world = &caller.world;
    let card = handles::card_of_arq(tx, arq)?;
    changes::freed_by_arq(tx, &caller.actor, arq, now)?;
    orders::park_of_arq(tx, world, &caller.actor, arq, now)?;
    ledger::give_up(tx, world, caller.nodes.as_deref(), arq, now)?;
    tx.execute(events::DROP_OF_ARQ, params![arq])?;
    ledger::keep_apart(tx, world, card)
}

fn remove(tx: &mut Tx<'_>, caller: &Caller, rows: &[ArqRow]) -> Result<(), Error> {
    let now = now_micros();
    for row in rows {
        let_go(tx, caller, row.uuid, now)?;
        tx.execute(arqs::DELETE, params![row.uuid])?;
    }
    Ok(())
}
