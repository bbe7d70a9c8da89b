//! The servers with anything on a host: the server itself, a document, or a claim of a migration. Each row has the
//! columns that the decisions of a drain need. Read-only.
//!
//! A drain reads the rows every second, so the number of statements must not depend on the number of servers.

use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::Desired;
use kilonova_store::{Row, Tx, params};

use super::moves::{Kind, Status};
use super::servers::{VmState, shape};
use crate::Error;

/// The servers on a host, those with a document there, and those whose migrations have a claim there.
macro_rules! here {
    () => {
        "(SELECT id AS server_id FROM servers WHERE host = ?1
        UNION SELECT server_id FROM documents WHERE host = ?1
        UNION SELECT server_id FROM moves WHERE held_on = ?1) h"
    };
}

kilonova_store::statements! {
    /// The servers with anything on a host. The document, whose devices determine how the guest moves, is selected
    /// only for a running guest without an operation.
    ON = concat!("SELECT h.server_id, s.vm_state, s.host AS own_host, o.kind AS action, o.step,
        o.data, m.kind AS move_kind, m.status AS move_status, m.source_host,
        CASE WHEN o.id IS NULL AND s.host = ?1 AND s.vm_state IN ('active', 'paused') THEN d.body END AS body
        FROM ", here!(), "
        LEFT JOIN servers s ON s.id = h.server_id
        LEFT JOIN operations o ON o.open_subject = h.server_id
        LEFT JOIN moves m ON m.open_server = h.server_id
        LEFT JOIN documents d ON d.host = ?1 AND d.server_id = h.server_id
        ORDER BY h.server_id");
    /// The number of servers with anything on a host.
    COUNT = concat!("SELECT COUNT(*) AS count FROM ", here!());
}

/// A server with anything on a host.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainGuest {
    /// Its id.
    pub server: ServerId,
    /// Its state; `None` for a deleted server.
    pub vm_state: Option<VmState>,
    /// Its host.
    pub host: Option<HostName>,
    /// Its open operation.
    pub operation: Option<OperationRow>,
    /// Its open migration.
    pub open_move: Option<OpenMove>,
    /// Its document, if it runs here and has no operation.
    pub desired: Option<Desired>,
}

/// The columns of an open operation, which another version may have written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRow {
    /// Its kind.
    pub kind: String,
    /// Its step.
    pub step: String,
    /// The data of its step, as JSON.
    pub data: String,
}

/// An open migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenMove {
    /// Its kind.
    pub kind: Kind,
    /// Its status.
    pub status: Status,
    /// Its source.
    pub source: HostName,
}

/// The servers with anything on a host, in one statement.
///
/// # Errors
/// Store errors only; also for [`count`].
pub fn on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<DrainGuest>, Error> {
    tx.rows(ON, params![host])?.iter().map(read).collect()
}

/// The number of servers with anything on a host.
pub fn count(tx: &mut Tx<'_>, host: &HostName) -> Result<i64, Error> {
    let row = tx.row(COUNT, params![host])?;
    row.map_or(Ok(0), |row| Ok(row.int("count")?))
}

fn read(row: &Row) -> Result<DrainGuest, Error> {
    let operation = match row.text_opt("action")? {
        Some(kind) => Some(OperationRow {
            kind: kind.to_owned(),
            step: row.string("step")?,
            data: row.string("data")?,
        }),
        None => None,
    };
    let open_move = match row.text_opt("move_kind")? {
        Some(kind) => Some(OpenMove {
            kind: Kind::parse(kind)?,
            status: Status::parse(row.text("move_status")?)?,
            source: row.host("source_host")?,
        }),
        None => None,
    };
    let desired = row.text_opt("body")?.map(|body| {
        serde_json::from_str(body).map_err(|error| shape(format!("document: {error}")))
    });
    Ok(DrainGuest {
        server: row.id("server_id")?,
        vm_state: row.text_opt("vm_state")?.map(VmState::parse).transpose()?,
        host: row.host_opt("own_host")?,
        operation,
        open_move,
        desired: desired.transpose()?,
    })
}
