//! Host aggregates and their members. The zone is the metadata `availability_zone`, as in Nova.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_changes::Topic;
use kilonova_ids::HostName;
use kilonova_store::{Error as StoreError, Row, Tx, params};
use uuid::Uuid;

use crate::Error;

/// The metadata key that makes an aggregate an availability zone.
pub const ZONE: &str = "availability_zone";

/// The columns of an [`Aggregate`], from the table with the alias `a`.
macro_rules! columns {
    () => {
        "a.id, a.uuid, a.name, a.metadata, a.created_at, a.updated_at"
    };
}

kilonova_store::statements! {
    /// All aggregates, oldest first.
    ALL = concat!("SELECT ", columns!(), " FROM aggregates a ORDER BY a.id");
    /// One aggregate.
    BY_ID = concat!("SELECT ", columns!(), " FROM aggregates a WHERE a.id = ?1");
    /// The aggregates of a host.
    OF_HOST = concat!("SELECT ", columns!(), " FROM aggregates a
        JOIN aggregate_hosts h ON h.aggregate_id = a.id WHERE h.host = ?1 ORDER BY a.id");
    /// Inserts an aggregate.
    INSERT = "INSERT INTO aggregates (uuid, name, metadata, created_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (name) DO NOTHING RETURNING id";
    /// Selects a row if another aggregate has the name.
    NAME_TAKEN = "SELECT 1 FROM aggregates WHERE name = ?1 AND id <> ?2";
    /// Updates name and metadata.
    UPDATE = "UPDATE aggregates SET name = ?2, metadata = ?3, updated_at = ?4 WHERE id = ?1";
    /// Deletes an aggregate.
    DELETE = "DELETE FROM aggregates WHERE id = ?1";
    /// All memberships.
    MEMBERS = "SELECT aggregate_id, host FROM aggregate_hosts ORDER BY aggregate_id, host";
    /// The hosts of an aggregate.
    MEMBERS_OF = "SELECT host FROM aggregate_hosts WHERE aggregate_id = ?1 ORDER BY host";
    /// Adds a host.
    JOIN = "INSERT INTO aggregate_hosts (aggregate_id, host) VALUES (?1, ?2)
        ON CONFLICT DO NOTHING";
    /// Removes a host.
    LEAVE = "DELETE FROM aggregate_hosts WHERE aggregate_id = ?1 AND host = ?2";
    /// Sets the zone that the scheduler uses.
    SET_ZONE = "UPDATE hosts SET availability_zone = ?2, revision = revision + 1 WHERE host = ?1";
    /// The number of changes to all aggregates.
    REVISION = "SELECT revision FROM aggregates_revision";
    /// Counts a change to any aggregate.
    COUNT_CHANGE = "UPDATE aggregates_revision SET revision = revision + 1";
    /// The specs of a host's servers, with the requested zones.
    SPECS_ON = "SELECT spec FROM servers WHERE host = ?1";
}

/// A host aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Integer id used by the API.
    pub id: i64,
    /// Id of the corresponding aggregate of providers.
    pub uuid: Uuid,
    /// Name, unique.
    pub name: String,
    /// Metadata, including the zone.
    pub metadata: BTreeMap<String, String>,
    /// Names of its hosts.
    pub hosts: Vec<HostName>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

impl Aggregate {
    /// The availability zone of its hosts, if it defines one.
    pub fn zone(&self) -> Option<&str> {
        self.metadata.get(ZONE).map(String::as_str)
    }
}

fn read(row: &Row) -> Result<Aggregate, Error> {
    let shape = |what: &str| StoreError::Shape(format!("{what} of an aggregate cannot be read"));
    Ok(Aggregate {
        id: row.int("id")?,
        uuid: row.text("uuid")?.parse().map_err(|_| shape("uuid"))?,
        name: row.string("name")?,
        metadata: serde_json::from_str(row.text("metadata")?).map_err(|_| shape("metadata"))?,
        hosts: Vec::new(),
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
    })
}

/// All aggregates with their hosts.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Aggregate>, Error> {
    let mut all: Vec<Aggregate> =
        tx.rows(ALL, params![])?.iter().map(read).collect::<Result<_, _>>()?;
    let mut members: BTreeMap<i64, Vec<HostName>> = BTreeMap::new();
    for row in tx.rows(MEMBERS, params![])? {
        members.entry(row.int("aggregate_id")?).or_default().push(row.host("host")?);
    }
    for aggregate in &mut all {
        aggregate.hosts = members.remove(&aggregate.id).unwrap_or_default();
    }
    Ok(all)
}

/// All aggregates as of a revision.
#[derive(Debug, Clone, Default)]
pub struct Grouping {
    /// The number of changes so far: of two groupings, the one with the larger revision is newer. Controllers of an
    /// earlier version do not count their changes.
    pub revision: i64,
    /// All aggregates with their hosts.
    pub aggregates: Vec<Aggregate>,
}

/// All aggregates with their revision, in the transaction's snapshot.
pub fn grouping(tx: &mut Tx<'_>) -> Result<Grouping, Error> {
    let revision = tx.row(REVISION, params![])?.map(|row| row.int("revision")).transpose()?;
    Ok(Grouping { revision: revision.unwrap_or_default(), aggregates: all(tx)? })
}

/// One aggregate with its hosts.
pub fn by_id(tx: &mut Tx<'_>, id: i64) -> Result<Option<Aggregate>, Error> {
    let Some(mut aggregate) = tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()? else {
        return Ok(None);
    };
    let rows = tx.rows(MEMBERS_OF, params![id])?;
    aggregate.hosts = rows.iter().map(|row| row.host("host")).collect::<Result<_, _>>()?;
    Ok(Some(aggregate))
}

/// The aggregates of a host, without their hosts.
pub fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<Aggregate>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// Inserts an aggregate and returns its id; `None` if the name exists.
pub fn insert(tx: &mut Tx<'_>, new: &Aggregate) -> Result<Option<i64>, Error> {
    let params = params![new.uuid.to_string(), &new.name, text(&new.metadata)?, new.created_at];
    Ok(tx.row(INSERT, params)?.map(|row| row.int("id")).transpose()?)
}

/// True if an aggregate other than `id` has the name.
pub fn name_is_taken(tx: &mut Tx<'_>, name: &str, id: i64) -> Result<bool, Error> {
    Ok(tx.row(NAME_TAKEN, params![name, id])?.is_some())
}

/// Writes name, metadata and update time. Every change to an aggregate that has or had hosts must
/// call this function: it counts the change, so that one of two concurrent changes is retried.
pub fn update(tx: &mut Tx<'_>, aggregate: &Aggregate) -> Result<(), Error> {
    let metadata = text(&aggregate.metadata)?;
    tx.defer(UPDATE, params![aggregate.id, &aggregate.name, metadata, aggregate.updated_at])?;
    tx.defer(COUNT_CHANGE, params![])?;
    kilonova_changes::append(tx, Topic::Aggregates, "", aggregate.id)?;
    Ok(())
}

/// Deletes an aggregate without hosts.
pub fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.defer(DELETE, params![id])?;
    Ok(())
}

/// Adds a host to an aggregate; returns whether it was not a member before.
pub fn join(tx: &mut Tx<'_>, id: i64, host: &HostName) -> Result<bool, Error> {
    Ok(tx.execute(JOIN, params![id, host])? == 1)
}

/// Removes a host from an aggregate; returns whether it was a member.
pub fn leave(tx: &mut Tx<'_>, id: i64, host: &HostName) -> Result<bool, Error> {
    Ok(tx.execute(LEAVE, params![id, host])? == 1)
}

/// Sets the zone of a host.
pub fn set_zone(tx: &mut Tx<'_>, host: &HostName, zone: &str) -> Result<(), Error> {
    tx.defer(SET_ZONE, params![host, zone])?;
    Ok(super::hosts::changed(tx, host)?)
}

/// The requested zone of each server on a host.
pub fn zones_asked_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<Option<String>>, Error> {
    #[derive(serde::Deserialize)]
    struct Asked {
        availability_zone: Option<String>,
    }
    let asked = |row: &Row| {
        let spec: Asked = serde_json::from_str(row.text("spec")?)
            .map_err(|error| StoreError::Shape(format!("spec of a server: {error}")))?;
        Ok(spec.availability_zone)
    };
    tx.rows(SPECS_ON, params![host])?.iter().map(asked).collect()
}

fn text(metadata: &BTreeMap<String, String>) -> Result<String, Error> {
    Ok(serde_json::to_string(metadata)
        .map_err(|error| StoreError::Shape(format!("metadata of an aggregate: {error}")))?)
}
