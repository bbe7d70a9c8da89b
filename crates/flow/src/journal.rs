//! Begins, advances and ends operations within the caller's transaction.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{OperationId, ServerId};
use kilonova_store::{Asked, Row, Tx, Value, params};
use serde_json::Value as Json;

use crate::statements as sql;
use crate::{Error, Event, NewOperation, Operation, Outcome};

/// Begins an operation.
///
/// # Errors
/// [`Error::Busy`] when the server has an open operation. The transaction must then end.
pub fn begin(tx: &mut Tx<'_>, new: &NewOperation, now: Timestamp) -> Result<(), Error> {
    match tx.execute(sql::BEGIN, &columns(new, now)) {
        Ok(_) => Ok(()),
        Err(kilonova_store::Error::Unique(_)) => Err(Error::Busy(new.subject.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Asks for [`begin`], so that it shares a round trip with other statements; [`begun`] reads the
/// answer.
///
/// # Errors
/// Store errors only.
pub fn ask_begin(tx: &mut Tx<'_>, new: &NewOperation, now: Timestamp) -> Result<Asked, Error> {
    Ok(tx.ask(sql::BEGIN_IF_FREE, &columns(new, now))?)
}

/// Checks the answer to [`ask_begin`] of an operation on `subject`. Statements asked after it may fail
/// because of an operation that was already open.
///
/// # Errors
/// Those of [`begin`].
pub fn begun(tx: &mut Tx<'_>, subject: ServerId, asked: Asked) -> Result<(), Error> {
    match tx.answer_row(asked) {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(kilonova_store::Error::Unique(_)) => Err(Error::Busy(subject.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Begins the first operation of a server that this transaction inserts; no other can be open.
///
/// # Errors
/// Store errors only.
pub fn begin_first(tx: &mut Tx<'_>, new: &NewOperation, now: Timestamp) -> Result<(), Error> {
    Ok(tx.defer(sql::BEGIN, &columns(new, now))?)
}

fn columns(new: &NewOperation, now: Timestamp) -> [Value; 9] {
    [
        new.id.into(),
        new.kind.into(),
        new.subject.into(),
        (&new.request_id).into(),
        (&new.project_id).into(),
        (&new.user_id).into(),
        new.step.into(),
        new.data.to_string().into(),
        now.into(),
    ]
}

/// Records an operation that is over already. Another one may be open meanwhile.
///
/// # Errors
/// Store errors only.
pub fn record(
    tx: &mut Tx<'_>,
    new: &NewOperation,
    outcome: Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    let params = params![
        new.id,
        new.kind,
        new.subject,
        &new.request_id,
        &new.project_id,
        &new.user_id,
        new.step,
        new.data.to_string(),
        outcome.as_str(),
        now
    ];
    tx.defer(sql::RECORD, params)?;
    Ok(())
}

/// Announces [`open_of`].
///
/// # Errors
/// Store errors only.
pub fn expect_open_of(tx: &mut Tx<'_>, subject: ServerId) -> Result<(), Error> {
    Ok(tx.expect(sql::OPEN_OF, params![subject])?)
}

/// The open operation of a server.
///
/// # Errors
/// Store errors only.
pub fn open_of(tx: &mut Tx<'_>, subject: ServerId) -> Result<Option<Operation>, Error> {
    tx.row(sql::OPEN_OF, params![subject])?.as_ref().map(read).transpose()
}

/// Asks for the open operations of some servers.
///
/// # Errors
/// Store errors only.
pub fn ask_open_of_some(tx: &mut Tx<'_>, subjects: &[ServerId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Value> = subjects.iter().map(|id| Value::from(*id)).collect();
    Ok(tx.ask_list(sql::OPEN_OF_SOME, &ids)?)
}

/// The open operations that [`ask_open_of_some`] asked for, by their servers.
///
/// # Errors
/// Store errors only.
pub fn all_opened(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
) -> Result<HashMap<ServerId, Operation>, Error> {
    let read = |row: &Row| read(row).map(|one| (one.subject, one));
    tx.answers(asked)?.iter().map(read).collect()
}

/// Advances an operation to a step.
///
/// # Errors
/// [`Error::Moved`] when another transaction advanced or ended it.
pub fn advance(
    tx: &mut Tx<'_>,
    operation: &Operation,
    step: &str,
    data: &Json,
    now: Timestamp,
) -> Result<(), Error> {
    let params = params![operation.id, operation.version, step, data.to_string(), now];
    if tx.execute(sql::ADVANCE, params)? == 1 {
        Ok(())
    } else {
        Err(Error::Moved(operation.id.to_string()))
    }
}

/// Ends an operation. Ending it again changes nothing.
///
/// # Errors
/// Store errors only.
pub fn finish(
    tx: &mut Tx<'_>,
    operation: &Operation,
    outcome: Outcome,
    message: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::FINISH, params![operation.id, outcome.as_str(), message, now])?;
    Ok(())
}

/// Cancels the open operation of a server if it is of this kind. It shares the round trip of the next statement.
///
/// # Errors
/// Store errors only.
pub fn cancel(
    tx: &mut Tx<'_>,
    subject: ServerId,
    kind: &str,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::CANCEL, params![subject, kind, message, now])?;
    Ok(())
}

/// Turns an operation that was recorded as done into a failed one, and its events into failures.
///
/// # Errors
/// Store errors only.
pub fn fail_recorded(
    tx: &mut Tx<'_>,
    operation: OperationId,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::FAIL_RECORDED, params![operation, message, now])?;
    tx.defer(sql::FAIL_EVENTS, params![operation, message, now])?;
    Ok(())
}

/// Ends the events in progress of a recorded operation with success.
///
/// # Errors
/// Store errors only.
pub fn end_events(tx: &mut Tx<'_>, operation: OperationId, now: Timestamp) -> Result<(), Error> {
    tx.defer(sql::END_EVENTS, params![operation, now])?;
    Ok(())
}

/// Sets operation times later than `now` to `now`. Returns the number of changed operations.
///
/// # Errors
/// Store errors only.
pub fn redate(tx: &mut Tx<'_>, now: Timestamp) -> Result<u64, Error> {
    Ok(tx.execute(sql::REDATE, params![now])?)
}

/// Adds an event.
///
/// # Errors
/// Store errors only.
pub fn event(tx: &mut Tx<'_>, operation: OperationId, event: &Event) -> Result<(), Error> {
    let params = params![
        operation,
        &event.name,
        event.host.as_ref(),
        event.result.as_deref(),
        event.details.as_deref(),
        event.started_at,
        event.finished_at
    ];
    tx.defer(sql::EVENT, params)?;
    Ok(())
}

/// Announces [`history`].
///
/// # Errors
/// Store errors only.
pub fn expect_history(tx: &mut Tx<'_>, subject: ServerId, limit: i64) -> Result<(), Error> {
    Ok(tx.expect(sql::HISTORY, params![subject, limit])?)
}

/// The newest `limit` operations of a server.
///
/// # Errors
/// Store errors only.
pub fn history(tx: &mut Tx<'_>, subject: ServerId, limit: i64) -> Result<Vec<Operation>, Error> {
    tx.rows(sql::HISTORY, params![subject, limit])?.iter().map(read).collect()
}

/// The operation of a request, with its events.
///
/// # Errors
/// Store errors only.
pub fn one(
    tx: &mut Tx<'_>,
    subject: ServerId,
    request_id: &str,
) -> Result<Option<(Operation, Vec<Event>)>, Error> {
    let Some(row) = tx.row(sql::ONE, params![subject, request_id])? else { return Ok(None) };
    let operation = read(&row)?;
    let events = events(tx, operation.id)?;
    Ok(Some((operation, events)))
}

/// The events of an operation, in order.
///
/// # Errors
/// Store errors only.
pub fn events(tx: &mut Tx<'_>, operation: OperationId) -> Result<Vec<Event>, Error> {
    tx.rows(sql::EVENTS, params![operation])?
        .iter()
        .map(|row| {
            Ok(Event {
                name: row.string("name")?,
                host: row.host_opt("host")?,
                result: row.string_opt("result")?,
                details: row.string_opt("details")?,
                started_at: row.time("started_at")?,
                finished_at: row.time_opt("finished_at")?,
            })
        })
        .collect()
}

/// Open operations that have not advanced since `before`, the longest-waiting first.
///
/// # Errors
/// Store errors only.
pub fn open_since(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<Vec<Operation>, Error> {
    tx.rows(sql::OPEN_SINCE, params![before, limit])?.iter().map(read).collect()
}

/// The number of open operations of each kind.
///
/// # Errors
/// Store errors only.
pub fn open_by_kind(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let count =
        |row: &Row| Ok::<_, kilonova_store::Error>((row.string("kind")?, row.int("count")?));
    Ok(tx.rows(sql::OPEN_BY_KIND, params![])?.iter().map(count).collect::<Result<_, _>>()?)
}

/// Deletes up to `most` operations that ended before `before`; the bound keeps the transaction short.
///
/// # Errors
/// Store errors only.
pub fn purge(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, Error> {
    Ok(tx.execute(sql::PURGE, params![before, most])?)
}

fn read(row: &Row) -> Result<Operation, Error> {
    let outcome = row.text("outcome")?;
    let outcome = Outcome::parse(outcome)
        .ok_or_else(|| Error::Outcome(row.text("id").unwrap_or_default().into(), outcome.into()))?;
    Ok(Operation {
        id: row.id("id")?,
        kind: row.string("kind")?,
        subject: row.id("subject")?,
        request_id: row.string("request_id")?,
        project_id: row.string("project_id")?,
        user_id: row.string("user_id")?,
        step: row.string("step")?,
        version: row.int("version")?,
        data: serde_json::from_str(row.text("data")?)
            .map_err(|e| kilonova_store::Error::Shape(format!("operation data: {e}")))?,
        outcome,
        message: row.string_opt("message")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
