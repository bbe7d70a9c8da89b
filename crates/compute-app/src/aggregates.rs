//! Host aggregates: groups of hosts, some of which are availability zones.
//!
//! A host is in at most one zone, and no change moves a server out of a zone that it requested. A
//! host's provider joins and leaves the provider aggregate with the same UUID in the same
//! transaction. Every change writes the aggregate's row, the revision of all aggregates, and the
//! rows of hosts whose zone it affects, so that concurrent changes conflict.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_compute_db::aggregates::{self as db, Aggregate, ZONE};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_ids::HostName;
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use uuid::Uuid;

use crate::{Compute, Error, services};

/// The zone of hosts without one (Nova's `default_availability_zone`).
pub const DEFAULT_ZONE: &str = "nova";

/// The attempted change, for the error message.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Add,
    Remove,
    Update,
    Metadata,
    Delete,
}

impl Doing {
    fn refuse(self, id: i64, reason: &str) -> Error {
        let what = match self {
            Self::Add => "add host to",
            Self::Remove => "remove host from",
            Self::Update => "update",
            Self::Metadata => "update metadata of",
            Self::Delete => "delete",
        };
        let message = format!("Cannot {what} aggregate {id}. Reason: {reason}.");
        match self {
            Self::Add | Self::Remove => Refusal::conflict(message).into(),
            Self::Update | Self::Metadata | Self::Delete => Refusal::bad_request(message).into(),
        }
    }
}

/// The changes that a `PUT` requests.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Unchanged if absent.
    pub name: Option<String>,
    /// Unchanged if absent; `Some(None)` is refused, as by Nova.
    pub zone: Option<Option<String>>,
}

/// One aggregate.
///
/// # Errors
/// 404.
pub fn get(tx: &mut Tx<'_>, id: i64) -> Result<Aggregate, Error> {
    db::by_id(tx, id)?.ok_or_else(|| not_found(id))
}

/// Creates an aggregate without hosts.
///
/// # Errors
/// 409 if the name exists.
pub fn create(
    tx: &mut Tx<'_>,
    name: &str,
    zone: Option<&str>,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    let mut aggregate = Aggregate {
        id: 0,
        uuid: Uuid::new_v4(),
        name: name.to_owned(),
        metadata: zone.map(|zone| (ZONE.to_owned(), zone.to_owned())).into_iter().collect(),
        hosts: Vec::new(),
        created_at: now,
        updated_at: None,
    };
    aggregate.id = db::insert(tx, &aggregate)?.ok_or_else(|| taken(name))?;
    Ok(aggregate)
}

/// Changes name or zone.
///
/// # Errors
/// 404; 409 if the name exists; 400 for a zone that its hosts cannot change to.
pub fn update(
    tx: &mut Tx<'_>,
    compute: &Compute,
    id: i64,
    change: &Change,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    let mut aggregate = get(tx, id)?;
    if let Some(name) = &change.name {
        if db::name_is_taken(tx, name, id)? {
            return Err(taken(name));
        }
        aggregate.name.clone_from(name);
    }
    if let Some(zone) = &change.zone {
        rename_zone(tx, &mut aggregate, zone.as_deref(), Doing::Update)?;
    }
    let aggregate = write(tx, compute, aggregate, now)?;
    if change.zone.is_some() {
        rezone_all(tx, compute, &aggregate)?;
    }
    Ok(aggregate)
}

/// Sets metadata; deletes keys without a value.
///
/// # Errors
/// 404; 400 for a zone that its hosts cannot change to.
pub fn set_metadata(
    tx: &mut Tx<'_>,
    compute: &Compute,
    id: i64,
    metadata: &BTreeMap<String, Option<String>>,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    let mut aggregate = get(tx, id)?;
    for (key, value) in metadata {
        if key == ZONE {
            rename_zone(tx, &mut aggregate, value.as_deref(), Doing::Metadata)?;
        } else if let Some(value) = value {
            aggregate.metadata.insert(key.clone(), value.clone());
        } else {
            aggregate.metadata.remove(key);
        }
    }
    let aggregate = write(tx, compute, aggregate, now)?;
    if metadata.contains_key(ZONE) {
        rezone_all(tx, compute, &aggregate)?;
    }
    Ok(aggregate)
}

/// Deletes an aggregate.
///
/// # Errors
/// 404; 400 if the aggregate has hosts.
pub fn delete(tx: &mut Tx<'_>, id: i64, now: Timestamp) -> Result<(), Error> {
    let mut aggregate = get(tx, id)?;
    if !aggregate.hosts.is_empty() {
        return Err(Doing::Delete.refuse(id, "Host aggregate is not empty"));
    }
    aggregate.updated_at = Some(now);
    db::update(tx, &aggregate)?;
    Ok(db::delete(tx, id)?)
}

/// Adds a host to an aggregate.
///
/// # Errors
/// 404 if either does not exist; 409 if the host is already a member, is in another zone, or has
/// servers that requested another zone.
pub fn add_host(
    tx: &mut Tx<'_>,
    compute: &Compute,
    id: i64,
    name: &HostName,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    let mut aggregate = get(tx, id)?;
    let host = host(tx, name)?;
    if let Some(zone) = aggregate.zone() {
        refuse_second_zone(tx, &aggregate, name, zone, Doing::Add)?;
        refuse_to_move_servers(tx, &host, zone, id, Doing::Add)?;
    }
    if !db::join(tx, id, name)? {
        return Err(Refusal::conflict(format!("Aggregate {id} already has host {name}.")).into());
    }
    placement::join(tx, &compute.world, host.root_provider, aggregate.uuid)?;
    aggregate.hosts.push(name.clone());
    aggregate.hosts.sort();
    rezone(tx, compute, name)?;
    write(tx, compute, aggregate, now)
}

/// Removes a host from an aggregate.
///
/// # Errors
/// 404 if either does not exist or the host is not a member; 409 if the host has servers that
/// requested the zone.
pub fn remove_host(
    tx: &mut Tx<'_>,
    compute: &Compute,
    id: i64,
    name: &HostName,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    let mut aggregate = get(tx, id)?;
    let host = host(tx, name)?;
    if !db::leave(tx, id, name)? {
        return Err(Refusal::not_found(format!("Aggregate {id} has no host {name}.")).into());
    }
    let rest = zone_of(tx, name)?;
    if aggregate.zone().is_some() {
        refuse_to_move_servers(tx, &host, &rest, id, Doing::Remove)?;
    }
    placement::leave(tx, &compute.world, host.root_provider, aggregate.uuid)?;
    aggregate.hosts.retain(|have| have != name);
    rezone(tx, compute, name)?;
    write(tx, compute, aggregate, now)
}

fn write(
    tx: &mut Tx<'_>,
    compute: &Compute,
    mut aggregate: Aggregate,
    now: Timestamp,
) -> Result<Aggregate, Error> {
    aggregate.updated_at = Some(now);
    db::update(tx, &aggregate)?;
    let (fleet, grouping) = (compute.fleet.clone(), db::grouping(tx)?);
    tx.on_commit(move || fleet.regroup(&grouping));
    Ok(aggregate)
}

fn rezone_all(tx: &mut Tx<'_>, compute: &Compute, aggregate: &Aggregate) -> Result<(), Error> {
    for host in &aggregate.hosts {
        rezone(tx, compute, host)?;
    }
    Ok(())
}

fn rename_zone(
    tx: &mut Tx<'_>,
    aggregate: &mut Aggregate,
    zone: Option<&str>,
    doing: Doing,
) -> Result<(), Error> {
    let Some(zone) = zone.filter(|zone| !zone.is_empty()) else {
        let why =
            format!("Aggregate {} does not support empty named availability zone", aggregate.name);
        return Err(doing.refuse(aggregate.id, &why));
    };
    for host in &aggregate.hosts {
        refuse_second_zone(tx, aggregate, host, zone, doing)?;
    }
    if aggregate.zone() != Some(zone) {
        for host in &aggregate.hosts {
            if !db::zones_asked_on(tx, host)?.is_empty() {
                let why = "One or more hosts contain instances in this zone";
                return Err(doing.refuse(aggregate.id, why));
            }
        }
    }
    aggregate.metadata.insert(ZONE.to_owned(), zone.to_owned());
    Ok(())
}

fn refuse_second_zone(
    tx: &mut Tx<'_>,
    aggregate: &Aggregate,
    host: &HostName,
    zone: &str,
    doing: Doing,
) -> Result<(), Error> {
    let others: Vec<String> = db::of_host(tx, host)?
        .iter()
        .filter(|other| other.id != aggregate.id)
        .filter_map(|other| other.zone())
        .filter(|other| *other != zone)
        .map(|other| format!("'{other}'"))
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let why = format!("One or more hosts already in availability zone(s) [{}]", others.join(", "));
    Err(doing.refuse(aggregate.id, &why))
}

/// Refuses a change that would move servers out of a zone that they requested.
fn refuse_to_move_servers(
    tx: &mut Tx<'_>,
    host: &Host,
    zone: &str,
    id: i64,
    doing: Doing,
) -> Result<(), Error> {
    let asked = db::zones_asked_on(tx, &host.host)?;
    match asked.into_iter().flatten().find(|asked| asked != zone) {
        None => Ok(()),
        Some(asked) => {
            let why = format!(
                "Host {} has instances that requested availability zone {asked} and would be in \
                 {zone}; move or delete them first",
                host.host
            );
            Err(doing.refuse(id, &why))
        }
    }
}

fn zone_of(tx: &mut Tx<'_>, host: &HostName) -> Result<String, Error> {
    let aggregates = db::of_host(tx, host)?;
    let zone = aggregates.iter().find_map(|aggregate| aggregate.zone());
    Ok(zone.unwrap_or(DEFAULT_ZONE).to_owned())
}

/// Writes the zone of a host where the scheduler reads it, and updates the fleet after the commit.
fn rezone(tx: &mut Tx<'_>, compute: &Compute, name: &HostName) -> Result<(), Error> {
    let zone = zone_of(tx, name)?;
    db::set_zone(tx, name, &zone)?;
    let mut host = host(tx, name)?;
    host.availability_zone = zone;
    let (fleet, row) = (compute.fleet.clone(), services::row_of(&host));
    tx.on_commit(move || fleet.refresh(&row));
    Ok(())
}

fn host(tx: &mut Tx<'_>, name: &HostName) -> Result<Host, Error> {
    hosts::by_name(tx, name)?.ok_or_else(|| {
        Refusal::not_found(format!("Compute host {name} could not be found.")).into()
    })
}

fn not_found(id: i64) -> Error {
    Refusal::not_found(format!("Aggregate {id} could not be found.")).into()
}

fn taken(name: &str) -> Error {
    Refusal::conflict(format!("Aggregate {name} already exists.")).into()
}
