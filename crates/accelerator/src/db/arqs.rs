//! Rows of `arqs`, accelerator requests. The handle of a bound request is the `attach_handles` row
//! that names it.

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, DeviceProfileId, ProviderId, ServerId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::HandleKey;

/// A request with its profile's name and, if bound, its handle.
#[derive(Debug, Clone)]
pub(crate) struct ArqRow {
    pub uuid: ArqId,
    pub project_id: String,
    pub state: String,
    pub profile_name: String,
    pub group_id: i64,
    /// True if the compute service of this process created it, together with the server.
    pub internal: bool,
    pub host: Option<String>,
    pub provider: Option<ProviderId>,
    pub server: Option<ServerId>,
    pub created_at: i64,
    pub updated_at: Option<i64>,
    pub handle: Option<BoundHandle>,
}

/// The handle of a bound request.
#[derive(Debug, Clone)]
pub(crate) struct BoundHandle {
    pub uuid: AttachHandleId,
    pub key: HandleKey,
    pub slot: i64,
    /// The network that it is connected to, if the host reports one.
    pub network: Option<String>,
}

/// The binding that a request gets.
pub(crate) struct BindTarget<'a> {
    pub host: &'a str,
    pub provider: ProviderId,
    pub server: ServerId,
    pub consumer: ConsumerId,
    pub ordinal: i64,
}

statements! {
    /// The requests that the API shows, of one project or of all.
    LIST = "SELECT a.uuid, a.project_id, a.state, f.name, a.group_id, a.internal, a.host,
        a.provider_id, a.server_id, a.created_at, a.updated_at, h.uuid, h.attach_type, h.address,
        h.mdev_type, h.slot,
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = h.deployable_id
            AND t.name = 'physical_network' AND t.reported = 1)
        FROM arqs a JOIN device_profiles f ON f.uuid = a.profile_id
        LEFT JOIN attach_handles h ON h.arq_id = a.uuid
        WHERE (CAST(?1 AS TEXT) IS NULL OR a.project_id = ?1) ORDER BY a.id";
    /// The requests of a server, by index.
    LIST_OF_SERVER = "SELECT a.uuid, a.project_id, a.state, f.name, a.group_id, a.internal, a.host,
        a.provider_id, a.server_id, a.created_at, a.updated_at, h.uuid, h.attach_type, h.address,
        h.mdev_type, h.slot,
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = h.deployable_id
            AND t.name = 'physical_network' AND t.reported = 1)
        FROM arqs a JOIN device_profiles f ON f.uuid = a.profile_id
        LEFT JOIN attach_handles h ON h.arq_id = a.uuid
        WHERE a.server_id = ?2 AND (CAST(?1 AS TEXT) IS NULL OR a.project_id = ?1) ORDER BY a.id";
    /// One request that the API shows.
    BY_UUID = "SELECT a.uuid, a.project_id, a.state, f.name, a.group_id, a.internal, a.host,
        a.provider_id, a.server_id, a.created_at, a.updated_at, h.uuid, h.attach_type, h.address,
        h.mdev_type, h.slot,
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = h.deployable_id
            AND t.name = 'physical_network' AND t.reported = 1)
        FROM arqs a JOIN device_profiles f ON f.uuid = a.profile_id
        LEFT JOIN attach_handles h ON h.arq_id = a.uuid WHERE a.uuid = ?1";
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
    OF_PORTS = "SELECT a.port_id, a.uuid, h.uuid, h.attach_type, h.address, h.mdev_type
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
    /// Moves the requests of a consumer to another.
    HAND_OVER = "UPDATE arqs SET consumer_id = ?2, updated_at = ?3 WHERE consumer_id = ?1";
    /// Writes the project's row, so that two calls of one project are serialized.
    CALL = "INSERT INTO request_makers (project_id, calls) VALUES (?1, 1)
        ON CONFLICT (project_id) DO UPDATE SET calls = request_makers.calls + 1";
    /// Number of unbound requests of a project.
    UNBOUND_OF = "SELECT COUNT(*) FROM arqs WHERE project_id = ?1
        AND state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0";
    /// Requests of external instances, from an id on, that were bound before a time and whose Nova
    /// nobody has queried since another time.
    ELSEWHERE = "SELECT id, server_id, provider_id FROM arqs
        WHERE internal = 0 AND state = 'Bound' AND id > ?1 AND updated_at < ?2
          AND (asked_at IS NULL OR asked_at < ?3) ORDER BY id LIMIT ?4";
    /// Records a query about an instance, unless another controller has recorded one lately.
    ASK = "UPDATE arqs SET asked_at = ?2 WHERE server_id = ?1 AND internal = 0
        AND (asked_at IS NULL OR asked_at < ?3)";
    /// Unbound requests that have not changed since a time.
    EXPIRE = "DELETE FROM arqs WHERE state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0
        AND COALESCE(updated_at, created_at) < ?1";
    /// The next free ordinal of a consumer's requests.
    NEXT_ORDINAL = "SELECT COALESCE(MAX(ordinal) + 1, 0) FROM arqs WHERE consumer_id = ?1";
}

fn read(row: &Row) -> Result<ArqRow, Error> {
    let handle = match row.id_opt(11)? {
        None => None,
        Some(uuid) => Some(BoundHandle {
            uuid,
            key: HandleKey {
                attach_type: row.string(12)?,
                address: row.string(13)?,
                mdev_type: row.string(14)?,
            },
            slot: row.int(15)?,
            network: row.string_opt(16)?,
        }),
    };
    Ok(ArqRow {
        uuid: row.id(0)?,
        project_id: row.string(1)?,
        state: row.string(2)?,
        profile_name: row.string(3)?,
        group_id: row.int(4)?,
        internal: row.bool(5)?,
        host: row.string_opt(6)?,
        provider: row.id_opt(7)?,
        server: row.id_opt(8)?,
        created_at: row.int(9)?,
        updated_at: row.int_opt(10)?,
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
    now: i64,
) -> Result<(), Error> {
    tx.execute(INSERT, params![uuid, project_id, profile, group, now])?;
    Ok(())
}

pub(crate) fn insert_bound(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    project_id: &str,
    profile: Option<DeviceProfileId>,
    group: i64,
    target: &BindTarget<'_>,
    now: i64,
) -> Result<(), Error> {
    tx.execute(
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

/// Number of unbound requests of a project.
pub(crate) fn unbound_of(tx: &mut Tx<'_>, project: &str) -> Result<i64, Error> {
    tx.row(UNBOUND_OF, params![project])?.map_or(Ok(0), |row| row.int(0))
}

/// A bound request of an external instance.
#[derive(Debug, Clone)]
pub(crate) struct ExternalRequest {
    /// Its id, for paging.
    pub id: i64,
    pub server: ServerId,
    pub provider: ProviderId,
}

/// Requests of external instances, from an id on.
pub(crate) fn external(
    tx: &mut Tx<'_>,
    after: i64,
    bound_before: i64,
    asked_before: i64,
    limit: i64,
) -> Result<Vec<ExternalRequest>, Error> {
    let rows = tx.rows(ELSEWHERE, params![after, bound_before, asked_before, limit])?;
    let read = |row: &Row| {
        Ok(ExternalRequest { id: row.int(0)?, server: row.id(1)?, provider: row.id(2)? })
    };
    rows.iter().map(read).collect()
}

/// Binds the request; returns whether it was unbound.
pub(crate) fn bind(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    target: &BindTarget<'_>,
    project: Option<&str>,
    now: i64,
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

pub(crate) fn next_ordinal(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<i64, Error> {
    tx.row(NEXT_ORDINAL, params![consumer])?.map_or(Ok(0), |row| row.int(0))
}
