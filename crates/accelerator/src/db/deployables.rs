//! Rows of `deployables`.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{DeployableId, HostName, ProviderId, ResourceClass};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

use super::consecutive;

/// A row of `deployables`.
#[derive(Debug, Clone)]
pub(crate) struct DeployableRow {
    pub id: i64,
    pub uuid: DeployableId,
    pub device_id: i64,
    pub provider: ProviderId,
    pub name: String,
    pub resource_class: ResourceClass,
    pub driver: String,
    pub bitstream_id: Option<String>,
    /// The function of the bitstream according to its image.
    pub function: Option<String>,
    pub present: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// Number of its handles that are present on the host.
    pub handles: i64,
}

/// A deployable as its host reports it.
pub(crate) struct NewDeployable<'a> {
    pub device_id: i64,
    pub provider: ProviderId,
    pub name: &'a str,
    pub resource_class: &'a ResourceClass,
    pub driver: &'a str,
}

/// Selects a [`DeployableRow`].
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT p.id, p.uuid, p.device_id, p.provider_id, p.name, p.resource_class, p.driver,
            p.bitstream_id, p.function_id, p.present, p.created_at, p.updated_at,
            (SELECT COUNT(*) FROM attach_handles h
                WHERE h.deployable_id = p.id AND h.present = 1) AS handles
            FROM deployables p ",
            $condition
        )
    };
}

statements! {
    /// The deployables of a host.
    OF_HOST = select!("JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 ORDER BY p.id");
    /// All deployables.
    LIST = select!("ORDER BY p.id");
    /// The deployables with one name, newest first.
    LIST_NAMED = select!("WHERE p.name = ?1 ORDER BY p.created_at DESC, p.id DESC");
    /// One deployable.
    BY_UUID = select!("WHERE p.uuid = ?1");
    /// The row id of a deployable, if it exists.
    BY_ID = "SELECT id FROM deployables WHERE id = ?1";
    /// The providers of a device.
    PROVIDERS_OF = "SELECT provider_id FROM deployables WHERE device_id = ?1 ORDER BY provider_id";
    /// The host of a provider's device.
    HOST_OF_PROVIDER = "SELECT d.host FROM deployables p JOIN devices d ON d.id = p.device_id
        WHERE p.provider_id = ?1";
    /// The hosts of several providers' devices.
    HOSTS_OF_PROVIDERS = "SELECT p.provider_id, d.host FROM deployables p
        JOIN devices d ON d.id = p.device_id WHERE p.provider_id IN ({})";
    /// Inserts deployables.
    INSERT = "INSERT INTO deployables (uuid, device_id, provider_id, name, resource_class, driver,
        present, created_at) VALUES ({}, {}, {}, {}, {}, {}, {}, {}) RETURNING id, provider_id";
    /// Updates a deployable from the host's report.
    UPDATE = "UPDATE deployables SET device_id = ?2, resource_class = ?3, driver = ?4, present = 1,
        updated_at = ?5 WHERE id = ?1";
    /// Marks a deployable as absent from its host.
    MARK_ABSENT = "UPDATE deployables SET present = 0, updated_at = ?2 WHERE id = ?1";
    /// Deletes a deployable.
    DELETE = "DELETE FROM deployables WHERE id = ?1";
}

fn read(row: &Row) -> Result<DeployableRow, Error> {
    Ok(DeployableRow {
        id: row.int("id")?,
        uuid: row.id("uuid")?,
        device_id: row.int("device_id")?,
        provider: row.id("provider_id")?,
        name: row.string("name")?,
        resource_class: row.class("resource_class")?,
        driver: row.string("driver")?,
        bitstream_id: row.string_opt("bitstream_id")?,
        function: row.string_opt("function_id")?,
        present: row.bool("present")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
        handles: row.int("handles")?,
    })
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<DeployableRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// The deployables in upstream's order (`objects/deployable.py`): by id, or newest first if there is a filter.
pub(crate) fn list(tx: &mut Tx<'_>, name: Option<String>) -> Result<Vec<DeployableRow>, Error> {
    let rows = match name {
        Some(name) => tx.rows(LIST_NAMED, params![name])?,
        None => tx.rows(LIST, params![])?,
    };
    rows.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeployableId) -> Result<Option<DeployableRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

/// The host of a provider's device; `None` if the provider is not a device.
pub(crate) fn host_of(tx: &mut Tx<'_>, provider: ProviderId) -> Result<Option<HostName>, Error> {
    tx.row(HOST_OF_PROVIDER, params![provider])?.map(|row| row.host("host")).transpose()
}

/// Asks for the hosts of several providers' devices; [`found_hosts`] reads the answer.
pub(crate) fn ask_hosts_of(
    tx: &mut Tx<'_>,
    providers: impl Iterator<Item = ProviderId>,
) -> Result<Vec<Asked>, Error> {
    let providers: Vec<Value> = providers.map(Value::from).collect();
    tx.ask_list(HOSTS_OF_PROVIDERS, &providers)
}

/// The hosts that [`ask_hosts_of`] requested, by provider.
pub(crate) fn found_hosts(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
) -> Result<HashMap<ProviderId, HostName>, Error> {
    let rows = tx.answers(asked)?;
    rows.iter().map(|row| Ok((row.id("provider_id")?, row.host("host")?))).collect()
}

/// Inserts deployables; [`inserted`] returns their row ids.
pub(crate) fn ask_insert(
    tx: &mut Tx<'_>,
    new: &[NewDeployable<'_>],
    now: Timestamp,
) -> Result<Vec<Asked>, Error> {
    let row = |(id, new): (DeployableId, &NewDeployable<'_>)| -> [Value; 8] {
        [
            id.into(),
            new.device_id.into(),
            new.provider.into(),
            new.name.into(),
            new.resource_class.into(),
            new.driver.into(),
            true.into(),
            now.into(),
        ]
    };
    let rows: Vec<_> = consecutive().zip(new).map(row).collect();
    tx.ask_rows(INSERT, &rows)
}

/// The ids of the rows that [`ask_insert`] inserted, by provider.
pub(crate) fn inserted(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
) -> Result<HashMap<ProviderId, i64>, Error> {
    let rows = tx.answers(asked)?;
    rows.iter().map(|row| Ok((row.id("provider_id")?, row.int("id")?))).collect()
}

/// Updates a deployable from the host's report.
pub(crate) fn update(
    tx: &mut Tx<'_>,
    id: i64,
    new: &NewDeployable<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(UPDATE, params![id, new.device_id, new.resource_class, new.driver, now])?;
    Ok(())
}

/// Marks a deployable as absent from its host.
pub(crate) fn mark_absent(tx: &mut Tx<'_>, id: i64, now: Timestamp) -> Result<(), Error> {
    tx.defer(MARK_ABSENT, params![id, now])?;
    Ok(())
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.defer(DELETE, params![id])?;
    Ok(())
}

/// True if a deployable with this row id exists.
pub(crate) fn exists(tx: &mut Tx<'_>, id: i64) -> Result<bool, Error> {
    Ok(tx.row(BY_ID, params![id])?.is_some())
}

/// The providers of a device.
pub(crate) fn providers_of(tx: &mut Tx<'_>, device_id: i64) -> Result<Vec<ProviderId>, Error> {
    tx.rows(PROVIDERS_OF, params![device_id])?.iter().map(|row| row.id("provider_id")).collect()
}
