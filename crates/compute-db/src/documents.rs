//! The documents for the agents. A host's generation is in its row: increasing it in the same
//! transaction orders the documents of a host by commit, on PostgreSQL too.
//!
//! A generation is the time in microseconds, or one more than the last one if the clock is behind.
//! A database that lost its last commits, by a restore or a takeover of a standby, therefore never
//! reuses a generation that a host already has. The row also keeps the generations before the current one, which prove
//! that a host's documents come from this database.

use std::collections::{BTreeSet, HashMap};

use kilonova_changes::Topic;
use kilonova_ids::{HostName, ImageId, ProviderId, ServerId};
use kilonova_node_api::{Desired, Document};
use kilonova_store::{Asked, Migration, Row, Tx, Value, listed, params};
use kilonova_wire::time;
use serde_json::Value as Json;

use super::servers::shape;
use crate::Error;

/// Selects [`Document`]s with their hosts.
macro_rules! select {
    () => {
        "SELECT host, server_id, generation, body FROM documents"
    };
}

/// The generation after that of a host's row, at the time `?2`.
macro_rules! later {
    () => {
        "CASE WHEN generation < ?2 THEN ?2 ELSE generation + 1 END"
    };
}

/// Increases the generation of a host's row. A generation has 16 digits, so the limit of 544
/// characters keeps 32 of them.
macro_rules! next {
    () => {
        concat!(
            "history = SUBSTR(CAST(generation AS TEXT) || ' ' || history, 1, 544), generation = ",
            later!()
        )
    };
}

/// The generations before that of a host's row, newest first, each with a space after it.
pub const HISTORY: Migration = Migration {
    name: "compute-0430-history",
    sql: "ALTER TABLE hosts ADD COLUMN history TEXT NOT NULL DEFAULT '';",
};

/// Adds the marker of documents that are held back.
pub const HELD: Migration = Migration {
    name: "compute-0730-held",
    sql: "ALTER TABLE documents ADD COLUMN held BIGINT NOT NULL DEFAULT 0;",
};

/// Adds the generation from which a host has reported on every guest, and indexes of rows that wait for a host's report
/// and of soft-deleted servers.
pub const REPORTS: Migration = Migration {
    name: "compute-0870-requested-reports",
    sql: "
ALTER TABLE hosts ADD COLUMN reports_from BIGINT NOT NULL DEFAULT 0;
CREATE INDEX servers_soft_deleted ON servers (seq) WHERE vm_state = 'soft-delete';
CREATE INDEX documents_absent ON documents (host) WHERE body = '{\"state\":\"absent\"}';
CREATE INDEX volume_attachments_given ON volume_attachments (host) WHERE plug = 'given';
CREATE INDEX block_devices_leaving ON block_devices (server_id)
    WHERE phase IN ('detaching', 'failed', 'reimaging');",
};

/// Adds the generation at which a host registers again, because a client of the Placement API changed its providers.
pub const REGISTRATIONS: Migration = Migration {
    name: "compute-0880-requested-registrations",
    sql: "ALTER TABLE hosts ADD COLUMN registers_at BIGINT NOT NULL DEFAULT 0;",
};

kilonova_store::statements! {
    /// The hosts that have documents of these servers.
    HOSTS_OF = "SELECT DISTINCT host FROM documents WHERE server_id IN ({})";
    /// The hosts with documents of servers whose operation is in progress, and those that remove guests, for which no
    /// operation need be in progress. `CROSS JOIN` fixes SQLite's order of tables.
    AWAITED_HOSTS = "SELECT d.host FROM operations o CROSS JOIN documents d
        WHERE o.outcome = 'open' AND d.server_id = o.subject
        UNION SELECT host FROM documents WHERE body = '{\"state\":\"absent\"}'";
    /// Increases the generation of a host.
    NEXT = concat!("UPDATE hosts SET ", next!(), " WHERE host = ?1 RETURNING generation");
    /// The epoch and the newest generation of a host, the generations before it, and whether it has
    /// unanswered questions and console requests since a given generation.
    NEWEST = "SELECT epoch, generation, history, filtered, reports_from, registers_at, EXISTS (SELECT 1
        FROM questions q
        WHERE q.host = ?1 AND q.generation > ?2 AND q.answer IS NULL) AS asked, EXISTS (SELECT 1
        FROM console_requests c WHERE c.host = ?1 AND c.generation > ?2) AS watched
        FROM hosts WHERE host = ?1";
    /// Increases the generation of a host. The new generation carries the security groups of its guests.
    FILTER = concat!("UPDATE hosts SET filtered = ", later!(), ", ", next!(), "
        WHERE host = ?1 RETURNING generation");
    /// Increases the generation of a host, which gets all documents until it has the new generation.
    REQUEST_REPORTS = concat!("UPDATE hosts SET reports_from = ", later!(), ", ", next!(), "
        WHERE host = ?1 RETURNING generation");
    /// Increases the generation of the host with a root provider. The host registers again when it gets the new generation.
    REQUEST_REGISTRATION = concat!("UPDATE hosts SET registers_at = ", later!(), ", ", next!(), "
        WHERE root_provider = ?1 RETURNING host, generation");
    /// Writes the document of a server on a host.
    PUT = "INSERT INTO documents (host, server_id, generation, body, lacks_volumes, held)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (host, server_id) DO UPDATE SET
        generation = excluded.generation, body = excluded.body,
        lacks_volumes = excluded.lacks_volumes, held = excluded.held";
    /// Writes a document again; a document that is held back stays held back.
    PUT_AGAIN = "INSERT INTO documents (host, server_id, generation, body, lacks_volumes)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (host, server_id) DO UPDATE SET
        generation = excluded.generation, body = excluded.body,
        lacks_volumes = excluded.lacks_volumes";
    /// The hosts whose document of a server waits for volumes.
    LACKING = "SELECT host FROM documents WHERE server_id = ?1 AND lacks_volumes = 1";
    /// The documents of a server that are held back.
    OF_SERVER_HELD = concat!(select!(), " WHERE server_id = ?1 AND held = 1 ORDER BY host");
    /// One document.
    GET = concat!(select!(), " WHERE host = ?1 AND server_id = ?2");
    /// All documents of a server.
    OF_SERVER = concat!(select!(), " WHERE server_id = ?1 ORDER BY host");
    /// All documents of some servers.
    OF_SERVERS = "SELECT host, server_id, generation, body, lacks_volumes FROM documents
        WHERE server_id IN ({})";
    /// The servers with a document on a host.
    SERVERS_ON = "SELECT server_id FROM documents WHERE host = ?1 ORDER BY server_id";
    /// The documents newer than a generation.
    SINCE = concat!(select!(), " WHERE host = ?1 AND generation > ?2 AND lacks_volumes = 0
        AND held = 0
        ORDER BY generation");
    /// The epoch of a host, with its documents whose text matches a pattern.
    CONTAINING = "SELECT h.epoch, d.server_id, d.generation, d.body FROM hosts h
        LEFT JOIN documents d ON d.host = h.host AND d.body LIKE ?2 WHERE h.host = ?1";
    /// Replaces the text of a document, unless it has changed. Its host gets no new generation.
    REWRITE = "UPDATE documents SET body = ?4 WHERE host = ?1 AND server_id = ?2 AND generation = ?3";
    /// Deletes the document of a server.
    FORGET = "DELETE FROM documents WHERE host = ?1 AND server_id = ?2";
}

/// Wakes hosts that wait for documents.
pub trait Wake {
    /// Wakes the host's long poll once the generation is durable.
    fn wake_on_commit(&self, tx: &mut Tx<'_>, host: &HostName, generation: i64);

    /// The document with the guest's volumes on the host, and true if some volumes are still missing.
    /// The host must not get a document that lacks volumes. `None` if the document needs no change.
    ///
    /// # Errors
    /// Store errors only.
    fn with_volumes(
        &self,
        _tx: &mut Tx<'_>,
        _host: &HostName,
        _server: ServerId,
        _desired: &Desired,
    ) -> Result<Option<(Desired, bool)>, Error> {
        Ok(None)
    }
}

/// Writes the desired state of a server on a host, and wakes the host on commit.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn put(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    server: ServerId,
    desired: &Desired,
) -> Result<(), Error> {
    put_as(tx, wake, host, server, desired, Delivery::Now)
}

/// When a host gets a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Immediately.
    Now,
    /// Once something outside the database is ready. The document is then written again; on failure,
    /// the next step replaces it. Until then the host keeps its previous document.
    Held,
    /// When the replaced document would have been delivered.
    AsBefore,
}

/// Like [`put`], with the time of the delivery.
///
/// # Errors
/// Like [`put`].
pub fn put_as(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    server: ServerId,
    desired: &Desired,
    delivery: Delivery,
) -> Result<(), Error> {
    let asked = ask_next(tx, host)?;
    put_next_as(tx, wake, host, asked, server, desired, delivery)
}

/// Removes the injected files from a server's documents. Their hosts get no new generation.
///
/// # Errors
/// Store errors only.
pub(crate) fn remove_files(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    let bad = |error: serde_json::Error| shape(format!("document of server {server}: {error}"));
    for row in tx.rows(OF_SERVER, params![server])? {
        let mut body: Json = serde_json::from_str(row.text("body")?).map_err(bad)?;
        let guest = body.get_mut("guest").and_then(Json::as_object_mut);
        if guest.and_then(|guest| guest.remove("files")).is_some() {
            let (host, generation) = (row.host("host")?, row.int("generation")?);
            tx.defer(REWRITE, params![host, server, generation, body.to_string()])?;
        }
    }
    Ok(())
}

/// Asks for the next generation of a host, for [`put_next`].
///
/// # Errors
/// Store errors only.
pub fn ask_next(tx: &mut Tx<'_>, host: &HostName) -> Result<Asked, Error> {
    Ok(tx.ask(NEXT, params![host, time::now()])?)
}

/// Like [`put`], with the generation of [`ask_next`].
///
/// # Errors
/// Like [`put`].
pub fn put_next(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    asked: Asked,
    server: ServerId,
    desired: &Desired,
) -> Result<(), Error> {
    put_next_as(tx, wake, host, asked, server, desired, Delivery::Now)
}

/// Like [`put_as`], with the generation of [`ask_next`].
///
/// # Errors
/// Like [`put`].
pub fn put_next_as(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    asked: Asked,
    server: ServerId,
    desired: &Desired,
    delivery: Delivery,
) -> Result<(), Error> {
    let generation =
        generation(tx, host, asked)?.ok_or_else(|| shape(format!("no host {host}")))?;
    let composed = wake.with_volumes(tx, host, server, desired)?;
    let (desired, lacks) = match &composed {
        Some((desired, lacks)) => (desired, *lacks),
        None => (desired, false),
    };
    let body = serde_json::to_string(desired).map_err(|e| shape(e.to_string()))?;
    match delivery {
        Delivery::Now => tx.defer(PUT, params![host, server, generation, body, lacks, false])?,
        Delivery::Held => tx.defer(PUT, params![host, server, generation, body, lacks, true])?,
        Delivery::AsBefore => {
            tx.defer(PUT_AGAIN, params![host, server, generation, body, lacks])?
        }
    }
    wake.wake_on_commit(tx, host, generation);
    Ok(())
}

/// The generation that [`ask_next`] asked for; notifies the other controllers.
fn generation(
    tx: &mut Tx<'_>,
    host: &HostName,
    asked: Asked,
) -> Result<Option<i64>, kilonova_store::Error> {
    let Some(row) = tx.answer_row(asked)? else { return Ok(None) };
    logged(tx, host, row.int("generation")?).map(Some)
}

/// Increases and returns the generation of a host; `None` if the host has no row.
///
/// # Errors
/// Store errors only.
pub fn next_of(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
    let asked = tx.ask(NEXT, params![host, time::now()])?;
    generation(tx, host, asked)
}

/// Notifies the other controllers, one of which may hold the host's poll.
fn logged(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<i64, kilonova_store::Error> {
    kilonova_changes::append(tx, Topic::Documents, host, generation)?;
    Ok(generation)
}

/// Like [`next_of`], for a host that has a row.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn next(tx: &mut Tx<'_>, host: &HostName) -> Result<i64, Error> {
    next_of(tx, host)?.ok_or_else(|| shape(format!("no host {host}")))
}

/// Announces [`get`].
///
/// # Errors
/// Store errors only.
pub fn expect(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(GET, params![host, server])?)
}

/// Announces [`newest`].
///
/// # Errors
/// Store errors only.
pub fn expect_newest(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<(), Error> {
    Ok(tx.expect(NEWEST, params![host, since])?)
}

/// Announces [`newest`] and [`since`].
///
/// # Errors
/// Store errors only.
pub fn expect_since(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<(), Error> {
    expect_newest(tx, host, since)?;
    Ok(tx.expect(SINCE, params![host, since])?)
}

/// The document of a server on a host.
///
/// # Errors
/// Store errors only.
pub fn get(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<Option<Document>, Error> {
    tx.row(GET, params![host, server])?.as_ref().map(read).transpose()
}

/// Announces [`of_server`], and so [`on`].
///
/// # Errors
/// Store errors only.
pub fn expect_of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(OF_SERVER, params![server])?)
}

/// The document of a server on a host, selected from all documents of the server, so that a caller
/// can announce the query before it knows the host.
///
/// # Errors
/// Store errors only.
pub fn on(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<Option<Document>, Error> {
    let all = of_server(tx, server)?;
    Ok(all.into_iter().find_map(|(on, document)| (on == *host).then_some(document)))
}

/// The hosts whose document of a server waits for volumes.
///
/// # Errors
/// Store errors only.
pub fn lacking(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(LACKING, params![server])?;
    Ok(rows.iter().map(|row| row.host("host")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The documents of a server, by host.
///
/// # Errors
/// Store errors only.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<(HostName, Document)>, Error> {
    let rows = tx.rows(OF_SERVER, params![server])?;
    rows.iter().map(of_row).collect()
}

/// The documents of a server.
#[derive(Debug, Clone, Default)]
pub struct OfServer {
    /// The documents, in the order of their hosts.
    pub documents: Vec<(HostName, Document)>,
    /// The hosts whose document waits for volumes.
    pub lacking: Vec<HostName>,
}

/// Asks for the documents of these servers, for [`of_those`].
///
/// # Errors
/// Store errors only.
pub fn ask_of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| Value::from(*id)).collect();
    Ok(tx.ask_list(OF_SERVERS, &ids)?)
}

/// The documents that [`ask_of_servers`] asked for, by their servers.
///
/// # Errors
/// Store errors only.
pub fn of_those(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashMap<ServerId, OfServer>, Error> {
    let mut found: HashMap<ServerId, OfServer> = HashMap::new();
    for row in tx.answers(asked)? {
        let of: &mut OfServer = found.entry(row.id("server_id")?).or_default();
        let (host, document) = of_row(&row)?;
        if row.bool("lacks_volumes")? {
            of.lacking.push(host.clone());
        }
        of.documents.push((host, document));
    }
    for of in found.values_mut() {
        of.documents.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    Ok(found)
}

/// The documents of a server that are held back, by host.
///
/// # Errors
/// Store errors only.
pub fn held(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<(HostName, Document)>, Error> {
    tx.rows(OF_SERVER_HELD, params![server])?.iter().map(of_row).collect()
}

/// Asks for [`of_server`].
///
/// # Errors
/// Store errors only.
pub fn ask_of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Asked, Error> {
    Ok(tx.ask(OF_SERVER, params![server])?)
}

/// The documents that [`ask_of_server`] asked for.
///
/// # Errors
/// Store errors only.
pub fn found(tx: &mut Tx<'_>, asked: Asked) -> Result<Vec<(HostName, Document)>, Error> {
    tx.answer(asked)?.iter().map(of_row).collect()
}

fn of_row(row: &Row) -> Result<(HostName, Document), Error> {
    Ok((row.host("host")?, read(row)?))
}

/// Announces [`servers_on`].
///
/// # Errors
/// Store errors only.
pub fn expect_servers_on(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(tx.expect(SERVERS_ON, params![host])?)
}

/// The servers with a document on a host, including documents that are held back.
///
/// # Errors
/// Store errors only.
pub fn servers_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(SERVERS_ON, params![host])?;
    Ok(rows.iter().map(|row| row.id("server_id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The newest generation of a host.
#[derive(Debug, Clone)]
pub struct Newest {
    /// The epoch of its session; `None` for a host without a row.
    pub epoch: Option<i64>,
    /// The generation.
    pub generation: i64,
    /// The last generations before it, newest first.
    pub history: Vec<i64>,
    /// The last generation that carries the security groups of its guests.
    pub filtered: i64,
    /// A host with an earlier generation must report on every guest again.
    pub reports_from: i64,
    /// The generation with which the host must register again; 0 if it has registered since.
    pub registers_at: i64,
    /// True if there may be unanswered questions to the host since the given generation.
    pub asked: bool,
    /// True if there may be console requests to the host since the given generation.
    pub watched: bool,
}

/// The origin of a generation that a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The host's row had it: the host lacks only newer documents.
    Ours,
    /// The host's row never had it: the database lost commits, and the host has documents of the lost commits.
    Foreign,
    /// It is older than the generations that the row keeps.
    Forgotten,
}

impl Newest {
    /// The origin of a generation that a host has; 0 is the generation of a host without documents.
    pub fn origin(&self, since: i64) -> Origin {
        if since == 0 || since == self.generation || self.history.contains(&since) {
            Origin::Ours
        } else if self.history.last().is_none_or(|oldest| since < *oldest)
            && since < self.generation
        {
            Origin::Forgotten
        } else {
            Origin::Foreign
        }
    }
}

/// The generations of the column `history`; the last one may be cut off.
fn history(row: &Row) -> Result<Vec<i64>, Error> {
    let text = row.text("history")?;
    let whole = text.rsplit_once(' ').map_or("", |(whole, _)| whole);
    let number = |word: &str| {
        word.parse().map_err(|_| shape(format!("invalid generation {word:?} of a host")))
    };
    whole.split_terminator(' ').map(number).collect()
}

/// The newest generation of a host that has the generation `since`.
///
/// # Errors
/// Store errors only.
pub fn newest(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Newest, Error> {
    Ok(match tx.row(NEWEST, params![host, since])? {
        Some(row) => Newest {
            epoch: Some(row.int("epoch")?),
            generation: row.int("generation")?,
            history: history(&row)?,
            filtered: row.int("filtered")?,
            reports_from: row.int("reports_from")?,
            registers_at: row.int("registers_at")?,
            asked: row.bool("asked")?,
            watched: row.bool("watched")?,
        },
        None => Newest {
            epoch: None,
            generation: 0,
            history: Vec::new(),
            filtered: 0,
            reports_from: 0,
            registers_at: 0,
            asked: true,
            watched: true,
        },
    })
}

/// The documents that may be sent to the host and are newer than the generation `since`; for 0, all that may be sent.
///
/// # Errors
/// Store errors only.
pub fn since(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Vec<Document>, Error> {
    tx.rows(SINCE, params![host, since])?.iter().map(read).collect()
}

/// The epoch of a host's session, and the host's documents whose text contains an image's id. The caller checks
/// how a document uses the id. The statement filters them, so that the host's other documents are not transferred.
///
/// # Errors
/// Store errors only.
pub fn containing(
    tx: &mut Tx<'_>,
    host: &HostName,
    image: ImageId,
) -> Result<(Option<i64>, Vec<Document>), Error> {
    let rows = tx.rows(CONTAINING, params![host, format!("%{image}%")])?;
    let epoch = rows.first().map(|row| row.int("epoch")).transpose()?;
    let mut documents = Vec::new();
    for row in &rows {
        if row.string_opt("server_id")?.is_some() {
            documents.push(read(row)?);
        }
    }
    Ok((epoch, documents))
}

/// Increases the generation of a host, so that the host gets the security groups of its guests, and
/// wakes the host on commit.
///
/// # Errors
/// Store errors only.
pub fn filter(tx: &mut Tx<'_>, wake: &impl Wake, host: &HostName) -> Result<(), Error> {
    increase(tx, wake, host, FILTER)
}

/// Increases the generation of a host, which then gets all its documents and reports on every guest, and wakes the host
/// on commit.
///
/// # Errors
/// Store errors only.
pub fn request_reports(tx: &mut Tx<'_>, wake: &impl Wake, host: &HostName) -> Result<(), Error> {
    increase(tx, wake, host, REQUEST_REPORTS)
}

/// Increases the generation of the host with a root provider; returns the host and the generation. The host registers
/// again when it next scans its devices. A registration withdraws the request. `None` if no host has the provider.
///
/// # Errors
/// Store errors only.
pub fn request_registration(
    tx: &mut Tx<'_>,
    root: ProviderId,
) -> Result<Option<(HostName, i64)>, Error> {
    let Some(row) = tx.row(REQUEST_REGISTRATION, params![root, time::now()])? else {
        return Ok(None);
    };
    let host = row.host("host")?;
    let generation = logged(tx, &host, row.int("generation")?)?;
    Ok(Some((host, generation)))
}

/// Increases the generation of a host with a statement, and wakes the host on commit. Does nothing if the host has no
/// row.
fn increase(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    statement: &str,
) -> Result<(), Error> {
    if let Some(row) = tx.row(statement, params![host, time::now()])? {
        let generation = logged(tx, host, row.int("generation")?)?;
        wake.wake_on_commit(tx, host, generation);
    }
    Ok(())
}

/// The hosts with documents of servers whose operation is in progress, and those that remove guests.
///
/// # Errors
/// Store errors only.
pub fn awaited_hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(AWAITED_HOSTS, params![])?;
    Ok(rows.iter().map(|row| row.host("host")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The hosts that have documents of one of these servers.
///
/// # Errors
/// Store errors only.
pub fn hosts_of(
    tx: &mut Tx<'_>,
    servers: &BTreeSet<ServerId>,
) -> Result<BTreeSet<HostName>, Error> {
    let servers: Vec<&ServerId> = servers.iter().collect();
    let mut hosts = BTreeSet::new();
    for some in servers.chunks(100) {
        let sql = listed(HOSTS_OF, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(**id)).collect();
        for row in tx.rows(&sql, &values)? {
            hosts.insert(row.host("host")?);
        }
    }
    Ok(hosts)
}

/// Deletes a document once the host has removed the guest.
///
/// # Errors
/// Store errors only.
pub fn forget(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    tx.defer(FORGET, params![host, server])?;
    Ok(())
}

fn read(row: &Row) -> Result<Document, Error> {
    Ok(Document {
        server: row.id("server_id")?,
        generation: row.int("generation")?,
        desired: serde_json::from_str(row.text("body")?)
            .map_err(|e| shape(format!("document: {e}")))?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Newest, Origin};

    #[test]
    fn the_row_knows_the_generations_that_it_had() {
        let newest = Newest {
            epoch: Some(1),
            generation: 90,
            history: vec![80, 70],
            filtered: 0,
            reports_from: 0,
            registers_at: 0,
            asked: false,
            watched: false,
        };
        for (since, origin) in [
            (0, Origin::Ours),
            (90, Origin::Ours),
            (70, Origin::Ours),
            (69, Origin::Forgotten),
            (75, Origin::Foreign),
            (89, Origin::Foreign),
            (91, Origin::Foreign),
        ] {
            assert_eq!(newest.origin(since), origin, "{since}");
        }
        let earlier = Newest { history: Vec::new(), ..newest };
        assert_eq!(earlier.origin(89), Origin::Forgotten, "a row of an earlier build");
        assert_eq!(earlier.origin(91), Origin::Foreign);
    }
}
