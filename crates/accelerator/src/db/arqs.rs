//! Rows of `arqs`, accelerator requests. The handle of a bound request is the `attach_handles` row
//! that names it.

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeviceProfileId, HostName, OperationId, PortId, ProviderId,
    ServerId,
};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::{HandleKey, key};
use crate::states::ArqState;

/// A request with its profile's name and, if bound, its handle.
#[derive(Debug, Clone)]
pub(crate) struct ArqRow {
    pub uuid: ArqId,
    pub project_id: String,
    pub state: ArqState,
    pub profile_name: String,
    pub group_id: i64,
    /// True if the compute service of this process created it, together with the server.
    pub internal: bool,
    pub host: Option<HostName>,
    pub provider: Option<ProviderId>,
    pub server: Option<ServerId>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    pub handle: Option<BoundHandle>,
}

/// The handle of a bound request.
#[derive(Debug, Clone)]
pub(crate) struct BoundHandle {
    pub uuid: AttachHandleId,
    pub key: HandleKey,
    pub slot: i64,
    /// The physical network of the handle, if the host reports one.
    pub network: Option<String>,
}

/// The binding that a request gets.
pub(crate) struct BindTarget<'a> {
    pub host: &'a HostName,
    pub provider: ProviderId,
    pub server: ServerId,
    pub consumer: ConsumerId,
    pub ordinal: i64,
}

/// The handle of a request that belongs to a port.
pub(crate) struct PortHandle {
    pub port: PortId,
    pub arq: ArqId,
    pub handle: AttachHandleId,
    pub key: HandleKey,
}

/// A bound request of an external instance.
#[derive(Debug, Clone)]
pub(crate) struct ExternalRequest {
    /// Its id, for paging.
    pub id: i64,
    pub server: ServerId,
    pub provider: ProviderId,
}

/// Selects an [`ArqRow`]. Requests without a profile are not shown.
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT a.uuid, a.project_id, a.state, f.name AS profile_name, a.group_id, a.internal,
            a.host, a.provider_id, a.server_id, a.created_at, a.updated_at, h.uuid AS handle_id,
            h.attach_type, h.address, h.mdev_type, h.slot,
            (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = h.deployable_id
                AND t.name = 'physical_network' AND t.reported = 1) AS physical_network
            FROM arqs a JOIN device_profiles f ON f.uuid = a.profile_id
            LEFT JOIN attach_handles h ON h.arq_id = a.uuid ",
            $condition
        )
    };
}

statements! {
    /// The requests that the API shows, of one project or of all.
    LIST = select!("WHERE (CAST(?1 AS TEXT) IS NULL OR a.project_id = ?1) ORDER BY a.id");
    /// The requests of a server, read through an index.
    LIST_OF_SERVER = select!("WHERE a.server_id = ?2
        AND (CAST(?1 AS TEXT) IS NULL OR a.project_id = ?1) ORDER BY a.id");
    /// One request that the API shows.
    BY_UUID = select!("WHERE a.uuid = ?1");
    /// Inserts an unbound request.
    INSERT = "INSERT INTO arqs (uuid, project_id, state, profile_id, group_id, internal, created_at)
        VALUES (?1, ?2, 'Initial', ?3, ?4, 0, ?5)";
    /// Inserts a bound request.
    INSERT_BOUND = "INSERT INTO arqs (uuid, project_id, state, profile_id, group_id, internal,
        host, provider_id, server_id, consumer_id, ordinal, created_at)
        VALUES (?1, ?2, 'Bound', ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10)";
    /// Sets the port of a request.
    SET_PORT = "UPDATE arqs SET port_id = ?2 WHERE uuid = ?1";
    /// The requests of a server on a host that belong to ports; the server's own first.
    OF_PORTS = "SELECT a.port_id, a.uuid, h.uuid AS handle_id, h.attach_type, h.address, h.mdev_type
        FROM arqs a JOIN attach_handles h ON h.arq_id = a.uuid
        WHERE a.server_id = ?1 AND a.host = ?2 AND a.port_id IS NOT NULL
        ORDER BY CASE WHEN a.consumer_id = ?1 THEN 0 ELSE 1 END, a.ordinal";
    /// Binds an unbound request.
    BIND = "UPDATE arqs SET state = 'Bound', host = ?2, provider_id = ?3, server_id = ?4,
        consumer_id = ?5, ordinal = ?6, project_id = COALESCE(CAST(?7 AS TEXT), project_id),
        updated_at = ?8
        WHERE uuid = ?1 AND state IN ('Initial', 'Unbound')";
    /// Unbinds a request.
    UNBIND = "UPDATE arqs SET state = 'Unbound', awaits = NULL, host = NULL, provider_id = NULL,
        server_id = NULL, consumer_id = NULL, ordinal = NULL, updated_at = ?2 WHERE uuid = ?1";
    /// Deletes a request.
    DELETE = "DELETE FROM arqs WHERE uuid = ?1";
    /// Deletes the requests of a consumer.
    DELETE_OF_CONSUMER = "DELETE FROM arqs WHERE consumer_id = ?1";
    /// The requests of a consumer, and whether the handle of each must be cleaned after its release.
    HELD = "SELECT a.uuid, a.awaits, CASE WHEN EXISTS (SELECT 1 FROM attach_handles h
            JOIN attributes t ON t.deployable_id = h.deployable_id AND t.name = 'on_release'
              AND t.reported = 1 WHERE h.arq_id = a.uuid) THEN 1 ELSE 0 END AS must_clean
        FROM arqs a WHERE a.consumer_id = ?1";
    /// Moves the requests of a consumer to another.
    HAND_OVER = "UPDATE arqs SET consumer_id = ?2, updated_at = ?3 WHERE consumer_id = ?1";
    /// Writes the project's row, so that concurrent calls of one project are serialized.
    CALL = "INSERT INTO request_makers (project_id, calls) VALUES (?1, 1)
        ON CONFLICT (project_id) DO UPDATE SET calls = request_makers.calls + 1";
    /// Number of unbound requests of a project.
    UNBOUND_OF = "SELECT COUNT(*) AS count FROM arqs WHERE project_id = ?1
        AND state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0";
    /// Requests of external instances, with ids above a given one, that were bound before a time
    /// and about which no controller has queried Nova since another time.
    EXTERNAL = "SELECT id, server_id, provider_id FROM arqs
        WHERE internal = 0 AND state = 'Bound' AND id > ?1 AND updated_at < ?2
          AND (asked_at IS NULL OR asked_at < ?3) ORDER BY id LIMIT ?4";
    /// Records a query about an instance, unless another controller has recorded one recently.
    RECORD_QUERY = "UPDATE arqs SET asked_at = ?2 WHERE server_id = ?1 AND internal = 0
        AND (asked_at IS NULL OR asked_at < ?3)";
    /// Deletes unbound requests that have not changed since a time.
    EXPIRE = "DELETE FROM arqs WHERE state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0
        AND COALESCE(updated_at, created_at) < ?1";
    /// The next free ordinal of a consumer's requests.
    NEXT_ORDINAL = "SELECT COALESCE(MAX(ordinal) + 1, 0) AS next FROM arqs WHERE consumer_id = ?1";
}

fn read(row: &Row) -> Result<ArqRow, Error> {
    let handle = match row.id_opt("handle_id")? {
        None => None,
        Some(uuid) => Some(BoundHandle {
            uuid,
            key: key(row)?,
            slot: row.int("slot")?,
            network: row.string_opt("physical_network")?,
        }),
    };
    Ok(ArqRow {
        uuid: row.id("uuid")?,
        project_id: row.string("project_id")?,
        state: ArqState::read(row, "state")?,
        profile_name: row.string("profile_name")?,
        group_id: row.int("group_id")?,
        internal: row.bool("internal")?,
        host: row.host_opt("host")?,
        provider: row.id_opt("provider_id")?,
        server: row.id_opt("server_id")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
        handle,
    })
}

pub(crate) fn list(
    tx: &mut Tx<'_>,
    project: Option<&str>,
    server: Option<ServerId>,
) -> Result<Vec<ArqRow>, Error> {
    let rows = match server {
        None => tx.rows(LIST, params![project])?,
        Some(server) => tx.rows(LIST_OF_SERVER, params![project, server])?,
    };
    rows.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: ArqId) -> Result<Option<ArqRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    project_id: &str,
    profile: DeviceProfileId,
    group: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(INSERT, params![uuid, project_id, profile, group, now])?;
    Ok(())
}

pub(crate) fn insert_bound(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    project_id: &str,
    profile: Option<DeviceProfileId>,
    group: i64,
    target: &BindTarget<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(
        INSERT_BOUND,
        params![
            uuid,
            project_id,
            profile,
            group,
            target.host,
            target.provider,
            target.server,
            target.consumer,
            target.ordinal,
            now
        ],
    )?;
    Ok(())
}

/// Sets the port of a request.
pub(crate) fn set_port(tx: &mut Tx<'_>, arq: ArqId, port: PortId) -> Result<(), Error> {
    tx.defer(SET_PORT, params![arq, port])?;
    Ok(())
}

/// The handles of a server's ports on a host. Those of the server's own requests come first.
pub(crate) fn of_ports(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
) -> Result<Vec<PortHandle>, Error> {
    let read = |row: &Row| {
        Ok(PortHandle {
            port: row.id("port_id")?,
            arq: row.id("uuid")?,
            handle: row.id("handle_id")?,
            key: key(row)?,
        })
    };
    tx.rows(OF_PORTS, params![server, host])?.iter().map(read).collect()
}

/// Makes a concurrent call of the project in another transaction wait for this one or fail.
pub(crate) fn serialize_calls(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    tx.defer(CALL, params![project])?;
    Ok(())
}

/// Number of unbound requests of a project.
pub(crate) fn unbound_of(tx: &mut Tx<'_>, project: &str) -> Result<i64, Error> {
    tx.row(UNBOUND_OF, params![project])?.map_or(Ok(0), |row| row.int("count"))
}

/// Requests of external instances, with ids above a given one.
pub(crate) fn external(
    tx: &mut Tx<'_>,
    after: i64,
    bound_before: Timestamp,
    asked_before: Timestamp,
    limit: i64,
) -> Result<Vec<ExternalRequest>, Error> {
    let rows = tx.rows(EXTERNAL, params![after, bound_before, asked_before, limit])?;
    let read = |row: &Row| {
        Ok(ExternalRequest {
            id: row.int("id")?,
            server: row.id("server_id")?,
            provider: row.id("provider_id")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Records that this controller queries Nova about an instance; `false` if another one has recorded
/// a query since `asked_before`.
pub(crate) fn record_query(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
    asked_before: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(RECORD_QUERY, params![server, now, asked_before])? > 0)
}

/// Deletes unbound requests that have not changed since a time; returns their number.
pub(crate) fn expire(tx: &mut Tx<'_>, unchanged_since: Timestamp) -> Result<u64, Error> {
    tx.execute(EXPIRE, params![unchanged_since])
}

/// Binds the request; returns whether it was unbound.
pub(crate) fn bind(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    target: &BindTarget<'_>,
    project: Option<&str>,
    now: Timestamp,
) -> Result<bool, Error> {
    let changed = tx.execute(
        BIND,
        params![
            uuid,
            target.host,
            target.provider,
            target.server,
            target.consumer,
            target.ordinal,
            project,
            now
        ],
    )?;
    Ok(changed == 1)
}

/// Unbinds a request. The caller frees its handle.
pub(crate) fn unbind(tx: &mut Tx<'_>, uuid: ArqId, now: Timestamp) -> Result<(), Error> {
    tx.defer(UNBIND, params![uuid, now])?;
    Ok(())
}

pub(crate) fn delete(tx: &mut Tx<'_>, uuid: ArqId) -> Result<(), Error> {
    tx.defer(DELETE, params![uuid])?;
    Ok(())
}

/// Deletes the requests of a consumer. The caller frees their handles.
pub(crate) fn delete_of_consumer(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    tx.defer(DELETE_OF_CONSUMER, params![consumer])?;
    Ok(())
}

/// Announces [`held`].
pub(crate) fn expect_held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    tx.expect(HELD, params![consumer])
}

/// A request whose handle is about to be released.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    /// True if the handle must then be cleaned.
    pub must_clean: bool,
    /// The order that it waits for.
    pub awaits: Option<OperationId>,
}

/// The requests of a consumer.
pub(crate) fn held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<HeldRequest>, Error> {
    let read = |row: &Row| {
        Ok(HeldRequest { must_clean: row.bool("must_clean")?, awaits: row.id_opt("awaits")? })
    };
    tx.rows(HELD, params![consumer])?.iter().map(read).collect()
}

/// Moves the requests of a consumer to another, which must have none.
pub(crate) fn hand_over(
    tx: &mut Tx<'_>,
    from: ConsumerId,
    to: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(HAND_OVER, params![from, to, now])?;
    Ok(())
}

/// Announces [`next_ordinal`].
pub(crate) fn expect_next_ordinal(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    tx.expect(NEXT_ORDINAL, params![consumer])
}

/// The next free ordinal of a consumer's requests; 0 if it has none.
pub(crate) fn next_ordinal(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<i64, Error> {
    tx.row(NEXT_ORDINAL, params![consumer])?.map_or(Ok(0), |row| row.int("next"))
}
