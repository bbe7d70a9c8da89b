//! The ports of servers in the external Neutron: the requests, the last view of each port, and the
//! journal of the calls, which cannot be part of a transaction.
//!
//! A row of `external_servers` has the goal for Neutron: the host of the bindings, the destination
//! that a live migration prepares, or the end of the server. `due_at` is set while Neutron may
//! differ from the goal. A worker leases the row, makes the calls, and stores their results;
//! `revision` changes with the goal, so that results of an older goal are discarded.
//! `external_ports` has one row for each port that a server has or requests, in the order of the guest's interfaces.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_ids::{HostName, PortId, ServerId};
use kilonova_store::{Asked, Migration, Row, Tx, Value, listed, params};

use crate::Error;

/// Adds the tables.
pub const EXTERNAL_PORTS: Migration = Migration {
    name: "compute-0720-external-ports",
    sql: "
CREATE TABLE external_servers (
    server_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    body TEXT NOT NULL,
    host TEXT,
    is_bound BIGINT NOT NULL DEFAULT 0,
    next_host TEXT,
    is_prepared BIGINT NOT NULL DEFAULT 0,
    may_have_more BIGINT NOT NULL DEFAULT 0,
    is_gone BIGINT NOT NULL DEFAULT 0,
    revision BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    since BIGINT NOT NULL,
    due_at BIGINT,
    taken_until BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX external_servers_due ON external_servers (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE external_ports (
    server_id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    port_id TEXT,
    is_supplied BIGINT NOT NULL,
    is_leaving BIGINT NOT NULL DEFAULT 0,
    is_plugged BIGINT NOT NULL DEFAULT 0,
    request TEXT NOT NULL,
    addresses TEXT NOT NULL DEFAULT '',
    view TEXT,
    next_view TEXT,
    PRIMARY KEY (server_id, ordinal)
);
CREATE UNIQUE INDEX external_ports_by_port ON external_ports (port_id) WHERE port_id IS NOT NULL;",
};

/// Adds the time since which a guest has been paused to wait for its ports.
pub const WAITS: Migration = Migration {
    name: "compute-0760-waits",
    sql: "
ALTER TABLE external_servers ADD COLUMN waits_since BIGINT;
CREATE INDEX external_servers_waiting ON external_servers (waits_since) WHERE waits_since IS NOT NULL;",
};

/// The controller that leases a server.
pub const TAKEN_BY: Migration = Migration {
    name: "compute-0770-taken-by",
    sql: "ALTER TABLE external_servers ADD COLUMN taken_by TEXT;",
};

/// Marks the ports that the destination of a live migration has plugged. Earlier versions leave the column at 0.
pub const NEXT_PLUGGED: Migration = Migration {
    name: "compute-0830-next-plugged",
    sql: "ALTER TABLE external_ports ADD COLUMN is_next_plugged BIGINT NOT NULL DEFAULT 0;",
};

/// The columns of a server.
macro_rules! server {
    () => {
        "server_id, project_id, body, host, is_bound, next_host, is_prepared, may_have_more, is_gone,
        revision, attempts, since, due_at, taken_until"
    };
}

/// The columns of a port.
macro_rules! port {
    () => {
        "server_id, ordinal, port_id, is_supplied, is_leaving, is_plugged, is_next_plugged, request, view,
        next_view"
    };
}

kilonova_store::statements! {
    /// Adds a server. Before `due_at`, only a worker of this process leases it.
    ADD = "INSERT INTO external_servers (server_id, project_id, body, host, since, due_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Adds a port.
    ADD_PORT = "INSERT INTO external_ports (server_id, ordinal, port_id, is_supplied, request)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// One server.
    ONE = concat!("SELECT ", server!(), " FROM external_servers WHERE server_id = ?1");
    /// The ports of one server.
    OF_SERVER = concat!("SELECT ", port!(), " FROM external_ports WHERE server_id = ?1
        ORDER BY ordinal");
    /// The ports of servers.
    OF_SERVERS = concat!("SELECT ", port!(), " FROM external_ports WHERE server_id IN ({})
        ORDER BY server_id, ordinal");
    /// The server that has a port.
    OWNER_OF_PORT = "SELECT server_id FROM external_ports WHERE port_id = ?1";
    /// The servers with an address that contains a string.
    SERVERS_AT = "SELECT DISTINCT server_id FROM external_ports WHERE addresses LIKE ?1 ESCAPE '\\'";
    /// Sets the host of the bindings.
    SET_HOST = "UPDATE external_servers SET host = ?2, is_bound = 0, next_host = NULL, is_prepared = 0,
        waits_since = NULL,
        may_have_more = CASE WHEN next_host IS NULL THEN may_have_more ELSE 1 END,
        revision = revision + 1, attempts = 0, since = ?3, due_at = ?3 WHERE server_id = ?1";
    /// Clears the host: the worker unbinds the ports.
    CLEAR_HOST = "UPDATE external_servers SET host = NULL, is_bound = 0, next_host = NULL,
        is_prepared = 0, may_have_more = CASE WHEN next_host IS NULL THEN may_have_more ELSE 1 END,
        waits_since = NULL,
        revision = revision + 1, attempts = 0, since = ?2, due_at = ?2 WHERE server_id = ?1";
    /// Prepares another host.
    PREPARE = "UPDATE external_servers SET next_host = ?2, is_prepared = 0, may_have_more = 1,
        waits_since = NULL, revision = revision + 1, attempts = 0, since = ?3, due_at = ?3 WHERE server_id = ?1";
    /// Marks all ports as unplugged on the host that is prepared.
    UNPLUG_NEXT = "UPDATE external_ports SET is_next_plugged = 0 WHERE server_id = ?1";
    /// Marks all ports as plugged on the host that is prepared.
    PLUG_NEXT = "UPDATE external_ports SET is_next_plugged = 1 WHERE server_id = ?1";
    /// Clears the prepared host.
    LEAVE = "UPDATE external_servers SET next_host = NULL, is_prepared = 0, waits_since = NULL,
        revision = revision + 1, attempts = 0, since = ?3, due_at = ?3 WHERE server_id = ?1 AND next_host = ?2";
    /// Makes the prepared host the host of the bindings, which are ready there.
    SWITCH = "UPDATE external_servers SET host = next_host, is_bound = 1, next_host = NULL,
        is_prepared = 0, waits_since = NULL, revision = revision + 1, attempts = 0, since = ?3, due_at = ?3
        WHERE server_id = ?1 AND next_host = ?2";
    /// Replaces the views of the ports by those at the prepared host.
    SWITCH_PORTS = "UPDATE external_ports SET view = COALESCE(next_view, view), next_view = NULL,
        is_plugged = 0 WHERE server_id = ?1";
    /// Marks all ports as unplugged.
    UNPLUG = "UPDATE external_ports SET is_plugged = 0, next_view = NULL WHERE server_id = ?1";
    /// Records that a server is gone.
    END = "UPDATE external_servers SET is_gone = 1, revision = revision + 1, attempts = 0, since = ?2,
        due_at = ?2, waits_since = NULL WHERE server_id = ?1 AND is_gone = 0 RETURNING server_id";
    /// Records that the ports of a server changed.
    CHANGE = "UPDATE external_servers SET revision = revision + 1, attempts = 0, since = ?2,
        due_at = ?3 WHERE server_id = ?1";
    /// Marks a port as being detached.
    DROP_PORT = "UPDATE external_ports SET is_leaving = 1 WHERE server_id = ?1 AND port_id = ?2";
    /// Makes a server due, because its ports may have changed in Neutron.
    REFRESH = "UPDATE external_servers SET due_at = ?2 WHERE server_id = ?1 AND is_gone = 0";
    /// Makes a server due, unless it is due earlier.
    REFRESH_BY = "UPDATE external_servers SET due_at = ?2 WHERE server_id = ?1 AND is_gone = 0
        AND COALESCE(due_at, ?2) >= ?2";
    /// Records that a guest waits for its ports.
    WAIT = "UPDATE external_servers SET waits_since = COALESCE(waits_since, ?2) WHERE server_id = ?1";
    /// Records that a guest no longer waits for its ports.
    END_WAIT = "UPDATE external_servers SET waits_since = NULL WHERE server_id = ?1";
    /// The time since which a guest has waited for its ports.
    WAITS_SINCE = "SELECT waits_since FROM external_servers WHERE server_id = ?1";
    /// The servers of a list whose guest waits for its ports.
    WAITING_OF = "SELECT server_id FROM external_servers
        WHERE server_id IN ({}) AND waits_since IS NOT NULL";
    /// The servers whose guest has waited since before a time.
    WAITING = "SELECT server_id FROM external_servers WHERE waits_since < ?1
        ORDER BY waits_since LIMIT 200";
    /// The servers of a list with a port that is not plugged on its host, or on the prepared host if there is one.
    UNPLUGGED = "SELECT DISTINCT p.server_id FROM external_ports p
        JOIN external_servers s ON s.server_id = p.server_id
        WHERE p.server_id IN ({}) AND p.is_leaving = 0
        AND (p.is_plugged = 0 OR (s.next_host IS NOT NULL AND p.is_next_plugged = 0))";
    /// Writes a server's row unchanged, to lock it.
    LOCK = "UPDATE external_servers SET revision = revision WHERE server_id = ?1";
    /// Marks a port as plugged. The event does not say on which host.
    PLUG = "UPDATE external_ports SET is_plugged = 1, is_next_plugged = 1 WHERE server_id = ?1 AND port_id = ?2";
    /// Leases a server that is due before a time.
    TAKE = concat!("UPDATE external_servers SET attempts = attempts + 1, taken_until = ?3, taken_by = ?5
        WHERE server_id = ?1 AND due_at <= ?4 AND taken_until <= ?2 RETURNING ", server!());
    /// Shortens the leases of a controller. A leased server always has `due_at`, so the condition on it only lets the
    /// query use the index.
    END_LEASES = "UPDATE external_servers SET taken_until = ?2 WHERE due_at >= 0 AND taken_until > ?2
        AND taken_by = ?1";
    /// Records that Neutron matches the goal.
    SETTLE = "UPDATE external_servers SET is_bound = ?3, is_prepared = ?4, may_have_more = ?5,
        attempts = 0, taken_until = 0, due_at = CASE WHEN due_at = ?2 THEN NULL ELSE due_at END
        WHERE server_id = ?1";
    /// Ends an attempt that failed or whose goal is outdated.
    RETURN = "UPDATE external_servers SET taken_until = 0, due_at = ?2 WHERE server_id = ?1";
    /// Stores a view.
    SET_VIEW = "UPDATE external_ports SET port_id = ?3, view = ?4, next_view = ?5, addresses = ?6,
        is_plugged = CASE WHEN ?7 = 1 THEN 1 ELSE is_plugged END,
        is_next_plugged = CASE WHEN ?8 = 1 THEN 1 ELSE is_next_plugged END
        WHERE server_id = ?1 AND ordinal = ?2";
    /// Stores the id of a port that is created, but not bound yet.
    SET_PORT = "UPDATE external_ports SET port_id = ?3 WHERE server_id = ?1 AND ordinal = ?2
        AND port_id IS NULL";
    /// Marks a port, which Neutron may not have yet, as being detached.
    DROP_PLACE = "UPDATE external_ports SET is_leaving = 1 WHERE server_id = ?1 AND ordinal = ?2";
    /// Deletes a port's row.
    FORGET_PORT = "DELETE FROM external_ports WHERE server_id = ?1 AND ordinal = ?2";
    /// Deletes the rows of a server's ports.
    FORGET_PORTS = "DELETE FROM external_ports WHERE server_id = ?1";
    /// Deletes a server's row.
    FORGET = "DELETE FROM external_servers WHERE server_id = ?1";
    /// The servers that are due and that no worker leases.
    DUE = "SELECT server_id FROM external_servers WHERE due_at <= ?1 AND taken_until <= ?1
        ORDER BY due_at LIMIT 100";
    /// The servers of a list that were deleted and have no row left here.
    DELETED = "SELECT s.id FROM deleted_servers s LEFT JOIN external_servers e ON e.server_id = s.id
        WHERE e.server_id IS NULL AND s.id IN ({})";
}

/// A server with ports in Neutron.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalServer {
    /// The server.
    pub id: ServerId,
    /// Its project.
    pub project_id: String,
    /// The server's data that the calls send, as JSON.
    pub body: String,
    /// The host of the bindings.
    pub host: Option<HostName>,
    /// True if the ports are bound to that host, and their views are from that host.
    pub is_bound: bool,
    /// The destination of a live migration.
    pub next_host: Option<HostName>,
    /// True if the ports are prepared there.
    pub is_prepared: bool,
    /// True if there may be bindings to further hosts.
    pub may_have_more: bool,
    /// True if the server is gone, and its ports must be released.
    pub is_gone: bool,
    /// Changes with the goal.
    pub revision: i64,
    /// Attempts since the goal changed.
    pub attempts: i64,
    /// When the goal changed.
    pub since: Timestamp,
    /// When the next attempt is due; `None` if no attempt is due.
    pub due_at: Option<Timestamp>,
    /// The expiry of its worker's lease, which differs between attempts.
    pub taken_until: Timestamp,
}

/// A port that a server has or requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalPort {
    /// The server.
    pub server: ServerId,
    /// Its index among the server's ports.
    pub ordinal: i64,
    /// The port; `None` until it is created.
    pub port: Option<PortId>,
    /// True if the user supplied it: it outlives the server.
    pub is_supplied: bool,
    /// True if it is being detached.
    pub is_detaching: bool,
    /// True if the host has plugged it since it was bound there.
    pub is_plugged: bool,
    /// True if the prepared host has plugged it since it was prepared there.
    pub is_next_plugged: bool,
    /// The request, as JSON.
    pub request: String,
    /// The last view, as JSON; `None` before the first.
    pub view: Option<String>,
    /// The view at the prepared host, as JSON.
    pub next_view: Option<String>,
}

/// A view to store.
#[derive(Debug, Clone)]
pub struct NewView {
    /// The port's index among the server's ports.
    pub ordinal: i64,
    /// The port.
    pub port: PortId,
    /// The view.
    pub view: String,
    /// The view at the prepared host.
    pub next_view: Option<String>,
    /// Its addresses, each followed by a space.
    pub addresses: String,
    /// True if the guest need not wait for the port: Neutron reports it as plugged, or its owner has disabled it.
    pub is_plugged: bool,
    /// True if its owner has disabled it (`admin_state_up` false), so that it counts as plugged on the prepared host.
    pub is_down: bool,
}

/// Adds a server. Only this process should lease it before `due`.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn add(
    tx: &mut Tx<'_>,
    server: ServerId,
    project_id: &str,
    body: &str,
    host: &HostName,
    now: Timestamp,
    due: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD, params![server, project_id, body, host, now, due])?;
    Ok(())
}

/// Adds a port.
pub fn add_port(
    tx: &mut Tx<'_>,
    server: ServerId,
    ordinal: i64,
    supplied: Option<PortId>,
    request: &str,
) -> Result<(), Error> {
    tx.defer(ADD_PORT, params![server, ordinal, supplied, supplied.is_some(), request])?;
    Ok(())
}

/// One server.
pub fn find(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<ExternalServer>, Error> {
    tx.row(ONE, params![server])?.as_ref().map(read_server).transpose()
}

/// The ports of a server, in order.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<ExternalPort>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read_port).collect()
}

/// The ports of servers, grouped by server and in order.
pub fn of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ExternalPort>, Error> {
    let mut found = Vec::new();
    for some in servers.chunks(100) {
        let sql = listed(OF_SERVERS, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&sql, &values)? {
            found.push(read_port(&row)?);
        }
    }
    Ok(found)
}

/// The server that has a port.
pub fn owner_of_port(tx: &mut Tx<'_>, port: PortId) -> Result<Option<ServerId>, Error> {
    Ok(tx.row(OWNER_OF_PORT, params![port])?.map(|row| row.id("server_id")).transpose()?)
}

/// The servers with an address that contains this string, which must not contain `%`, `_` or `\`.
pub fn servers_at(tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
    let rows = tx.rows(SERVERS_AT, params![format!("%{text}%")])?;
    rows.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// Makes the worker bind the ports to a host.
pub fn set_host(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_HOST, params![server, host, now])?;
    tx.defer(UNPLUG, params![server])?;
    Ok(())
}

/// Makes the worker unbind the ports. The server keeps them.
pub fn clear_host(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(CLEAR_HOST, params![server, now])?;
    Ok(())
}

/// Makes the worker prepare the ports on a host.
pub fn prepare(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(PREPARE, params![server, host, now])?;
    tx.defer(UNPLUG_NEXT, params![server])?;
    Ok(())
}

/// Clears the prepared host if it is this one.
pub fn leave(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(LEAVE, params![server, host, now])?;
    Ok(())
}

/// Makes the prepared host the host of the ports.
pub fn switch(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SWITCH, params![server, host, now])?;
    tx.defer(SWITCH_PORTS, params![server])?;
    Ok(())
}

/// Records that a server is gone. False if it had no ports, or was already recorded as gone.
pub fn end(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.row(END, params![server, now])?.is_some())
}

/// Records that the set of the server's ports changed. Only this process should lease the server
/// before `due`.
pub fn change(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
    due: Timestamp,
) -> Result<(), Error> {
    tx.defer(CHANGE, params![server, now, due])?;
    Ok(())
}

/// Makes the worker detach a port.
pub fn drop_port(tx: &mut Tx<'_>, server: ServerId, port: PortId) -> Result<(), Error> {
    tx.defer(DROP_PORT, params![server, port])?;
    Ok(())
}

/// Makes the worker read the views again.
pub fn refresh(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(REFRESH, params![server, now])?;
    Ok(())
}

/// Makes the worker read the views again at `due` at the latest.
pub fn refresh_by(tx: &mut Tx<'_>, server: ServerId, due: Timestamp) -> Result<(), Error> {
    tx.defer(REFRESH_BY, params![server, due])?;
    Ok(())
}

/// Records that the guest is paused until its ports are plugged. The transaction conflicts with every other
/// transaction that plugs a port of the server.
pub fn wait(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(WAIT, params![server, now])?;
    Ok(())
}

/// Records that the guest no longer waits for its ports.
pub fn end_wait(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(END_WAIT, params![server])?;
    Ok(())
}

/// The time since which the guest has waited for its ports; `None` if it does not wait.
pub fn waits_since(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<Timestamp>, Error> {
    let Some(row) = tx.row(WAITS_SINCE, params![server])? else { return Ok(None) };
    Ok(row.time_opt("waits_since")?)
}

/// Asks for [`those_waiting`] of these servers.
pub fn ask_waiting_of(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| Value::from(*id)).collect();
    Ok(tx.ask_list(WAITING_OF, &ids)?)
}

/// The servers of [`ask_waiting_of`] whose guest waits for its ports.
pub fn those_waiting(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashSet<ServerId>, Error> {
    tx.answers(asked)?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// At most two hundred servers whose guest has waited since before a time.
pub fn waiting(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(WAITING, params![before])?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// The servers of a list with a port that is not plugged on its host, or on the prepared host if there is one.
pub fn unplugged(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<HashSet<ServerId>, Error> {
    let mut found = HashSet::new();
    for some in servers.chunks(100) {
        let sql = listed(UNPLUGGED, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&sql, &values)? {
            found.insert(row.id("server_id")?);
        }
    }
    Ok(found)
}

/// Records that the host has plugged a port. The transaction conflicts with every other transaction that depends on
/// the plugged ports.
pub fn plug(tx: &mut Tx<'_>, server: ServerId, port: PortId) -> Result<(), Error> {
    tx.defer(LOCK, params![server])?;
    tx.defer(PLUG, params![server, port])?;
    Ok(())
}

/// Marks all ports as plugged on the prepared host.
pub fn plug_next(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(PLUG_NEXT, params![server])?;
    Ok(())
}

/// Leases a server to a controller until `until`, if it is due by `due`. `None` if it is not due, or if another worker
/// has leased it.
pub fn take(
    tx: &mut Tx<'_>,
    server: ServerId,
    controller: &str,
    now: Timestamp,
    due: Timestamp,
    until: Timestamp,
) -> Result<Option<ExternalServer>, Error> {
    tx.row(TAKE, params![server, now, until, due, controller])?
        .as_ref()
        .map(read_server)
        .transpose()
}

/// Shortens the leases of a controller so that they expire at `until`.
pub fn end_leases(tx: &mut Tx<'_>, controller: &str, until: Timestamp) -> Result<(), Error> {
    tx.defer(END_LEASES, params![controller, until])?;
    Ok(())
}

/// Records that Neutron matches the goal of `taken`. The server remains due if a later request made
/// it due.
pub fn settle(tx: &mut Tx<'_>, taken: &ExternalServer, may_have_more: bool) -> Result<(), Error> {
    let (is_bound, is_prepared) = (taken.host.is_some(), taken.next_host.is_some());
    tx.defer(SETTLE, params![taken.id, taken.due_at, is_bound, is_prepared, may_have_more])?;
    Ok(())
}

/// Ends the lease of a server. The next attempt is due at `due`, or with the next goal.
pub fn end_lease(tx: &mut Tx<'_>, server: ServerId, due: Option<Timestamp>) -> Result<(), Error> {
    tx.defer(RETURN, params![server, due])?;
    Ok(())
}

/// Stores a view.
pub fn set_view(tx: &mut Tx<'_>, server: ServerId, view: &NewView) -> Result<(), Error> {
    let NewView { ordinal, port, view, next_view, addresses, is_plugged, is_down } = view;
    let next = next_view.as_deref();
    tx.defer(
        SET_VIEW,
        params![
            server,
            *ordinal,
            *port,
            view.as_str(),
            next,
            addresses.as_str(),
            *is_plugged,
            *is_down
        ],
    )?;
    Ok(())
}

/// Stores the id of a port that is created, but not bound yet.
pub fn set_port(
    tx: &mut Tx<'_>,
    server: ServerId,
    ordinal: i64,
    port: PortId,
) -> Result<(), Error> {
    tx.defer(SET_PORT, params![server, ordinal, port])?;
    Ok(())
}

/// Makes the worker detach a port, which Neutron may not have yet.
pub fn drop_place(tx: &mut Tx<'_>, server: ServerId, ordinal: i64) -> Result<(), Error> {
    tx.defer(DROP_PLACE, params![server, ordinal])?;
    Ok(())
}

/// Deletes a port's row.
pub fn forget_port(tx: &mut Tx<'_>, server: ServerId, ordinal: i64) -> Result<(), Error> {
    tx.defer(FORGET_PORT, params![server, ordinal])?;
    Ok(())
}

/// Deletes the rows of a server and its ports.
pub fn forget(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(FORGET_PORTS, params![server])?;
    tx.defer(FORGET, params![server])?;
    Ok(())
}

/// At most a hundred servers that are due.
pub fn due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(DUE, params![now])?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// The servers of a list that were deleted and have no ports left to release here.
pub fn deleted(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<HashSet<ServerId>, Error> {
    let mut found = HashSet::new();
    for some in servers.chunks(100) {
        let sql = listed(DELETED, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&sql, &values)? {
            found.insert(row.id("id")?);
        }
    }
    Ok(found)
}

fn read_server(row: &Row) -> Result<ExternalServer, Error> {
    Ok(ExternalServer {
        id: row.id("server_id")?,
        project_id: row.string("project_id")?,
        body: row.string("body")?,
        host: row.host_opt("host")?,
        is_bound: row.bool("is_bound")?,
        next_host: row.host_opt("next_host")?,
        is_prepared: row.bool("is_prepared")?,
        may_have_more: row.bool("may_have_more")?,
        is_gone: row.bool("is_gone")?,
        revision: row.int("revision")?,
        attempts: row.int("attempts")?,
        since: row.time("since")?,
        due_at: row.time_opt("due_at")?,
        taken_until: row.time("taken_until")?,
    })
}

fn read_port(row: &Row) -> Result<ExternalPort, Error> {
    Ok(ExternalPort {
        server: row.id("server_id")?,
        ordinal: row.int("ordinal")?,
        port: row.id_opt("port_id")?,
        is_supplied: row.bool("is_supplied")?,
        is_detaching: row.bool("is_leaving")?,
        is_plugged: row.bool("is_plugged")?,
        is_next_plugged: row.bool("is_next_plugged")?,
        request: row.string("request")?,
        view: row.string_opt("view")?,
        next_view: row.string_opt("next_view")?,
    })
}
