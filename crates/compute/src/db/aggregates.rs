//! Host aggregates and who is in them. The zone is the metadata `availability_zone`, as in Nova.

use std::collections::BTreeMap;

use kilonova_store::{Error as StoreError, Row, Tx, params};
use uuid::Uuid;

use crate::Error;

/// Metadata that makes an aggregate a zone.
pub const ZONE: &str = "availability_zone";

kilonova_store::statements! {
    /// All, oldest first.
    ALL = "SELECT id, uuid, name, metadata, created_at, updated_at FROM aggregates ORDER BY id";
    /// One.
    BY_ID = "SELECT id, uuid, name, metadata, created_at, updated_at FROM aggregates
        WHERE id = ?1";
    /// Those that a host is in.
    OF_HOST = "SELECT a.id, a.uuid, a.name, a.metadata, a.created_at, a.updated_at
        FROM aggregates a JOIN aggregate_hosts h ON h.aggregate_id = a.id
        WHERE h.host = ?1 ORDER BY a.id";
    /// A new one.
    INSERT = "INSERT INTO aggregates (uuid, name, metadata, created_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (name) DO NOTHING RETURNING id";
    /// Whether a name belongs to another.
    NAME_TAKEN = "SELECT 1 FROM aggregates WHERE name = ?1 AND id <> ?2";
    /// Its name and metadata.
    UPDATE = "UPDATE aggregates SET name = ?2, metadata = ?3, updated_at = ?4 WHERE id = ?1";
    /// It goes.
    DELETE = "DELETE FROM aggregates WHERE id = ?1";
    /// Who is in which.
    MEMBERS = "SELECT aggregate_id, host FROM aggregate_hosts ORDER BY aggregate_id, host";
    /// Who is in it.
    MEMBERS_OF = "SELECT host FROM aggregate_hosts WHERE aggregate_id = ?1 ORDER BY host";
    /// A host joins.
    JOIN = "INSERT INTO aggregate_hosts (aggregate_id, host) VALUES (?1, ?2)
        ON CONFLICT DO NOTHING";
    /// A host leaves.
    LEAVE = "DELETE FROM aggregate_hosts WHERE aggregate_id = ?1 AND host = ?2";
    /// The zone that the scheduler sees.
    SET_ZONE = "UPDATE hosts SET availability_zone = ?2 WHERE host = ?1";
    /// The zones that the servers of a host were asked to be in.
    SPECS_ON = "SELECT spec FROM servers WHERE host = ?1";
}

/// A host aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Integer id, by which the API names it.
    pub id: i64,
    /// Id of the aggregate of providers that stands for it.
    pub uuid: Uuid,
    /// Name, unique.
    pub name: String,
    /// Metadata, the zone among them.
    pub metadata: BTreeMap<String, String>,
    /// Hosts in it, by name.
    pub hosts: Vec<String>,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: Option<i64>,
}

impl Aggregate {
    /// The zone that it makes of its hosts.
    pub fn zone(&self) -> Option<&str> {
        self.metadata.get(ZONE).map(String::as_str)
    }
}

fn read(row: &Row) -> Result<Aggregate, Error> {
    let shape = |what: &str| StoreError::Shape(format!("{what} of an aggregate cannot be read"));
    Ok(Aggregate {
        id: row.int(0)?,
        uuid: row.text(1)?.parse().map_err(|_| shape("uuid"))?,
        name: row.string(2)?,
        metadata: serde_json::from_str(row.text(3)?).map_err(|_| shape("metadata"))?,
        hosts: Vec::new(),
        created_at: row.int(4)?,
        updated_at: row.int_opt(5)?,
    })
}

/// All aggregates with their hosts.
///
/// # Errors
/// The database's; so for all functions here.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Aggregate>, Error> {
    let mut all: Vec<Aggregate> =
        tx.rows(ALL, params![])?.iter().map(read).collect::<Result<_, _>>()?;
    let mut members: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for row in tx.rows(MEMBERS, params![])? {
        members.entry(row.int(0)?).or_default().push(row.string(1)?);
    }
    for aggregate in &mut all {
        aggregate.hosts = members.remove(&aggregate.id).unwrap_or_default();
    }
    Ok(all)
}

/// One aggregate with its hosts.
pub fn by_id(tx: &mut Tx<'_>, id: i64) -> Result<Option<Aggregate>, Error> {
    let Some(mut aggregate) = tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()? else {
        return Ok(None);
    };
    let rows = tx.rows(MEMBERS_OF, params![id])?;
    aggregate.hosts = rows.iter().map(|row| row.string(0)).collect::<Result<_, _>>()?;
    Ok(Some(aggregate))
}

/// The aggregates that a host is in, without their hosts.
pub fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<Aggregate>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// Adds an aggregate and returns its id; `None` when the name is taken.
pub fn insert(tx: &mut Tx<'_>, new: &Aggregate) -> Result<Option<i64>, Error> {
    let params = params![new.uuid.to_string(), &new.name, text(&new.metadata)?, new.created_at];
    Ok(tx.row(INSERT, params)?.map(|row| row.int(0)).transpose()?)
}

/// Whether another aggregate than `id` has the name.
pub fn name_is_taken(tx: &mut Tx<'_>, name: &str, id: i64) -> Result<bool, Error> {
    Ok(tx.row(NAME_TAKEN, params![name, id])?.is_some())
}

/// Writes name, metadata and time of change.
pub fn update(tx: &mut Tx<'_>, aggregate: &Aggregate) -> Result<(), Error> {
    let metadata = text(&aggregate.metadata)?;
    tx.execute(UPDATE, params![aggregate.id, &aggregate.name, metadata, aggregate.updated_at])?;
    Ok(())
}

/// Removes an aggregate that has no hosts.
pub fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.execute(DELETE, params![id])?;
    Ok(())
}

/// Puts a host into an aggregate; says whether it was not in it before.
pub fn join(tx: &mut Tx<'_>, id: i64, host: &str) -> Result<bool, Error> {
    Ok(tx.execute(JOIN, params![id, host])? == 1)
}

/// Takes a host out of an aggregate; says whether it was in it.
pub fn leave(tx: &mut Tx<'_>, id: i64, host: &str) -> Result<bool, Error> {
    Ok(tx.execute(LEAVE, params![id, host])? == 1)
}

/// Writes the zone of a host.
pub fn set_zone(tx: &mut Tx<'_>, host: &str, zone: &str) -> Result<(), Error> {
    tx.execute(SET_ZONE, params![host, zone])?;
    Ok(())
}

/// For each server of a host, the zone that was asked for.
pub fn zones_asked_on(tx: &mut Tx<'_>, host: &str) -> Result<Vec<Option<String>>, Error> {
    #[derive(serde::Deserialize)]
    struct Asked {
        availability_zone: Option<String>,
    }
    let asked = |row: &Row| {
        let spec: Asked = serde_json::from_str(row.text(0)?)
            .map_err(|error| StoreError::Shape(format!("spec of a server: {error}")))?;
        Ok(spec.availability_zone)
    };
    tx.rows(SPECS_ON, params![host])?.iter().map(asked).collect()
}

fn text(metadata: &BTreeMap<String, String>) -> Result<String, Error> {
    Ok(serde_json::to_string(metadata)
        .map_err(|error| StoreError::Shape(format!("metadata of an aggregate: {error}")))?)
}
