//! The files that a request injects into a guest. They may be secrets, so the database keeps them only until the
//! operation that gives them to a host has ended.
//!
//! Rows and documents are changed as JSON, not as the types of this version: fields that a newer version wrote stay.

use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};
use serde_json::Value;

use super::model::{from_text, to_text};
use crate::{Error, documents};

kilonova_store::statements! {
    /// Servers that still have files, without an operation in progress.
    UNNEEDED = "SELECT id FROM servers WHERE has_files = 1
        AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.open_subject = servers.id)
        ORDER BY seq LIMIT ?1";
    /// The spec of such a server.
    SPEC = "SELECT spec FROM servers WHERE id = ?1 AND has_files = 1
        AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.open_subject = servers.id)";
    /// Replaces the spec by one without files.
    REMOVE = "UPDATE servers SET spec = ?2, has_files = 0 WHERE id = ?1";
    /// Replaces the spec of a deleted server by one without files.
    REMOVE_DELETED = "UPDATE deleted_servers SET spec = ?2 WHERE id = ?1";
}

/// At most `most` servers whose files no host needs any more: no operation of theirs is in progress.
///
/// # Errors
/// Store errors only.
pub fn unneeded(tx: &mut Tx<'_>, most: i64) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(UNNEEDED, params![most])?;
    Ok(rows.iter().map(|row| row.id("id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Removes the files of a server from its row and from its documents, unless an operation of the server is in progress.
/// Hosts get no new generation: they ignore the files of a guest that exists.
///
/// # Errors
/// Store errors only.
pub fn remove(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    let Some(row) = tx.row(SPEC, params![server])? else { return Ok(()) };
    let spec = row.text("spec")?;
    let without = without_files(spec)?;
    tx.defer(REMOVE, params![server, without.as_deref().unwrap_or(spec)])?;
    documents::remove_files(tx, server)
}

/// Removes the files from the row of a deleted server that had this spec.
pub(super) fn remove_deleted(tx: &mut Tx<'_>, server: ServerId, spec: &str) -> Result<(), Error> {
    if let Some(without) = without_files(spec)? {
        tx.defer(REMOVE_DELETED, params![server, without])?;
    }
    Ok(())
}

/// A spec without its files; `None` if it has none.
fn without_files(spec: &str) -> Result<Option<String>, Error> {
    // Most specs have no files, and need not be parsed.
    if !spec.contains("\"files\"") {
        return Ok(None);
    }
    let mut spec: Value = from_text(spec)?;
    let removed = spec.as_object_mut().and_then(|spec| spec.remove("files"));
    removed.map(|_| to_text(&spec)).transpose()
}
