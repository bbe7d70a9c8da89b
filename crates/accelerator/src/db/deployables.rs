//! Rows of `deployables`.

use kilonova_ids::{DeployableId, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

/// A row of `deployables`.
#[derive(Debug, Clone)]
pub(crate) struct DeployableRow {
    pub id: i64,
    pub uuid: DeployableId,
    pub device_id: i64,
    pub provider: ProviderId,
    pub name: String,
    pub resource_class: String,
    pub driver: String,
    pub bitstream_id: Option<String>,
    pub present: bool,
    pub created_at: i64,
    pub updated_at: Option<i64>,
    /// Number of its handles that are present on the host.
    pub handles: i64,
    /// The function of the bitstream according to its image.
    pub function: Option<String>,
}

/// A deployable as its node reports it.
pub(crate) struct NewDeployable<'a> {
    pub device_id: i64,
    pub provider: ProviderId,
    pub name: &'a str,
    pub resource_class: &'a str,
    pub driver: &'a str,
}

statements! {
    /// The deployables of a host.
    OF_HOST = "SELECT p.id, p.uuid, p.device_id, p.provider_id, p.name, p.resource_class,
        p.driver, p.bitstream_id, p.present, p.created_at, p.updated_at,
        (SELECT COUNT(*) FROM attach_handles h WHERE h.deployable_id = p.id AND h.present = 1),
        p.function_id FROM deployables p JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 ORDER BY p.id";
    /// All deployables, or those of one name.
    LIST = "SELECT p.id, p.uuid, p.device_id, p.provider_id, p.name, p.resource_class,
        p.driver, p.bitstream_id, p.present, p.created_at, p.updated_at,
        (SELECT COUNT(*) FROM attach_handles h WHERE h.deployable_id = p.id AND h.present = 1),
        p.function_id FROM deployables p WHERE (CAST(?1 AS TEXT) IS NULL OR p.name = ?1) ORDER BY p.id";
    /// One deployable.
    BY_UUID = "SELECT p.id, p.uuid, p.device_id, p.provider_id, p.name, p.resource_class,
        p.driver, p.bitstream_id, p.present, p.created_at, p.updated_at,
        (SELECT COUNT(*) FROM attach_handles h WHERE h.deployable_id = p.id AND h.present = 1),
        p.function_id FROM deployables p WHERE p.uuid = ?1";
    /// True if a deployable with this id exists.
    BY_ID = "SELECT id FROM deployables WHERE id = ?1";
    /// The providers of a device.
    PROVIDERS_OF = "SELECT provider_id FROM deployables WHERE device_id = ?1 ORDER BY provider_id";
    /// The host of a provider's device.
    HOST_OF_PROVIDER = "SELECT d.host FROM deployables p JOIN devices d ON d.id = p.device_id
        WHERE p.provider_id = ?1";
    /// Inserts a deployable.
    INSERT = "INSERT INTO deployables (uuid, device_id, provider_id, name, resource_class, driver,
        present, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7) RETURNING id";
    /// Updates a deployable from the node's report.
    UPDATE = "UPDATE deployables SET device_id = ?2, resource_class = ?3, driver = ?4, present = 1,
        updated_at = ?5 WHERE id = ?1";
    /// Marks a deployable as absent from its host.
    VANISH = "UPDATE deployables SET present = 0, updated_at = ?2 WHERE id = ?1";
    /// Deletes a deployable.
    DELETE = "DELETE FROM deployables WHERE id = ?1";
}

fn read(row: &Row) -> Result<DeployableRow, Error> {
    Ok(DeployableRow {
        id: row.int(0)?,
        uuid: row.id(1)?,
        device_id: row.int(2)?,
        provider: row.id(3)?,
        name: row.string(4)?,
        resource_class: row.string(5)?,
        driver: row.string(6)?,
        bitstream_id: row.string_opt(7)?,
        present: row.bool(8)?,
        created_at: row.int(9)?,
        updated_at: row.int_opt(10)?,
        handles: row.int(11)?,
        function: row.string_opt(12)?,
    })
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<DeployableRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

pub(crate) fn list(tx: &mut Tx<'_>, name: Option<String>) -> Result<Vec<DeployableRow>, Error> {
    tx.rows(LIST, params![name])?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeployableId) -> Result<Option<DeployableRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn host_of(tx: &mut Tx<'_>, provider: ProviderId) -> Result<Option<String>, Error> {
    tx.row(HOST_OF_PROVIDER, params![provider])?.map(|row| row.string(0)).transpose()
}

pub(crate) fn insert(tx: &mut Tx<'_>, new: &NewDeployable<'_>, now: i64) -> Result<i64, Error> {
    let row = tx.row(
        INSERT,
        params![
            DeployableId::new_v4(),
            new.device_id,
            new.provider,
            new.name,
            new.resource_class,
            new.driver,
            now
        ],
    )?;
    row.ok_or_else(|| Error::Shape("INSERT returned no row".into()))?.int(0)
}

pub(crate) fn is_there(tx: &mut Tx<'_>, id: i64) -> Result<bool, Error> {
    Ok(tx.row(BY_ID, params![id])?.is_some())
}

pub(crate) fn providers_of(tx: &mut Tx<'_>, device_id: i64) -> Result<Vec<ProviderId>, Error> {
    tx.rows(PROVIDERS_OF, params![device_id])?.iter().map(|row| row.id(0)).collect()
}
