//! Rows of `arqs`, accelerator requests. What a bound one holds is on the handle that names it.

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, DeviceProfileId, ProviderId, ServerId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::HandleKey;

/// A request with its profile's name and, when bound, its handle.
#[derive(Debug, Clone)]
pub(crate) struct ArqRow {
    pub uuid: ArqId,
    pub project_id: String,
    pub state: String,
    pub profile_name: String,
    pub group_id: i64,
    /// Made by the compute service of this process, together with the server.
    pub internal: bool,
    pub host: Option<String>,
    pub provider: Option<ProviderId>,
    pub server: Option<ServerId>,
    pub created_at: i64,
    pub updated_at: Option<i64>,
    pub handle: Option<Held>,
}

/// The handle of a bound request.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub uuid: AttachHandleId,
    pub key: HandleKey,
    pub slot: i64,
    /// Network that it is connected to, where the host says so.
    pub network: Option<String>,
}

/// Where a request gets bound.
pub(crate) struct Place<'a> {
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
    /// Those of a server, by its index.
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
    /// A request that waits for a place.
    INSERT = "INSERT INTO arqs (uuid, project_id, state, profile_id, group_id, internal, created_at)
        VALUES (?1, ?2, 'Initial', ?3, ?4, 0, ?5)";
    /// A request that is bound from the start.
    INSERT_BOUND = "INSERT INTO arqs (uuid, project_id, state, profile_id, group_id, internal,
        host, provider_id, server_id, consumer_id, ordinal, created_at)
        VALUES (?1, ?2, 'Bound', ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10)";
    /// The request is a server's connection to a network.
    SET_PORT = "UPDATE arqs SET port_id = ?2 WHERE uuid = ?1";
    /// Requests of a server on a host that are connections to networks; its own first.
    OF_PORTS = "SELECT a.port_id, a.uuid, h.uuid, h.attach_type, h.address, h.mdev_type
        FROM arqs a JOIN attach_handles h ON h.arq_id = a.uuid
        WHERE a.server_id = ?1 AND a.host = ?2 AND a.port_id IS NOT NULL
        ORDER BY CASE WHEN a.consumer_id = ?1 THEN 0 ELSE 1 END, a.ordinal";
    /// Binds a request that waits.
    BIND = "UPDATE arqs SET state = 'Bound', host = ?2, provider_id = ?3, server_id = ?4,
        consumer_id = ?5, ordinal = ?6, project_id = COALESCE(CAST(?7 AS TEXT), project_id),
        updated_at = ?8
        WHERE uuid = ?1 AND state IN ('Initial', 'Unbound')";
    /// Takes a request off its place.
    UNBIND = "UPDATE arqs SET state = 'Unbound', awaits = NULL, host = NULL, provider_id = NULL,
        server_id = NULL, consumer_id = NULL, ordinal = NULL, updated_at = ?2 WHERE uuid = ?1";
    /// One request less.
    DELETE = "DELETE FROM arqs WHERE uuid = ?1";
    /// The requests of a consumer.
    DELETE_OF_CONSUMER = "DELETE FROM arqs WHERE consumer_id = ?1";
    /// The requests of a consumer become another's.
    HAND_OVER = "UPDATE arqs SET consumer_id = ?2, updated_at = ?3 WHERE consumer_id = ?1";
    /// A project makes requests: two such calls follow each other.
    CALL = "INSERT INTO request_makers (project_id, calls) VALUES (?1, 1)
        ON CONFLICT (project_id) DO UPDATE SET calls = request_makers.calls + 1";
    /// How many unbound requests a project has.
    UNBOUND_OF = "SELECT COUNT(*) FROM arqs WHERE project_id = ?1
        AND state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0";
    /// Requests of instances elsewhere that have been bound since before a moment and that nobody has
    /// asked about since another, from a number on.
    ELSEWHERE = "SELECT id, server_id, provider_id FROM arqs
        WHERE internal = 0 AND state = 'Bound' AND id > ?1 AND updated_at < ?2
          AND (asked_at IS NULL OR asked_at < ?3) ORDER BY id LIMIT ?4";
    /// Somebody asks about an instance now, unless somebody else has done so lately.
    ASK = "UPDATE arqs SET asked_at = ?2 WHERE server_id = ?1 AND internal = 0
        AND (asked_at IS NULL OR asked_at < ?3)";
    /// Unbound requests that nobody has touched since a moment.
    EXPIRE = "DELETE FROM arqs WHERE state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0
        AND COALESCE(updated_at, created_at) < ?1";
    /// The next free place in a consumer's row of requests.
    NEXT_ORDINAL = "SELECT COALESCE(MAX(ordinal) + 1, 0) FROM arqs WHERE consumer_id = ?1";
}

fn read(row: &Row) -> Result<ArqRow, Error> {
    let handle = match row.id_opt(11)? {
        None => None,
        Some(uuid) => Some(Held {
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
    place: &Place<'_>,
    now: i64,
) -> Result<(), Error> {
    tx.execute(
        INSERT_BOUND,
        params![
            uuid,
            project_id,
            profile,
            group,
            place.host,
            place.provider,
            place.server,
            place.consumer,
            place.ordinal,
            now
        ],
    )?;
    Ok(())
}

/// How many unbound requests a project has.
pub(crate) fn unbound_of(tx: &mut Tx<'_>, project: &str) -> Result<i64, Error> {
    tx.row(UNBOUND_OF, params![project])?.map_or(Ok(0), |row| row.int(0))
}

/// A bound request of an instance elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    /// Its number, to go on from.
    pub id: i64,
    pub server: ServerId,
    pub provider: ProviderId,
}

/// Some requests of instances elsewhere, from a number on.
pub(crate) fn elsewhere(
    tx: &mut Tx<'_>,
    after: i64,
    bound_before: i64,
    asked_before: i64,
    limit: i64,
) -> Result<Vec<Elsewhere>, Error> {
    let rows = tx.rows(ELSEWHERE, params![after, bound_before, asked_before, limit])?;
    let read =
        |row: &Row| Ok(Elsewhere { id: row.int(0)?, server: row.id(1)?, provider: row.id(2)? });
    rows.iter().map(read).collect()
}

/// Binds the request and says whether it was waiting for that.
pub(crate) fn bind(
    tx: &mut Tx<'_>,
    uuid: ArqId,
    place: &Place<'_>,
    project: Option<&str>,
    now: i64,
) -> Result<bool, Error> {
    let changed = tx.execute(
        BIND,
        params![
            uuid,
            place.host,
            place.provider,
            place.server,
            place.consumer,
            place.ordinal,
            project,
            now
        ],
    )?;
    Ok(changed == 1)
}

pub(crate) fn next_ordinal(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<i64, Error> {
    tx.row(NEXT_ORDINAL, params![consumer])?.map_or(Ok(0), |row| row.int(0))
}
