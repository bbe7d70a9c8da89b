//! Questions to hosts about guests. They are rows, so that any controller that the host contacts
//! can deliver them. The asking controller deletes its row.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_node_api::{Question, Reply, ReplyBody};
use kilonova_store::{Tx, params};
use uuid::Uuid;

use super::documents::{self, Wake};
use super::servers::shape;
use crate::Error;

kilonova_store::statements! {
    /// Inserts a question to a host.
    ASK = "INSERT INTO questions (id, host, generation, body, asked_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    /// A host's unanswered questions.
    OPEN = "SELECT body FROM questions WHERE host = ?1 AND generation > ?2 AND answer IS NULL
        ORDER BY generation";
    /// Stores the answer of the host that was asked.
    REPLY = "UPDATE questions SET answer = ?3 WHERE id = ?1 AND host = ?2 AND answer IS NULL";
    /// The answer, if there is one.
    ANSWER = "SELECT answer FROM questions WHERE id = ?1";
    /// Deletes a question.
    FORGET = "DELETE FROM questions WHERE id = ?1";
    /// Deletes questions without a waiting caller.
    PURGE = "DELETE FROM questions WHERE id IN (SELECT id FROM questions
        WHERE asked_at < ?1 ORDER BY asked_at LIMIT ?2)";
}

/// Adds a question to a host in the host's next generation, and wakes the host on commit.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn ask(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    question: &Question,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = documents::next(tx, host)?;
    let body = serde_json::to_string(question).map_err(|e| shape(e.to_string()))?;
    tx.defer(ASK, params![question.id.to_string(), host, generation, body, now])?;
    wake.wake_on_commit(tx, host, generation);
    Ok(())
}

/// A host's unanswered questions newer than a generation.
pub fn open_since(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Vec<Question>, Error> {
    tx.rows(OPEN, params![host, since])?
        .iter()
        .map(|row| {
            serde_json::from_str(row.text("body")?).map_err(|e| shape(format!("question: {e}")))
        })
        .collect()
}

/// Stores an answer.
pub fn reply(tx: &mut Tx<'_>, host: &HostName, reply: &Reply) -> Result<(), Error> {
    let answer = serde_json::to_string(&reply.body).map_err(|e| shape(e.to_string()))?;
    tx.defer(REPLY, params![reply.id.to_string(), host, answer])?;
    Ok(())
}

/// The answer, if there is one.
pub fn answer(tx: &mut Tx<'_>, id: Uuid) -> Result<Option<ReplyBody>, Error> {
    let Some(row) = tx.row(ANSWER, params![id.to_string()])? else { return Ok(None) };
    row.text_opt("answer")?
        .map(|text| serde_json::from_str(text).map_err(|e| shape(format!("answer: {e}"))))
        .transpose()
}

/// Deletes a question.
pub fn forget(tx: &mut Tx<'_>, id: Uuid) -> Result<(), Error> {
    tx.defer(FORGET, params![id.to_string()])?;
    Ok(())
}

/// Deletes at most `most` questions asked before `before`.
pub fn purge(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, Error> {
    Ok(tx.execute(PURGE, params![before, most])?)
}
